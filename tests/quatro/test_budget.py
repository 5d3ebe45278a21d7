"""The budget of an iteration: conditions of optimality, limits, and what centring does to the expected gradient."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

from quatro.dual import solve_budget, solve_dual
from quatro.methods.budgeted import Budgeted
from quatro.registry import METHODS

RNG = np.random.default_rng(0)
SCALE = np.exp(RNG.normal(size=(40, 1)))
REWARDS = SCALE * RNG.random((40, 8))
REWARDS[5] = 0.5
ENOUGH = np.random.default_rng(1).random((40, 8)) < 0.7
ENOUGH[:, 0] = True


def gains(dual) -> float:
    """sum_q of E[R] under the tilted rollouts."""
    return float((np.exp(dual.advantage) * REWARDS).mean(axis=1).sum())


@pytest.mark.parametrize("delta", [0.1, 0.001])
def test_spread_1_is_the_dual_bit_for_bit(delta):
    found, lam_0 = solve_budget(REWARDS, delta, 1.0, mask_QN=ENOUGH)
    assert lam_0 == 0
    np.testing.assert_array_equal(found.advantage, solve_dual(REWARDS, delta, mask_QN=ENOUGH).advantage)


@pytest.mark.parametrize("spread", [1.2, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("delta", [0.1, 0.001])
def test_the_conditions_of_optimality_hold(delta, spread):
    found, lam_0 = solve_budget(REWARDS, delta, spread, mask_QN=ENOUGH)
    mixed_Q = np.array(found.status) != "degenerate"
    assert found.kl[mixed_Q].mean() == pytest.approx(delta, rel=1e-11)
    cap_Q = solve_dual(REWARDS, spread * delta, mask_QN=ENOUGH).lam if spread < math.inf else np.zeros(40)
    np.testing.assert_allclose(found.lam[mixed_Q], np.maximum(lam_0, cap_Q)[mixed_Q], rtol=1e-11)
    assert (np.array(found.kl) <= spread * delta * (1 + 1e-11)).all()
    np.testing.assert_allclose(found.kl, found.delta_effective, rtol=1e-9, atol=1e-15)
    if 1 < spread < 2:
        assert 0 < (cap_Q > lam_0)[mixed_Q].mean() < 1  # the case has prompts of both kinds


def test_no_other_radii_gain_more():
    delta, spread = 0.05, 2.0
    best = gains(solve_budget(REWARDS, delta, spread)[0])
    assert best > gains(solve_dual(REWARDS, delta)) * (1 + 1e-4)
    rng, mixed_Q = np.random.default_rng(2), np.arange(40) != 5
    for _ in range(200):
        share_Q = np.where(mixed_Q, rng.random(40), 0.0)
        share_Q *= mixed_Q.sum() / share_Q.sum()
        radius_Q = delta * np.minimum(share_Q, spread)
        others = [solve_dual(REWARDS[q : q + 1], max(radius_Q[q], 1e-9)).advantage[0] for q in range(40)]
        assert float((np.exp(others) * REWARDS).mean(axis=1).sum()) < best


def test_the_scale_of_all_rewards_changes_no_advantage():
    one, other = (solve_budget(factor * REWARDS - 3.0 * factor, 0.01, 1.5) for factor in (1.0, 1e6))
    np.testing.assert_allclose(one[0].advantage, other[0].advantage, rtol=1e-8, atol=1e-10)
    assert other[1] == pytest.approx(1e6 * one[1], rel=1e-9)


def test_a_budget_that_cannot_be_spent_leaves_every_prompt_at_its_cap():
    found, lam_0 = solve_budget(REWARDS, 50.0, 2.0)
    assert lam_0 == 0
    np.testing.assert_array_equal(found.advantage, solve_dual(REWARDS, 100.0).advantage)
    for spread in (2.0, math.inf):
        equal, lam_0 = solve_budget(np.ones((3, 4)), 0.1, spread)
        assert (lam_0, equal.status) == (0, ["degenerate"] * 3)
        assert not equal.advantage.any()


def test_spread_below_1_is_refused():
    with pytest.raises(ValueError, match=r"at least 1; found 0\.5"):
        solve_budget(REWARDS, 0.1, 0.5)


@pytest.mark.parametrize("written", ["inf", ".inf", math.inf])
def test_infinity_may_be_written_as_yaml_has_it(written):
    assert METHODS["budgeted"](spread=written).spread == math.inf


@pytest.mark.parametrize(("name", "rewards"), [("0/1", [1.0, 0.0, 0.0]), ("partial credit", [1.0, 0.3, 0.0])])
@pytest.mark.parametrize("delta", [0.1, 0.01])
def test_centring_keeps_the_direction_of_the_expected_gradient(name, rewards, delta):
    """Enumerated: all groups of 4 responses that a policy over three may draw, weighted by their chance."""
    probability, reward = np.array([0.5, 0.3, 0.2]), torch.tensor(rewards, dtype=torch.float64)
    drawn = np.array(list(itertools.product(range(3), repeat=4)))
    chance_Q = probability[drawn].prod(axis=1)
    slope_QN3 = np.eye(3)[drawn] - probability  # of log pi by the logits
    group_B = torch.arange(len(drawn)).repeat_interleave(4)
    gradients = []
    for centred in (False, True):
        method = METHODS["quatro"](delta=delta, centred=centred)
        value_QN = method.advantages(reward[drawn.ravel()], group_B).value_B.reshape(drawn.shape).numpy()
        assert (abs(value_QN.mean(axis=1)) < 1e-12).all() == centred
        gradients.append((chance_Q[:, None, None] * value_QN[..., None] * slope_QN3).sum(axis=(0, 1)))
    plain, other = gradients
    cosine = plain @ other / np.linalg.norm(plain) / np.linalg.norm(other)
    assert cosine > 0.99999
    assert np.linalg.norm(other) / np.linalg.norm(plain) == pytest.approx(1.0, abs=0.02)


def test_an_infinite_spread_is_kept_in_json_which_has_no_infinity():
    method = Budgeted(spread=math.inf)
    written = json.loads(json.dumps(method.model_dump(mode="json"), allow_nan=False))
    assert Budgeted.model_validate(written) == method
