"""Taking a pass back: the realised KL fits the budget, on the straight line that the pass went."""

import pytest
import torch

from quatro.loop.trust_region import AIM, ENOUGH, KlBudget, _crossing
from quatro.policy.loading import load_model
from quatro.policy.torch_policy import LocalPolicy


@pytest.fixture
def policy(tiny_config):
    config = tiny_config("kl.beta=0")
    return LocalPolicy(load_model(config.model, torch.float32, "cpu"), config)


@pytest.fixture
def rows(policy, ragged_rows):
    """As drawn from ``policy``."""
    return ragged_rows.with_batch(old_logp_BT=policy.score(ragged_rows).logp_BT)


def weights(policy):
    return [weight.clone() for _, weight in policy.named_weights()]


def move(policy, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _, weight in policy.named_weights():
        weight.add_(torch.randn(weight.shape, generator=generator), alpha=size)


def realised_kl(policy, rows):
    """KL(pi_new || pi_old) = E_old[s log s], the term 1 - s of mean 0 added row by row."""
    total = 0.0
    new_BT = policy.score(rows).logp_BT
    for i in range(len(rows)):
        real = rows.batch.mask_BT[i]
        l = (new_BT[i][real].double() - rows.batch.old_logp_BT[i][real].double()).sum()
        total += float(l.exp() * l + 1 - l.exp())
    return total / len(rows)


def share_of_line(before, after, now):
    """The share at which ``now`` lies between ``before`` and ``after``, and how far off the line at most."""
    flat = [torch.cat([tensor.flatten() for tensor in one]).double() for one in (before, after, now)]
    line, moved = flat[1] - flat[0], flat[2] - flat[0]
    share = float(moved @ line / (line @ line))
    return share, float((moved - share * line).abs().max())


def test_a_pass_within_the_budget_is_left_alone_and_another_may_follow(policy, rows):
    budget = KlBudget(policy, 1e6)
    move(policy, 0.01)
    after = weights(policy)
    assert not budget.is_spent(rows)
    assert all(map(torch.equal, weights(policy), after))
    assert budget.metrics == {"inner/kl_checks": 1, "inner/backtrack": 1, "inner/budget_reached": 0}


def test_a_pass_that_ends_near_the_budget_is_the_last_and_stays(policy, rows):
    before = weights(policy)
    move(policy, 0.01)
    after, kl = weights(policy), realised_kl(policy, rows)
    for (_, weight), old in zip(policy.named_weights(), before, strict=True):
        weight.copy_(old)
    budget = KlBudget(policy, kl / 0.9)
    move(policy, 0.01)
    assert budget.is_spent(rows)
    assert all(map(torch.equal, weights(policy), after))
    assert budget.metrics["inner/budget_reached"] == 1
    assert budget.metrics["inner/backtrack"] == 1


@pytest.mark.parametrize("radius", [1e-5, 1e-3, 0.1])
@pytest.mark.parametrize("size", [0.02, 0.1])
def test_a_pass_that_overshoots_is_taken_back_to_the_budget_along_its_line(policy, rows, radius, size):
    before = weights(policy)
    budget = KlBudget(policy, radius)
    move(policy, size)
    after = weights(policy)
    assert realised_kl(policy, rows) > 2 * radius
    assert budget.is_spent(rows)
    assert ENOUGH * radius <= realised_kl(policy, rows) <= radius
    share, off_line = share_of_line(before, after, weights(policy))
    assert budget.metrics["inner/backtrack"] == pytest.approx(share, rel=1e-3)
    assert 0 < share < 0.8
    assert off_line < 1e-6


def test_only_the_pass_that_overshoots_is_taken_back(policy, rows):
    move(policy, 0.003)
    radius = realised_kl(policy, rows) / 0.3
    move(policy, -0.003)
    budget = KlBudget(policy, radius)
    move(policy, 0.003)
    assert not budget.is_spent(rows)
    between = weights(policy)
    move(policy, 0.05, seed=1)
    after = weights(policy)
    assert budget.is_spent(rows)
    assert ENOUGH * radius <= realised_kl(policy, rows) <= radius
    share, off_line = share_of_line(between, after, weights(policy))
    assert 0 < share < 0.5
    assert off_line < 1e-6


def test_where_the_tries_end_the_furthest_that_fits_is_kept(policy, rows, monkeypatch):
    kls = iter([4.0, 0.5, 2.0])  # after the pass, at sqrt(AIM / 4) of it, and beyond that
    monkeypatch.setattr("quatro.loop.trust_region.MAX_TRIES", 2)
    monkeypatch.setattr(KlBudget, "_measure", lambda self, rows: next(kls))
    before = weights(policy)
    budget = KlBudget(policy, 1.0)
    move(policy, 0.1)
    after = weights(policy)
    assert budget.is_spent(rows)
    share, off_line = share_of_line(before, after, weights(policy))
    assert share == pytest.approx((AIM / 4.0) ** 0.5, rel=1e-4)
    assert budget.metrics["inner/backtrack"] == pytest.approx(share, rel=1e-4)
    assert off_line < 1e-6


def test_weights_that_are_no_numbers_are_taken_back_whole(policy, rows):
    before = weights(policy)
    budget = KlBudget(policy, 0.1)
    next(iter(policy.named_weights()))[1].fill_(torch.nan)
    assert budget.is_spent(rows)
    assert all(map(torch.equal, weights(policy), before))
    assert budget.metrics["inner/backtrack"] == 0


def test_the_crossing_is_exact_where_kl_is_quadratic_and_halfway_where_nothing_is_known():
    assert _crossing({0.0: 0.0, 1.0: 4.0}, 1.0) == 0.5
    assert _crossing({0.0: -1e-18, 1.0: 4.0}, AIM) == pytest.approx(AIM**0.5 / 2)
    assert _crossing({0.0: 0.04, 1.0: 0.64}, 0.25) == pytest.approx(0.5)
    # Far beyond the quadratic range the known shares below say more: KL 0.01 at share 0.001 is 0.09 at 0.003.
    assert _crossing({0.0: 0.0, 1.0: 1e6, 0.001: 0.01}, 0.09) == pytest.approx(0.003)
    assert _crossing({0.0: 0.0, 1.0: float("nan")}, 1.0) == 0.5
    assert _crossing({0.0: 0.0, 1.0: float("nan"), 0.5: float("nan")}, 1.0) == 0.25
    assert _crossing({0.0: 0.0, 1.0: 4.0, 0.5: 0.0}, 1.0) == 0.75  # nothing moved so far
