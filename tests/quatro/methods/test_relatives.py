"""QUATRO's relatives, of docs/relatives.py, against what their papers promise: exact expectations and gradients."""

from __future__ import annotations

import itertools
import math
import shutil
from typing import Any

import pytest
import torch

from evals.errors import UsageError
from quatro import ops
from quatro.config import load_config
from quatro.registry import METHODS
from quatro.types import Batch
from tests.kit import RELATIVES, relatives, says
from tests.quatro.methods.asked import asked

LOGITS = torch.tensor([0.4, -0.3, 0.1], dtype=torch.float64)
N = 4
OWN = relatives()


def method(name: str, **fields: object) -> Any:
    chosen = OWN.get(name.capitalize()) or METHODS[name]
    return chosen(name=name, **fields)


def advantages(name: str, rewards: tuple[float, ...], **fields: object) -> list[float]:
    group_B, chosen = torch.zeros(len(rewards), dtype=torch.long), method(name, **fields)
    reward_B, more = torch.tensor(rewards, dtype=torch.float64), asked(chosen.needs, len(rewards))
    return chosen.advantages(reward_B, group_B, **more).value_B.tolist()


def expected_gradient(name: str, reward_A: torch.Tensor, **fields: object) -> torch.Tensor:
    """E[mean of A_i grad log pi(o_i)] over all draws of N answers out of three, each an arm with its reward."""
    policy_A = LOGITS.softmax(-1)
    total_A = torch.zeros(3, dtype=torch.float64)
    for draw in itertools.product(range(3), repeat=N):
        value = advantages(name, tuple(reward_A[list(draw)].tolist()), **fields)
        score_NA = torch.eye(3, dtype=torch.float64)[list(draw)] - policy_A
        total_A += policy_A[list(draw)].prod() * (torch.tensor(value, dtype=torch.float64)[:, None] * score_NA).mean(0)
    return total_A


def gradient_of_the_best_of(k: int, reward_A: torch.Tensor) -> torch.Tensor:
    """The gradient of E[max of k rewards] by the logits; Pass@k where rewards are 0 and 1."""
    logits_A = LOGITS.clone().requires_grad_()
    policy_A = logits_A.softmax(-1)
    best = sum(
        policy_A[list(draw)].prod() * reward_A[list(draw)].max() for draw in itertools.product(range(3), repeat=k)
    )
    return torch.autograd.grad(best, logits_A)[0]


@pytest.mark.parametrize("rewards", [(0.0, 1.0, 0.0), (0.2, 1.0, -0.5)])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pkpo_is_an_unbiased_gradient_of_the_best_of_k(k, rewards):
    reward_A = torch.tensor(rewards, dtype=torch.float64)
    torch.testing.assert_close(
        expected_gradient("pkpo", reward_A, k=k), gradient_of_the_best_of(k, reward_A), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 9])
@pytest.mark.parametrize("rewards", [(0.3, 0.3, 1.0, 0.0, 1.0, 0.7), (0.0, 0.0, 1.0, 0.0, 1.0, 1.0)])
def test_pkpo_is_what_a_rollout_adds_to_every_set_of_others(k, rewards):
    at_most = min(k, len(rewards))
    wanted = []
    for place, reward in enumerate(rewards):
        others = [other for at, other in enumerate(rewards) if at != place]
        sets = list(itertools.combinations(others, at_most - 1))
        added = [max(reward, *chosen) - max(chosen) if chosen else reward for chosen in sets]
        baseline = sum(others) / len(others) if k == 1 else 0.0
        wanted.append(at_most * sum(added) / len(sets) - baseline)
    assert advantages("pkpo", rewards, k=k) == pytest.approx(wanted, abs=1e-12)


def test_a_k_that_no_prompt_has_rollouts_for_is_refused(tmp_path, monkeypatch):
    shutil.copy(RELATIVES, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="rollouts_per_prompt: found 8, expected at least 9, as method relatives:Pkpo"):
        load_config("quickstart", method="relatives:Pkpo", overrides=["method.k=9"])


@pytest.mark.parametrize("name", ["dppo", "pmd", "maxrl", "pkpo"])
def test_a_method_that_moved_to_the_page_is_refused_with_where_it_is(name):
    with pytest.raises(UsageError) as refused:
        load_config("quickstart", method=name)
    says(refused, key="method.name", value=name, advice="docs/methods.md")


def test_pkpo_takes_groups_of_any_size_in_any_order():
    reward_B = torch.tensor([0.0, 1.0, 0.5, 1.0, 0.0, 0.2], dtype=torch.float64)
    group_B = torch.tensor([3, 1, 3, 3, 1, 7])
    value_B = method("pkpo", k=3).advantages(reward_B, group_B).value_B.tolist()
    for group in (1, 3, 7):
        rows = [row for row in range(6) if group_B[row] == group]
        alone = advantages("pkpo", tuple(reward_B[rows].tolist()), k=3)
        assert [value_B[row] for row in rows] == pytest.approx(alone)


def test_maxrl_is_an_unbiased_gradient_of_log_pass_at_1_up_to_the_order_that_n_rollouts_give():
    """log p = -sum over k of (1 - p)^k / k; N rollouts give its first N - 1 terms, whose gradients are Pass@k's / k."""
    reward_A = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    wanted_A = sum(gradient_of_the_best_of(k, reward_A) / k for k in range(1, N))
    torch.testing.assert_close(expected_gradient("maxrl", reward_A), wanted_A, rtol=1e-10, atol=1e-12)


def test_maxrl_refuses_negative_rewards_and_learns_nothing_where_none_is_correct():
    assert advantages("maxrl", (0.0, 0.0, 0.0)) == [0.0, 0.0, 0.0]
    assert advantages("maxrl", (1.0, 0.0, 0.0, 0.0)) == pytest.approx([3.0, -1.0, -1.0, -1.0])
    with pytest.raises(UsageError, match=r"a reward is -0\.5; MaxRL needs rewards that are never negative"):
        advantages("maxrl", (1.0, -0.5))


def test_rloo_takes_the_mean_of_the_others_and_dr_grpo_divides_by_nothing():
    rewards = (1.0, 0.0, 0.25, 0.5)
    others = [(sum(rewards) - reward) / 3 for reward in rewards]
    wanted = [reward - mean for reward, mean in zip(rewards, others, strict=True)]
    assert advantages("grpo", rewards, standardise=False, leave_one_out=True) == pytest.approx(wanted)
    centred = [reward - sum(rewards) / 4 for reward in rewards]
    assert advantages("grpo", rewards, standardise=False) == pytest.approx(centred)
    assert advantages("grpo", (0.7,), standardise=False, leave_one_out=True) == pytest.approx([0.7])


def rows(old: float, new: float, advantage: float) -> tuple[torch.Tensor, Batch]:
    """One response of one token whose probability went from ``old`` to ``new``."""
    logp_BT = torch.tensor([[math.log(new)]], dtype=torch.float64, requires_grad=True)
    batch = Batch(
        old_logp_BT=torch.tensor([[math.log(old)]], dtype=torch.float64),
        mask_BT=torch.ones(1, 1, dtype=torch.bool),
        advantage_B=torch.tensor([advantage], dtype=torch.float64),
        group_B=torch.zeros(1, dtype=torch.long),
        group_size_B=torch.ones(1, dtype=torch.long),
        max_new_tokens=1,
    )
    return logp_BT, batch


@pytest.mark.parametrize("divergence", ["tv", "kl"])
@pytest.mark.parametrize(
    ("old", "new", "advantage", "is_free"),
    [
        (0.5, 0.9, 1.0, False),  # pushed further out
        (0.5, 0.9, -1.0, True),  # pulled back in
        (0.5, 0.1, -1.0, False),
        (0.5, 0.1, 1.0, True),
        (1e-6, 1e-5, 1.0, True),  # a rare token may become ten times as likely, which no clip of a ratio allows
        (0.99, 0.97, -1.0, True),
    ],
)
def test_dppo_stops_a_token_whose_probability_has_moved_too_far(divergence, old, new, advantage, is_free):
    logp_BT, batch = rows(old, new, advantage)
    loss = method("dppo", divergence=divergence).loss(logp_BT, batch)
    (gradient_BT,) = torch.autograd.grad(ops.total_loss(loss.terms), logp_BT)
    assert gradient_BT.item() == pytest.approx(-min(new / old, 20.0) * advantage if is_free else 0.0)
    assert float(loss.metrics["clip_fraction"].value) == (0.0 if is_free else 1.0)


def test_dppo_counts_a_ratio_at_most_c_times():
    logp_BT, batch = rows(1e-6, 1e-3, 1.0)
    (gradient_BT,) = torch.autograd.grad(
        ops.total_loss(method("dppo", max_ratio=5.0).loss(logp_BT, batch).terms), logp_BT
    )
    assert gradient_BT.item() == pytest.approx(-5.0)


def test_the_step_of_pmd_is_quatros_without_ratio_and_dual():
    """dloss/dlogp_it = -(1/n) (A_i - l_i); with tau = lam* both advantages are the same but for a shift."""
    generator = torch.Generator().manual_seed(3)
    old_BT = -torch.rand(8, 5, generator=generator, dtype=torch.float64)
    logp_BT = (old_BT + 0.1 * torch.randn(8, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    mask_BT = torch.arange(5) < torch.tensor([5, 3, 1, 4, 2, 5, 5, 0])[:, None]
    group_B = torch.zeros(8, dtype=torch.long)
    reward_B = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1], dtype=torch.float64)
    pmd = method("pmd", tau=2.0)
    advantage_B = pmd.advantages(reward_B, group_B).value_B
    torch.testing.assert_close(advantage_B, (reward_B - reward_B.mean()) / 2.0)
    batch = Batch(old_BT, mask_BT, advantage_B, group_B, torch.full((8,), 8), max_new_tokens=5)
    (gradient_BT,) = torch.autograd.grad(ops.total_loss(pmd.loss(logp_BT, batch).terms), logp_BT)
    l_B = torch.where(mask_BT, logp_BT - old_BT, 0.0).sum(-1).detach()
    torch.testing.assert_close(gradient_BT, torch.where(mask_BT, -(advantage_B - l_B)[:, None] / 8, 0.0))

    quatro = method("quatro", delta=0.01).advantages(reward_B, group_B)
    same_tau_B = method("pmd", tau=quatro.metrics["dual/lam_mean"]).advantages(reward_B, group_B).value_B
    shift_B = quatro.value_B - same_tau_B
    torch.testing.assert_close(shift_B, shift_B[:1].expand(8))


@pytest.mark.parametrize("name", ["pmd", "maxrl", "pkpo", "quatro"])
@pytest.mark.parametrize("reward", [1.0, 0.3])
def test_a_response_that_is_alone_is_no_better_than_its_prompts_mean(name, reward):
    reward_B = torch.tensor([reward, 1.0, 0.0])
    value_B = method(name).advantages(reward_B, torch.tensor([0, 1, 1])).value_B
    assert value_B[0] == 0.0
    assert value_B[1] > 0.0


FIELDS = {
    "quatro": [{}, *({"temperature": name} for name in ("batch", "zscore")), {"temperature": "fixed", "tau": 1.0}]
}


@pytest.mark.parametrize(
    ("name", "fields"), [(name, fields) for name in sorted(METHODS) for fields in FIELDS.get(name, [{}])]
)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused(name, fields, wrong):
    with pytest.raises(ValueError, match="finite"):
        advantages(name, (1.0, wrong, 0.0, 0.0), **fields)
