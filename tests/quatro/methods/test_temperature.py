"""QUATRO with other temperatures: what each promises, and where it meets the dual."""

from __future__ import annotations

import math

import pytest
import torch

from quatro.config import load_config
from quatro.dual import solve_dual
from quatro.registry import METHODS

REWARDS = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0], [0.05, 0.02, 0.02, 0.02], [1, 1, 1, 1]], dtype=torch.float64)


def advantages(temperature: str, rewards: torch.Tensor = REWARDS, **fields: object):
    method = METHODS["quatro"](temperature=temperature, **fields)
    found = method.advantages(rewards.flatten(), torch.arange(len(rewards)).repeat_interleave(rewards.shape[1]))
    return found.value_B.view_as(rewards), found.metrics


def kl_of(advantage_QN: torch.Tensor) -> torch.Tensor:
    return (advantage_QN * advantage_QN.exp()).mean(dim=1)


def test_a_fixed_temperature_is_the_softmax_at_tau():
    found, metrics = advantages("fixed", tau=0.5)
    expected = ((REWARDS / 0.5).softmax(dim=1) * 4).log()
    expected[3] = 0.0
    torch.testing.assert_close(found, expected)
    assert metrics["dual/lam_min"] == metrics["dual/lam_max"] == 0.5
    assert metrics["dual/kl_mean"] == pytest.approx(kl_of(found)[:3].mean().item())
    assert metrics["dual/degenerate_share"] == 0.25


@pytest.mark.parametrize("delta", [0.3, 0.1, 0.01, 1e-4])
def test_one_temperature_for_the_batch_keeps_delta_on_average(delta):
    found, metrics = advantages("batch", delta=delta)
    assert kl_of(found)[:3].mean().item() == pytest.approx(delta, rel=1e-9)
    assert metrics["dual/lam_min"] == pytest.approx(metrics["dual/lam_max"], rel=1e-14)
    assert kl_of(found)[2] < 1e-2 * kl_of(found)[0]  # .02 against .05 is little on this scale; the dual spends delta


def test_one_temperature_for_one_prompt_is_its_dual():
    for row in (REWARDS[:1], REWARDS[1:2], 1000 * REWARDS[2:3] - 7):
        found, metrics = advantages("batch", row, delta=0.05)
        dual = solve_dual(row, 0.05)
        torch.testing.assert_close(found, dual.advantage, rtol=1e-9, atol=1e-11)
        assert metrics["dual/lam_mean"] == pytest.approx(dual.lam.item(), rel=1e-9)
        assert metrics["dual/mu_mean"] == pytest.approx(dual.mu.item(), rel=1e-9)


def test_a_delta_that_no_prompt_allows_is_capped():
    found, _ = advantages("batch", REWARDS[:1], delta=5.0, boundary_cap=0.95)
    assert kl_of(found).item() == pytest.approx(0.95 * math.log(4), rel=1e-9)
    assert advantages("batch", torch.ones(2, 4))[0].abs().max() == 0


def test_the_z_score_is_the_dual_at_a_small_delta():
    found, _ = advantages("zscore", delta=0.02)
    for row, reward in zip(found, REWARDS[:3], strict=False):
        z = (reward - reward.mean()) / reward.std(unbiased=False)
        torch.testing.assert_close(row, math.sqrt(0.04) * z)
    tiny = [advantages(kind, delta=1e-9)[0] for kind in ("zscore", "dual")]
    torch.testing.assert_close(tiny[0], tiny[1], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("temperature", ["batch", "fixed", "zscore"])
def test_groups_may_be_ragged_and_rows_in_any_order(temperature):
    fields = {"tau": 0.7} if temperature == "fixed" else {}
    method = METHODS["quatro"](temperature=temperature, **fields)
    reward_B = torch.tensor([1, 0, 0.3, 0, 1, 0.5, 2.0], dtype=torch.float64)
    group_B = torch.tensor([0, 1, 0, 0, 1, 0, 2])
    order = torch.tensor([4, 2, 6, 0, 5, 1, 3])
    one = method.advantages(reward_B, group_B).value_B
    torch.testing.assert_close(method.advantages(reward_B[order], group_B[order]).value_B, one[order])
    assert one[6] == 0
    if temperature != "batch":  # a prompt alone is what it is among others
        alone = method.advantages(reward_B[[1, 4]], torch.zeros(2)).value_B
        torch.testing.assert_close(one[[1, 4]], alone)


def test_a_low_advantage_is_raised_to_the_floor():
    found, metrics = advantages("fixed", tau=0.01)
    assert found.min() == -20
    assert metrics["dual/floored_rows"] == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["method.temperature=fixed"], "temperature fixed needs tau: set method.tau"),
        (["method.tau=1"], "temperature dual does not read tau"),
        (["method.delta_schedule=target-kl"], "docs/methods.md has a method of your own, Steered"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        load_config("quickstart", overrides=settings)


def test_a_run_that_was_begun_when_a_radius_could_be_steered_is_read():
    block = {"delta": 0.1, "delta_schedule": "constant", "delta_target": None, "delta_bounds": None}
    assert METHODS["quatro"](**block) == METHODS["quatro"](delta=0.1)
    with pytest.raises(ValueError, match="delta_schedule"):
        METHODS["quatro"](**block | {"delta_schedule": "target-kl"})
