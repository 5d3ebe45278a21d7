"""Verdicts by rule, and the intervals that they rest on."""

import math

import numpy as np
import pytest

from evals.intervals import mean_over_seeds, mean_over_seeds_and_problems
from experiments.replication.rules import (
    GREATER,
    LESS,
    Comparison,
    Estimate,
    Finding,
    Unit,
    Verdict,
    estimate_of,
    exact,
)

UNIT = Unit(2)


def judged(low, high, region, *, negligible=0.0):
    return Comparison("x", Estimate((low + high) / 2, low, high, 3, 200), region, UNIT, negligible).verdict


@pytest.mark.parametrize(
    ("low", "high", "region", "negligible", "verdict"),
    [
        (0.1, 0.3, GREATER, 0.0, "holds"),
        (-0.1, 0.3, GREATER, 0.0, "undecided"),
        (-0.3, -0.1, GREATER, 0.0, "does not"),
        (-0.3, -0.1, LESS, 0.0, "holds"),
        (0.1, 0.3, LESS, 0.0, "does not"),
        (-0.01, 0.015, GREATER, 0.02, "does not"),  # shown to be no difference worth the name
        (-0.01, 0.025, GREATER, 0.02, "undecided"),
        (-0.5, 0.015, GREATER, 0.02, "undecided"),
        (0.001, 0.015, GREATER, 0.02, "holds"),  # small, but there
        (-0.01, 0.5, (-0.02, math.inf), 0.0, "holds"),  # not lower by more than .02
        (-0.03, 0.5, (-0.02, math.inf), 0.0, "undecided"),
        (-0.09, -0.03, (-0.02, math.inf), 0.0, "does not"),
        (-0.01, 0.01, (-0.02, 0.02), 0.0, "holds"),
        (0.03, 0.05, (-0.02, 0.02), 0.0, "does not"),
        (0.01, 0.05, (-0.02, 0.02), 0.0, "undecided"),
    ],
)
def test_the_interval_decides(low, high, region, negligible, verdict):
    assert judged(low, high, region, negligible=negligible) == verdict


def test_what_was_not_run_or_has_one_seed_is_undecided():
    assert Comparison("x", None, GREATER, UNIT).verdict is Verdict.undecided
    assert Comparison("x", estimate_of(np.full((1, 50), 9.0)), GREATER, UNIT).verdict is Verdict.undecided


@pytest.mark.parametrize(("value", "verdict"), [(0.1, "holds"), (0.0, "does not"), (-0.1, "does not")])
def test_an_exact_number_is_never_undecided(value, verdict):
    assert Comparison("x", exact(value), GREATER, UNIT).verdict == verdict


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [("++", "holds"), ("+?", "undecided"), ("+-", "does not"), ("?-", "does not"), ("", "undecided")],
)
def test_a_claim_holds_if_every_comparison_does_and_falls_with_one(signs, verdict):
    ends = {"+": (0.1, 0.2), "-": (-0.2, -0.1), "?": (-0.1, 0.1)}
    comparisons = tuple(
        Comparison(sign, Estimate(0.0, *ends[sign], num_seeds=3, num_problems=1), GREATER, UNIT) for sign in signs
    )
    assert Finding("a", "claim", "where", comparisons).verdict == verdict


def test_without_problems_the_interval_is_students_over_seeds():
    values = [0.1, 0.4, 0.2]
    assert mean_over_seeds_and_problems(np.array(values)[:, None]) == mean_over_seeds(values)


def test_seeds_that_agree_leave_students_interval_over_problems():
    row = np.array([0.0, 1.0, 4.0, 2.0, 3.0])
    found = mean_over_seeds_and_problems(np.stack([row, row, row]))
    over_problems = mean_over_seeds(row.tolist())
    assert (found.low, found.high) == pytest.approx((over_problems.low, over_problems.high))


def test_problems_that_agree_leave_students_interval_over_seeds():
    column = np.array([[0.0], [1.0], [4.0]])
    found = mean_over_seeds_and_problems(np.repeat(column, 40, axis=1))
    over_seeds = mean_over_seeds(column[:, 0].tolist())
    assert (found.low, found.high) == pytest.approx((over_seeds.low, over_seeds.high))


@pytest.mark.parametrize("spreads", [(0.0, 1.0, 1.0), (0.3, 1.0, 1.0), (1.0, 0.1, 0.1)])
@pytest.mark.parametrize("num_seeds", [2, 3])
def test_the_interval_covers_the_truth_of_seeds_and_problems(num_seeds, spreads):
    rng = np.random.default_rng(0)
    seed_std, problem_std, rest_std = spreads
    num_covered = 0
    for _ in range(400):
        value_SP = seed_std * rng.normal(size=(num_seeds, 1)) + problem_std * rng.normal(size=(1, 50))
        found = mean_over_seeds_and_problems(value_SP + rest_std * rng.normal(size=(num_seeds, 50)))
        num_covered += found.low <= 0.0 <= found.high
    assert 0.90 <= num_covered / 400 <= 0.99  # seen: .92 to .97; resampling two seeds covers .7


@pytest.mark.parametrize("table", [np.zeros((0, 3)), np.zeros(3), np.array([[math.nan, 1.0]])])
def test_a_table_without_numbers_is_refused(table):
    with pytest.raises(ValueError, match="finite numbers by seed and problem"):
        mean_over_seeds_and_problems(table)


def test_ratios_are_shown_as_factors_and_minus_as_minus():
    assert Unit(2, is_ratio=True).text(math.log(4)) == "4.00"
    assert Unit(1, scale=100.0).text(-0.025) == "−2.5"
