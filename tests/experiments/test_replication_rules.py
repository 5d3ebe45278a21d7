"""Verdicts by rule, and the intervals that they rest on."""

import csv
import io
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import sem, t

from evals.intervals import SeedSpread, half_width, mean_over_seeds_and_problems
from experiments.replication import cells
from experiments.replication.markdown import claims_table, comparisons_csv, filled
from experiments.replication.results import Measure
from experiments.replication.rules import (
    GREATER,
    LESS,
    Comparison,
    Estimate,
    Finding,
    Sisters,
    Unit,
    Verdict,
    estimate_of,
    exact,
    pooled_if_many,
    pooled_spread,
    seeds_to_decide,
    spreads,
    with_common_spread,
)

UNIT = Unit(2)


def judged(low, high, region, *, margin=0.0):
    return Comparison("x", Estimate((low + high) / 2, low, high, 3, 200), region, UNIT, margin).verdict


@pytest.mark.parametrize(
    ("low", "high", "region", "margin", "verdict"),
    [
        (0.1, 0.3, GREATER, 0.0, "holds"),
        (-0.1, 0.3, GREATER, 0.0, "undecided"),
        (-0.3, -0.1, GREATER, 0.0, "does not"),
        (-0.3, -0.1, LESS, 0.0, "holds"),
        (0.1, 0.3, LESS, 0.0, "does not"),
        (-0.01, 0.015, GREATER, 0.02, "negligible"),  # shown to be no difference that matters
        (-0.015, -0.01, GREATER, 0.02, "negligible"),
        (-0.05, -0.01, GREATER, 0.02, "undecided"),  # on the wrong side, perhaps by less than the margin
        (-0.05, -0.03, GREATER, 0.02, "does not"),
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
def test_the_interval_decides(low, high, region, margin, verdict):
    assert judged(low, high, region, margin=margin) == verdict


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
        Comparison(sign, Estimate(sum(ends[sign]) / 2, *ends[sign], 3, 1, error=0.0116, freedom=2.0), GREATER, UNIT)
        for sign in signs
    )
    assert Finding("a", "claim", "where", comparisons).verdict == verdict


def test_a_single_comparison_that_does_not_hold_counts_against_their_number():
    """Holm: of eight comparisons one at t = -3 is what chance may give; alone it decides."""
    found = Estimate(-0.3, -0.5, -0.1, 8, 1, error=0.1, freedom=7.0)
    wrong = Comparison("x", found, GREATER, UNIT)
    right = Comparison("y", Estimate(0.3, 0.1, 0.5, 8, 1, error=0.1, freedom=7.0), GREATER, UNIT)
    assert wrong.verdict is Verdict.does_not
    assert wrong.chance_of_error == pytest.approx(0.00998, abs=1e-4)  # Student's t, 7 degrees of freedom
    assert Finding("a", "claim", "where", (wrong, right)).verdict is Verdict.does_not
    assert Finding("a", "claim", "where", (wrong, *[right] * 7)).verdict is Verdict.undecided


def test_a_claim_is_negligible_if_nothing_else_stands_against_it():
    ends = {"+": (0.1, 0.2), "~": (-0.01, 0.01), "?": (-0.1, 0.1)}

    def verdict(signs):
        return Finding(
            "a",
            "claim",
            "where",
            tuple(Comparison(s, Estimate(0.0, *ends[s], 3, 1), GREATER, UNIT, margin=0.02) for s in signs),
        ).verdict

    assert verdict("~~") == verdict("+~") == "negligible"
    assert verdict("~?") == "undecided"


def test_comparisons_of_one_measure_share_their_spread_over_seeds():
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(3, 1)) + 0.1 * rng.normal(size=(3, 20)) for _ in range(6)]
    lucky = np.full((3, 1), 2.0) + 1e-3 * rng.normal(size=(3, 20))  # three seeds that happen to agree
    comparisons = [Comparison("x", estimate_of(one), GREATER, UNIT, 0.0, one, "pass@1") for one in (*tables, lucky)]
    alone = Comparison("y", estimate_of(lucky), GREATER, UNIT, 0.0, lucky, "ucc")
    (found,) = with_common_spread([Finding("a", "claim", "where", (*comparisons, alone))])
    *_, judged_with, judged_alone = found.comparisons
    assert judged_alone.estimate == alone.estimate
    own = judged_with.estimate.own_high - judged_with.estimate.own_low
    assert own == pytest.approx(alone.estimate.high - alone.estimate.low)
    assert judged_with.estimate.high - judged_with.estimate.low > 100 * own
    assert judged_with.estimate.mean == alone.estimate.mean
    assert judged_with.estimate.by_seed == pytest.approx((2.0, 2.0, 2.0), abs=0.01)


def test_a_comparison_is_of_the_kind_that_spreads_most():
    def group(**settings):
        return {0: SimpleNamespace(settings=settings, model="embedded:x@1")}

    def kind(*groups):
        return cells._kind(*groups)

    ours, gspo = group(**cells.quatro("0.1")), group(**cells.baseline("gspo"))
    bare, hot = group(**cells.quatro("0.1", log_ratio="none")), group(**cells.at_lr(cells.baseline("gpg"), "0.001"))
    assert kind(ours, group(**cells.baseline("grpo"))) == cells.OTHERS
    assert kind(ours, gspo) == cells.UNBOUNDED
    assert kind(bare, gspo) == cells.UNSTABILISED
    assert kind(ours, hot) == kind(hot, bare) == cells.HOT


def test_each_comparison_has_its_margin_in_its_unit():
    def comparison(region, unit, margin=0.0):
        return Comparison("x", None, region, unit, margin)

    comparisons = (
        comparison(GREATER, cells.POINTS, 0.006),
        comparison((-0.006, math.inf), cells.POINTS),
        comparison((-math.inf, 0.006), cells.POINTS),
        comparison(cells.within_factor(1 / 1.25, 1.25), cells.FACTOR),
        comparison((-math.inf, 0.05), cells.SHARE),  # the bound is the claim itself
    )
    rows = list(csv.DictReader(io.StringIO(comparisons_csv([Finding("a", "claim", "where", comparisons)]))))
    assert [(row["margin"], row["unit"]) for row in rows] == [
        *[("0.6", "points")] * 3,
        ("1.25", "times"),
        ("", "%"),
    ]


def test_a_line_shows_what_keeps_its_claim_from_holding():
    def claim(*signs):
        ends = {"+": (0.1, 0.2), "?": (-0.1, 0.2), "-": (-0.4, -0.3)}
        estimates = [Estimate(sum(ends[one]) / 2, *ends[one], 9, 1, error=0.1, freedom=2.0) for one in signs]
        found = tuple(Comparison(f"x{one}", it, GREATER, UNIT) for one, it in zip(signs, estimates, strict=True))
        return claims_table([Finding("a", "claim", "where", found)])[-1]

    assert "| x+: +0.15 [+0.10, +0.20] (9 seeds) | **holds** (2/2) |" in claim("+", "+")
    assert "| x?: +0.05 [-0.10, +0.20]".replace("-", "−") in claim("+", "?")
    assert "| x-: −0.35" in claim("+", "?", "-")


def test_a_sentence_stands_only_with_the_verdicts_it_names(tmp_path):
    (tmp_path / "page.md").write_text("<a1 holds> It is $a1_1.\n<a1 holds, b1 does not> Both.\n<c1 holds> No.\n")
    found = tuple(Comparison("x", Estimate(value, value, value, 3, 1), GREATER, UNIT) for value in (1.0, -1.0))
    findings = [Finding("a1", "", "", found[:1]), Finding("b1", "", "", (replace(found[1], estimate=exact(-1.0)),))]
    assert filled(tmp_path / "page.md", findings=findings) == "It is +1.00 [+1.00, +1.00].\nBoth.\n"


def test_the_interval_of_a_share_stays_in_its_range():
    class Run:
        def __init__(self, value):
            self.value = value

    measure = Measure("share", lambda run: np.full(600, run.value), 1.0)
    values = (0.95, 0.94, 0.4)
    one = cells.measured({seed: Run(value) for seed, value in enumerate(values)}, measure)
    assert 0 < one.low < one.mean < one.high < 1
    assert estimate_of(np.array(values)[:, None]).high > 1
    assert cells.measured({0: Run(0.5)}, measure).low is None  # one seed has no interval
    assert cells.measured({0: Run(math.nan)}, measure) is None


def test_the_spread_of_each_kind_is_told_apart_and_each_table_counts_once():
    def comparison(measure, kind, deviation):
        value_S = deviation * np.arange(6) / np.std(np.arange(6), ddof=1)
        table_SP = np.tile(value_S[:, None], (1, 4))
        return Comparison("x", estimate_of(table_SP), GREATER, UNIT, 0.0, table_SP, Sisters("task", measure, kind))

    quiet = [comparison("Pass@1", "", deviation) for deviation in (1.0, 2.0)]
    repeated = quiet[1]
    noisy = [comparison("Pass@1", "hot", 10.0), comparison("Pass@1", "hot", 20.0)]
    few = [comparison("UCC@256", "", 1.0)]
    (first, second) = spreads([Finding("a", "claim", "where", (*quiet, repeated, *noisy, *few))])
    assert (first.measure, second.measure) == ("Pass@1", "UCC@256")
    calm = math.sqrt((1 + 4) / 2)
    assert first.of_kind == {"": (pytest.approx(calm), 10), "hot": (pytest.approx(10 * calm), 10)}
    assert second.of_kind == {"": (pytest.approx(1.0), 5)}


@pytest.mark.parametrize(("mean", "margin"), [(0.5, 0.0), (-0.6, 0.2), (0.0, 0.4)])
def test_so_many_seeds_decide_if_the_truth_is_what_was_measured(mean, margin):
    value_S = mean + np.array([-1.0, 0.0, 1.0])
    one = Comparison("x", estimate_of(value_S[:, None]), GREATER, UNIT, margin)
    assert one.verdict is Verdict.undecided
    seeds = seeds_to_decide(one)

    def decided(count):
        error, freedom = 1 / math.sqrt(count), count - 1
        half = half_width(error, freedom)
        estimate = Estimate(mean, mean - half, mean + half, count, 1, error=error, freedom=freedom)
        return Comparison("x", estimate, GREATER, UNIT, margin).verdict is not Verdict.undecided

    assert decided(seeds)
    assert not decided(seeds - 1)
    hopeless = Comparison("x", estimate_of((0.01 + 9 * (value_S - mean))[:, None]), GREATER, UNIT, 0.0)
    assert seeds_to_decide(hopeless) is None


def test_a_prior_is_averaged_by_degrees_of_freedom():
    column = np.array([[0.0], [1.0], [5.0]])  # variance 7, 2 degrees of freedom
    found = mean_over_seeds_and_problems(column, prior=SeedSpread(1.0, 4.0))
    assert found.error == pytest.approx(math.sqrt((2 * 7 + 4 * 1) / 6 / 3))
    assert found.freedom == 6
    assert found.high - found.mean == pytest.approx(2.44691 * found.error, rel=1e-5)  # t(.975, 6)
    assert pooled_if_many([column] * 4) is None  # until November 2026 8 degrees of freedom were too few
    assert pooled_spread([column]) is None  # it would be averaged with itself
    assert pooled_spread([column[:2], 3 * column[:2]]) == SeedSpread(pytest.approx((0.5 + 4.5) / 2), 2.0)
    for rule in (pooled_spread, pooled_if_many):
        assert rule([column, 2 * column] * 3) == SeedSpread(pytest.approx((7 + 28) / 2), 4.0)


def test_seeds_that_agree_by_chance_have_the_spread_of_their_sisters():
    sisters = Sisters("task", "measure", "")
    apart, alike = np.array([[0.0], [1.0], [5.0]]), np.array([[2.0], [2.0], [2.01]])

    def findings(*tables):
        compared = [Comparison(f"x{at}", None, GREATER, UNIT, 0.0, one, sisters) for at, one in enumerate(tables)]
        return with_common_spread([Finding("t", "", "", tuple(compared))])

    found = findings(apart, alike)
    one = found[0].comparisons[1].estimate
    assert one.low < 0.0 < one.own_low
    assert one.freedom == 2 + 4  # variances of 7 and about 0 have 4 degrees of freedom together
    assert one.error == pytest.approx(math.sqrt((2 * 0 + 4 * 3.5) / 6 / 3), rel=1e-4)

    def verdicts(claims):
        rows = csv.DictReader(io.StringIO(comparisons_csv(claims)))
        return [(row["verdict before November 2026"], row["verdict"]) for row in rows]

    assert verdicts(found)[1] == ("holds", "undecided")
    many = findings(alike, *(apart + shift for shift in range(5)))  # 12 degrees of freedom: pooled before, too
    assert all(before == now for before, now in verdicts(many))


@pytest.mark.parametrize("num_seeds", [3, 8])
def test_the_moderated_interval_covers_the_truth(num_seeds):
    """Ten sister comparisons each time, most of whose variance lies between seeds."""
    rng = np.random.default_rng(1)
    num_covered = 0
    for _ in range(60):
        tables = [rng.normal(size=(num_seeds, 1)) + 0.5 * rng.normal(size=(num_seeds, 20)) for _ in range(10)]
        prior = pooled_spread(tables)
        for table in tables:
            found = mean_over_seeds_and_problems(table, prior=prior)
            num_covered += found.low <= 0.0 <= found.high
    assert 0.94 <= num_covered / 600 <= 0.99  # seen: .985 and .968


def students(values):
    """scipy's interval of a mean."""
    return t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=sem(values))


def test_without_problems_the_interval_is_students_over_seeds():
    values = [0.1, 0.4, 0.2]
    found = mean_over_seeds_and_problems(np.array(values)[:, None])
    assert (found.low, found.high) == pytest.approx(students(values))


def test_seeds_that_agree_leave_students_interval_over_problems():
    row = np.array([0.0, 1.0, 4.0, 2.0, 3.0])
    found = mean_over_seeds_and_problems(np.stack([row, row, row]))
    assert (found.low, found.high) == pytest.approx(students(row))


def test_problems_that_agree_leave_students_interval_over_seeds():
    column = np.array([[0.0], [1.0], [4.0]])
    found = mean_over_seeds_and_problems(np.repeat(column, 40, axis=1))
    assert (found.low, found.high) == pytest.approx(students(column[:, 0]))


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
