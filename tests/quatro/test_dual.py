"""The dual's identities, against closed forms and an independent minimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar

from quatro.dual import solve_dual

DELTAS = st.floats(1e-6, 3.0)
REWARDS = st.lists(st.floats(-50, 50, allow_nan=False), min_size=2, max_size=16)


@given(REWARDS, DELTAS)
def test_tilted_rollouts_sit_on_the_trust_region(rewards, delta):
    dual = solve_dual(np.array([rewards]), delta)
    if dual.num_floored:
        return
    weight_N = np.exp(dual.advantage[0])
    assert math.isclose(weight_N.mean(), 1.0, abs_tol=1e-9)
    assert math.isclose((weight_N * dual.advantage[0]).mean(), dual.delta_effective[0], rel_tol=1e-9, abs_tol=1e-12)
    assert dual.delta_effective[0] <= delta
    assert dual.kl[0] == pytest.approx(dual.delta_effective[0], rel=1e-9, abs=1e-15)


@given(REWARDS, DELTAS)
@example([0.0, 5e-324], 0.25)
@example([0.0, 5e-324], 1.0)
def test_advantage_is_the_papers_formula(rewards, delta):
    dual = solve_dual(np.array([rewards]), delta, advantage_floor=None)
    if dual.status[0] not in ("interior", "capped"):
        assert dual.lam[0] == 0
        assert math.isnan(dual.mu[0])
        return
    if dual.lam[0] < 1e-280:
        # Rewards that differ by 5e-324 have a lambda without digits to divide by, and the advantages of any multiple.
        rewards = [reward * 2.0**700 for reward in rewards]
        multiple = solve_dual(np.array([rewards]), delta, advantage_floor=None)
        np.testing.assert_allclose(multiple.advantage, dual.advantage, rtol=1e-12)
        dual = multiple
    lam, mu = dual.lam[0], dual.mu[0]
    scale = max(1.0, np.abs(rewards).max() / lam)
    np.testing.assert_allclose((np.array(rewards) - mu) / lam - 1.0, dual.advantage[0], atol=1e-12 * scale)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=10), st.floats(1e-4, 1.0), st.randoms(use_true_random=False))
def test_a_shuffled_group_gives_shuffled_advantages(rewards, delta, random):
    order = list(range(len(rewards)))
    random.shuffle(order)
    one = solve_dual(np.array([rewards]), delta).advantage[0]
    other = solve_dual(np.array([[rewards[i] for i in order]]), delta).advantage[0]
    np.testing.assert_allclose(other, one[order], rtol=1e-9, atol=1e-9)


@given(st.floats(-3, 3), st.floats(0.1, 10))
def test_advantages_ignore_shift_and_scale_of_rewards(shift, scale):
    rewards = np.array([[0.0, 0.1, 0.5, 1.0, 0.3]])
    one, other = solve_dual(rewards, 0.05), solve_dual(rewards * scale + shift, 0.05)
    np.testing.assert_allclose(other.advantage, one.advantage, rtol=1e-7)
    np.testing.assert_allclose(other.lam, one.lam * scale, rtol=1e-7)


@pytest.mark.parametrize("delta", [0.1, 0.01, 0.001])
def test_lambda_minimises_the_dual_objective(delta):
    reward_N = np.random.default_rng(0).normal(size=8)

    def objective(log_lam: float) -> float:
        lam = math.exp(log_lam)
        return lam * (delta + math.log(np.mean(np.exp(reward_N / lam))))

    found = minimize_scalar(objective, bounds=(-3, 6), method="bounded", options={"xatol": 1e-10})
    dual = solve_dual(reward_N[None], delta)
    # A minimiser only sees f to 1e-16, which is lam to 1e-6 or so: this is why the root is solved instead.
    assert dual.lam[0] == pytest.approx(math.exp(found.x), rel=1e-4)
    assert dual.mu[0] + dual.lam[0] * (1 + delta) == pytest.approx(found.fun, rel=1e-9)


@pytest.mark.parametrize("num_correct", range(1, 8))
@pytest.mark.parametrize("delta", [0.1, 0.01, 0.001])
def test_binary_rewards_have_a_closed_form(num_correct, delta):
    n = 8
    rewards = [1.0] * num_correct + [0.0] * (n - num_correct)

    def kl(share: float) -> float:
        return share * math.log(share * n / num_correct) + (1 - share) * math.log((1 - share) * n / (n - num_correct))

    share = brentq(lambda s: kl(s) - delta, num_correct / n, 1 - 1e-12, xtol=1e-15)
    winner, loser = math.log(share * n / num_correct), math.log((1 - share) * n / (n - num_correct))
    dual = solve_dual(np.array([rewards]), delta)
    assert dual.advantage[0, 0] == pytest.approx(winner, rel=1e-8)
    assert dual.advantage[0, -1] == pytest.approx(loser, rel=1e-8)
    assert dual.lam[0] == pytest.approx(1 / (winner - loser), rel=1e-8)


def test_published_lambdas_of_eight_binary_rollouts():
    """lam* for c = 1..7 correct of 8, to three decimals."""
    table = {
        0.1: [0.934, 1.081, 1.111, 1.060, 0.936, 0.727, 0.361],
        0.01: [2.569, 3.211, 3.489, 3.518, 3.322, 2.875, 2.064],
        0.001: [7.638, 9.843, 10.903, 11.175, 10.736, 9.510, 7.138],
    }
    reward_QN = (np.arange(8) < np.arange(1, 8)[:, None]).astype(float)
    for delta, lams in table.items():
        np.testing.assert_allclose(solve_dual(reward_QN, delta).lam, lams, atol=5.01e-4)


def test_small_radius_is_grpos_advantage_scaled():
    reward_N = np.random.default_rng(1).normal(size=8)
    delta = 1e-8
    expected = math.sqrt(2 * delta) * (reward_N - reward_N.mean()) / reward_N.std()
    np.testing.assert_allclose(solve_dual(reward_N[None], delta).advantage[0], expected, rtol=1e-3)


def test_uniform_rewards_leave_the_policy_alone():
    dual = solve_dual(np.full((1, 8), 0.7, dtype=np.float32), 0.01)
    assert dual.status == ["degenerate"]
    assert (dual.advantage == 0).all()
    assert dual.lam[0] == 0
    assert solve_dual(np.array([[3.0]]), 0.01).status == ["degenerate"]


def test_a_radius_beyond_the_largest_kl_is_capped_and_never_infinite():
    rewards = np.array([[1.0] * 15 + [0.0]])  # log(16/15) = .0645 < .1
    dual = solve_dual(rewards, 0.1)
    assert dual.status == ["capped"]
    assert dual.delta_effective[0] == pytest.approx(0.95 * math.log(16 / 15))
    assert dual.kl[0] == pytest.approx(dual.delta_effective[0], rel=1e-9)
    assert dual.advantage[0, -1] == pytest.approx(-4.7, abs=0.1)

    exact = solve_dual(rewards, 0.1, boundary_cap=None, advantage_floor=None)
    assert exact.status == ["boundary"]
    assert exact.advantage[0, -1] == -math.inf
    assert exact.kl[0] == pytest.approx(math.log(16 / 15))
    assert math.isnan(exact.mu[0])
    floored = solve_dual(rewards, 0.1, boundary_cap=None)
    assert floored.advantage[0, -1] == -20
    assert floored.num_floored == 1


def test_near_ties_are_floored_and_counted():
    dual = solve_dual(np.array([[1.0, 1.0 - 1e-9, 0.2, 0.0]]), 0.7)
    assert dual.num_floored == 2
    assert dual.advantage[0].tolist()[2:] == [-20.0, -20.0]
    assert dual.kl[0] == pytest.approx(0.7, rel=1e-9)


def test_padding_changes_nothing():
    rewards = np.array([[1.0, 0.0, 0.5, 1e9], [0.2, math.nan, math.inf, -1e9]])
    mask = np.array([[True, True, True, False], [True, False, False, False]])
    dual = solve_dual(rewards, 0.01, mask_QN=mask)
    np.testing.assert_allclose(dual.advantage[0, :3], solve_dual(rewards[:1, :3], 0.01).advantage[0], rtol=1e-12)
    assert dual.advantage[0, 3] == 0
    assert dual.status == ["interior", "degenerate"]
    assert np.isfinite(dual.advantage).all()


def test_tensors_come_back_as_tensors():
    dual = solve_dual(torch.tensor([[1.0, 0.0, 0.0]]), 0.01)
    assert dual.advantage.dtype == torch.float64
    assert isinstance(dual.lam, torch.Tensor)


@pytest.mark.parametrize("delta", [0.0, -1.0, math.nan, math.inf])
def test_a_radius_must_be_positive_and_finite(delta):
    with pytest.raises(ValueError, match="delta"):
        solve_dual(np.array([[1.0, 0.0]]), delta)


def test_a_reward_that_is_not_finite_names_its_prompt():
    with pytest.raises(ValueError, match="rollout 1 of prompt 1"):
        solve_dual(np.array([[1.0, 0.0], [0.0, math.nan]]), 0.1)
