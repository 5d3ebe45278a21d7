"""Rows without a loss, and importance weights for a sampler that is not the trainer's policy."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from quatro import ops
from quatro.config.blocks import CorrectionConfig
from quatro.loop.correction import correction_metrics, importance_weights, with_gradient_times
from quatro.loop.learn import make_objective
from quatro.processes.world import World
from quatro.registry import METHODS
from quatro.types import Batch

NAN = math.nan
# Of the three responses the second is one token long. Ratios pi_old / pi_sampler of the tokens: 2, 4; 1/2; 1, 5.
OLD = torch.tensor([[-1.0, -2.0], [-3.0, NAN], [-1.0, -0.5]], dtype=torch.float64)
RATIO = [[2.0, 4.0], [0.5, 1.0], [1.0, 5.0]]
SAMPLER = OLD - torch.tensor(RATIO, dtype=torch.float64).log()
MASK = torch.tensor([[True, True], [True, False], [True, True]])


@pytest.mark.parametrize(
    ("settings", "weights", "cut_share"),
    [
        ({"level": "token", "kind": "truncate", "cap": 3.0}, [[2.0, 3.0], [0.5, 1.0], [1.0, 3.0]], 2 / 5),
        ({"level": "token", "kind": "mask", "cap": 4.5}, [[2.0, 4.0], [0.5, 1.0], [1.0, 0.0]], 1 / 5),
        ({"level": "sequence", "kind": "truncate", "cap": 6.0}, [[6.0], [0.5], [5.0]], 1 / 3),
        ({"level": "sequence", "kind": "mask", "cap": 6.0}, [[0.0], [0.5], [5.0]], 1 / 3),
        ({"level": "sequence", "kind": "mask", "cap": 8.5}, [[8.0], [0.5], [5.0]], 0.0),
    ],
)
def test_weights_by_hand(settings, weights, cut_share):
    correction = CorrectionConfig(**settings)
    found, _ = importance_weights(correction, OLD, SAMPLER, MASK)
    torch.testing.assert_close(found, torch.tensor(weights, dtype=torch.float64))
    counted = [
        w for row, real in zip(weights, MASK.tolist(), strict=True) for w, one in zip(row, real, strict=False) if one
    ]
    squares, mean = sum(w * w for w in counted), sum(counted) / len(counted)
    wanted = {
        "correction/weight_mean": mean,
        "correction/cut_share": cut_share,
        "correction/ess_share": sum(counted) ** 2 / squares / len(counted),
    }
    metrics = correction_metrics(correction, OLD, SAMPLER, MASK, World())
    assert metrics == {name: pytest.approx(value) for name, value in wanted.items()}
    unknown = torch.where(torch.tensor([[True], [False], [True]]), OLD, NAN)  # by a step that was not finite
    assert correction_metrics(correction, unknown, SAMPLER, MASK, World())["correction/weight_mean"] > mean


def test_a_weight_that_no_number_holds_is_bounded_as_verl_bounds_it():
    far = CorrectionConfig(level="sequence", cap=1e12)
    found, _ = importance_weights(far, OLD + 400.0, SAMPLER, MASK)
    assert found[0].item() == pytest.approx(math.exp(20.0))


def test_values_stay_to_the_bit_and_gradients_are_multiplied():
    logp_BT = torch.tensor([[-0.1, 1e30], [-3.7, -1e-9]], requires_grad=True)
    weight = torch.tensor([[0.3, 0.0], [2.0, 1.0]], dtype=torch.float64)
    found = with_gradient_times(weight, logp_BT)
    assert torch.equal(found, logp_BT)
    (gradient,) = torch.autograd.grad(found.sum(), logp_BT)
    torch.testing.assert_close(gradient, weight.float())


def tabular(num_tokens: int = 3, length: int = 2, seed: int = 0) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Every response of two policies: a batch with its log-probabilities, and how likely each policy draws it."""
    generator = torch.Generator().manual_seed(seed)
    old_V, sampler_V = (torch.randn(num_tokens, generator=generator, dtype=torch.float64) for _ in range(2))
    responses = torch.tensor(list(itertools.product(range(num_tokens), repeat=length)))
    old_BT, sampler_BT = old_V.log_softmax(0)[responses], sampler_V.log_softmax(0)[responses]
    num_rows = len(responses)
    batch = Batch(
        old_logp_BT=old_BT,
        mask_BT=torch.ones_like(responses, dtype=torch.bool),
        advantage_B=torch.randn(num_rows, generator=generator, dtype=torch.float64),
        group_B=torch.zeros(num_rows, dtype=torch.long),
        group_size_B=torch.full((num_rows,), num_rows),
        max_new_tokens=length,
        sampler_logp_BT=sampler_BT,
    )
    return batch, old_BT.sum(dim=1).exp(), sampler_BT.sum(dim=1).exp()


@pytest.mark.parametrize("name", ["quatro", "grpo", "gspo", "gmpo", "gpg", "cispo"])
def test_weights_of_responses_take_the_bias_away_and_those_of_tokens_a_part_of_it(tiny_config, name):
    """All responses enumerated: the sampler's mean of a row's weighted gradient against the policy's plain one."""
    batch, policy_B, sampler_B = tabular()
    settings = ["kl.beta=0", *(["method.aggregate=seq-mean-token-sum"] if name not in ("quatro", "gmpo") else [])]

    def gradient(drawn_B: torch.Tensor, *more: str) -> torch.Tensor:
        """The mean over the responses by how likely they are drawn, of the gradient by the logits of a token."""
        objective = make_objective(tiny_config(*settings, *more, method=name))
        logp_BT = (batch.old_logp_BT + 0.01).requires_grad_()
        (term,) = objective(logp_BT, batch, None).terms
        return torch.autograd.grad((term.value * drawn_B).sum(), logp_BT)[0]

    truth = gradient(policy_B)
    far = "rollout.correction.cap=1000"
    unbiased = gradient(sampler_B, "rollout.correction.level=sequence", far)
    torch.testing.assert_close(unbiased, truth, rtol=1e-9, atol=1e-12)
    plain, token = gradient(sampler_B), gradient(sampler_B, "rollout.correction.level=token", far)
    assert (plain - truth).norm() > 0.05 * truth.norm()
    assert 1e-3 * truth.norm() < (token - truth).norm()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_row_without_a_loss_is_as_if_it_were_not_there(tiny_config, ragged_rows, name):
    """For every method, with the KL to the reference and the entropy bonus, and in any micro-batch."""
    config = tiny_config("kl.beta=0.1", "entropy_coefficient=0.1", method=name)
    objective = make_objective(config)
    learns_B = torch.arange(12) % 3 != 1
    logp_BT = (ragged_rows.batch.old_logp_BT.nan_to_num(nan=0.0) + 0.1).requires_grad_()

    def gradient(index: torch.Tensor, has_loss_B: torch.Tensor | None) -> torch.Tensor:
        part = ragged_rows.with_batch(has_loss_B=has_loss_B).select(index).batch
        width = part.mask_BT.shape[1]
        terms = objective(logp_BT[index, :width], part, -logp_BT[index, :width]).terms
        assert len(terms) == 3
        return torch.autograd.grad(ops.total_loss(terms), logp_BT)[0]

    kept = gradient(torch.nonzero(learns_B).squeeze(-1), None)
    torch.testing.assert_close(gradient(torch.arange(12), learns_B), kept, rtol=1e-5, atol=1e-7)
    none = gradient(torch.arange(12), torch.zeros(12, dtype=torch.bool))
    assert bool((none == 0).all())
    assert bool((gradient(torch.arange(12), None)[~learns_B] != 0).any())


def test_the_same_rows_are_selected_of_every_part_of_a_batch(ragged_rows):
    index = torch.tensor([7, 2])
    whole = ragged_rows.with_batch(sampler_logp_BT=ragged_rows.batch.old_logp_BT - 1, has_loss_B=torch.arange(12) > 5)
    part = whole.select(index).batch
    assert part.has_loss_B is not None
    assert part.has_loss_B.tolist() == [True, False]
    torch.testing.assert_close(part.sampler_logp_BT, part.old_logp_BT - 1, equal_nan=True)
    assert replace(part, has_loss_B=None).max_new_tokens == 6
