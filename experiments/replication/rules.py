"""Verdicts by rule: a claim is a region in which a number is said to lie, and the number's interval decides."""

# Axes: S seeds, P problems.
import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evals.estimators import Floats
from evals.intervals import SeedSpread, half_width, mean_over_seeds_and_problems, residual_mean_square

GREATER = (0.0, math.inf)
LESS = (-math.inf, 0.0)
LEVEL = 0.025  # of each side of a 95 % interval


class Verdict(StrEnum):
    holds = "holds"
    negligible = "negligible"
    does_not = "does not"
    undecided = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; one of a single seed has none. ``is_exact``: computed, nothing was sampled.

    ``error`` and ``freedom`` are what the interval was made of, ``by_seed`` the mean of each seed; ``own_low`` and
    ``own_high`` are the interval from these seeds alone, without what other comparisons say of their spread.
    """

    mean: float
    low: float | None
    high: float | None
    num_seeds: int
    num_problems: int
    is_exact: bool = False
    error: float | None = None
    freedom: float | None = None
    own_low: float | None = None
    own_high: float | None = None
    by_seed: tuple[float, ...] = ()


@dataclass(frozen=True)
class Unit:
    """How an estimate is shown: times ``scale`` or, as ``is_ratio``, e to its power; then ``name``."""

    digits: int
    name: str = ""
    scale: float = 1.0
    is_ratio: bool = False
    is_signed: bool = True

    def text(self, value: float) -> str:
        if self.is_ratio:
            return f"{math.exp(value):.{self.digits}f}"
        shown = f"{value * self.scale:{'+' if self.is_signed else ''}.{self.digits}f}"
        return shown.replace("-", "−") if float(shown) else shown.lstrip("+-")


@dataclass(frozen=True)
class Sisters:
    """What comparisons have in common whose seeds lie equally far apart: task, measure and kind (`cells.KINDS`)."""

    task: str
    measure: str
    kind: str


@dataclass(frozen=True)
class Comparison:
    """One number of a claim: ``what`` it is, its estimate (None: not run), the region that the claim says it lies in.

    ``margin`` is the smallest difference that matters. ``value_SP`` is the table that the estimate
    was made of, and ``sisters`` tells which comparisons are of one measure and have one spread over seeds.
    """

    what: str
    estimate: Estimate | None
    region: tuple[float, float]
    unit: Unit
    margin: float = 0.0
    value_SP: Floats | None = field(default=None, repr=False, compare=False)
    sisters: Sisters | None = None

    @property
    def verdict(self) -> Verdict:
        """What the 95 % interval says.

        holds: it lies in the region. negligible: it lies within the margin of 0. does not: it lies beyond the margin
        on the wrong side of the region.
        """
        if self.estimate is None or self.estimate.low is None or self.estimate.high is None:
            return Verdict.undecided
        low, high = self.estimate.low, self.estimate.high
        # A region's ends are outside of it, but for exact numbers: those are compared as they are.
        if self.region[0] < low and high < self.region[1]:
            return Verdict.holds
        if -self.margin < low and high < self.margin:
            return Verdict.negligible
        if self.estimate.is_exact or high < self.region[0] - self.margin or low > self.region[1] + self.margin:
            return Verdict.does_not
        return Verdict.undecided

    @property
    def chance_of_error(self) -> float:
        """The chance of an estimate this far beyond the margin on the wrong side if the truth is at the margin."""
        found = self.estimate
        if self.verdict is Verdict.does_not and found is not None and found.is_exact:
            return 0.0
        if found is None or found.error is None or found.freedom is None:
            return 1.0
        beyond = max(self.region[0] - self.margin - found.mean, found.mean - self.region[1] - self.margin)
        return _upper_tail(beyond / found.error, found.freedom) if found.error > 0 else float(beyond <= 0)


@dataclass(frozen=True)
class Finding:
    """A claim, the place in the paper where it stands, and every comparison that it states.

    ``is_ours``: the paper does not state it, and it does not count among the paper's claims.
    """

    name: str
    claim: str
    where: str
    comparisons: tuple[Comparison, ...]
    note: str = ""
    is_ours: bool = False

    @property
    def verdict(self) -> Verdict:
        """holds if every comparison does; does not if one does not, whose number among them counts against it (Holm).

        negligible if every comparison holds or is negligible, and one is; else undecided.
        """
        found = {comparison.verdict for comparison in self.comparisons}
        if found == {Verdict.holds}:
            return Verdict.holds
        chances = [comparison.chance_of_error for comparison in self.comparisons]
        if chances and min(chances) * len(chances) <= LEVEL:
            return Verdict.does_not
        return Verdict.negligible if found and found <= {Verdict.holds, Verdict.negligible} else Verdict.undecided


def finding(name: str, comparisons: Iterable[Comparison]) -> Finding:
    """The claim ``name`` of claims.toml."""
    return Finding(name, comparisons=tuple(comparisons), **_claims()[name])


@cache
def _claims() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))


def estimate_of(value_SP: Floats | None, prior: SeedSpread | None = None) -> Estimate | None:
    """The mean over seeds and problems of a (S, P) table with its interval; None of nothing."""
    if value_SP is None or not value_SP.size:
        return None
    own = mean_over_seeds_and_problems(value_SP)
    found = own if prior is None else mean_over_seeds_and_problems(value_SP, prior=prior)
    return Estimate(
        found.mean,
        found.low,
        found.high,
        found.num_seeds,
        value_SP.shape[1],
        error=found.error,
        freedom=found.freedom,
        own_low=own.low,
        own_high=own.high,
        by_seed=tuple(value_SP.mean(axis=1).tolist()),
    )


def pooled_spread(tables: Sequence[Floats]) -> SeedSpread | None:
    """The spread over seeds that (S, P) tables of one measure have in common, as a prior.

    It is worth as many degrees of freedom as the tables have together, and at most 4. None if one table alone tells it.
    """
    known = sum(len(value_SP) - 1 for value_SP in tables)
    return SeedSpread(_common_variance(tables), min(4.0, known)) if len(tables) > 1 else None


def pooled_if_many(tables: Sequence[Floats]) -> SeedSpread | None:
    """The rule until November 2026: worth 4 degrees of freedom, and None if the tables have fewer than 10 together."""
    known = sum(len(value_SP) - 1 for value_SP in tables)
    return SeedSpread(_common_variance(tables), 4.0) if known >= 10 else None


def _common_variance(tables: Sequence[Floats]) -> float:
    freedom = [len(value_SP) - 1 for value_SP in tables]
    variance = [float(np.var(value_SP.mean(axis=1), ddof=1)) for value_SP in tables]
    return float(np.average(variance, weights=freedom))


def with_common_spread(
    findings: Sequence[Finding], rule: Callable[[Sequence[Floats]], SeedSpread | None] = pooled_spread
) -> list[Finding]:
    """The findings with intervals that know how far seeds lie apart in all comparisons of one task and measure."""
    prior_of = {sisters: rule(tables) for sisters, tables in sister_tables(findings).items()}

    def judged_anew(one: Comparison) -> Comparison:
        if one.value_SP is None or one.sisters is None:
            return one
        return replace(one, estimate=estimate_of(one.value_SP, prior_of.get(one.sisters)))

    return [replace(finding, comparisons=tuple(map(judged_anew, finding.comparisons))) for finding in findings]


@dataclass(frozen=True)
class Spread:
    """The standard deviation over seeds of differences in one measure, by kind of comparison, with its freedom."""

    measure: str
    unit: Unit
    of_kind: dict[str, tuple[float, int]]


def spreads(findings: Sequence[Finding]) -> list[Spread]:
    """How far seeds lie apart on the task of the first claim, by measure in the order of the claims."""
    known = [(one.sisters, one.unit) for finding in findings for one in finding.comparisons if one.sisters is not None]
    task = known[0][0].task
    units = {sisters.measure: unit for sisters, unit in known if sisters.task == task}
    found = {measure: Spread(measure, unit, {}) for measure, unit in units.items()}
    for sisters, tables in sister_tables(findings).items():
        freedom = sum(len(value_SP) - 1 for value_SP in tables)
        if sisters.task == task and freedom:
            squares = sum(float(np.var(value_SP.mean(axis=1))) * len(value_SP) for value_SP in tables)
            found[sisters.measure].of_kind[sisters.kind] = (math.sqrt(squares / freedom), freedom)
    return list(found.values())


def sister_tables(findings: Sequence[Finding]) -> dict[Sisters, list[Floats]]:
    """The tables of all comparisons with sisters, each once: several claims may state the same comparison."""
    found = defaultdict[Sisters, dict[bytes, Floats]](dict)
    for finding in findings:
        for one in finding.comparisons:
            if one.sisters is not None and one.value_SP is not None and len(one.value_SP) > 1:
                found[one.sisters].setdefault(one.value_SP.tobytes(), one.value_SP)
    return {sisters: list(tables.values()) for sisters, tables in found.items()}


MOST_SEEDS = 50


def seeds_to_decide(one: Comparison) -> int | None:
    """About how many seeds would decide ``one`` if the truth is what was measured; None: more than 50, or no seeds."""
    found = one.estimate
    if found is None or found.error is None or found.num_seeds < 2:
        return None
    low, high = one.region
    # How far the number lies from where it would be on the fence, for whichever verdict it is nearest to.
    distance = max(
        min(found.mean - low, high - found.mean),
        one.margin - abs(found.mean),
        low - one.margin - found.mean,
        found.mean - high - one.margin,
    )
    variance, num_seeds = found.error**2, found.num_seeds
    fixed = min(_variance_of_problems(one.value_SP), variance)
    counts = range(num_seeds, MOST_SEEDS + 1)

    def error(n: int) -> float:
        return math.sqrt(fixed + (variance - fixed) * num_seeds / n)

    return next((n for n in counts if half_width(error(n), n - 1) < distance), None)


def _variance_of_problems(value_SP: Floats | None) -> float:
    """What problems add to the variance of the mean however many seeds there are."""
    if value_SP is None or min(value_SP.shape) < 2:
        return 0.0
    num_seeds, num_problems = value_SP.shape
    between, rest = float(np.var(value_SP.mean(axis=0), ddof=1)), residual_mean_square(value_SP)
    return float(max(0.0, between - rest / num_seeds) / num_problems)


def known(estimate: Estimate | None) -> Estimate:
    """``estimate``, which the caller knows to be there."""
    assert estimate is not None
    return estimate


def over_problems(value_P: Floats) -> Estimate | None:
    """The mean over problems with its interval, where no seed of training is involved."""
    found = estimate_of(value_P[:, None])
    return found and replace(found, num_seeds=0, num_problems=len(value_P), by_seed=())


def exact(value: float) -> Estimate:
    return Estimate(value, value, value, 0, 0, is_exact=True)


def tally(findings: Sequence[Finding]) -> dict[Verdict, int]:
    return {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}


def _upper_tail(t: float, freedom: float) -> float:
    from scipy.special import stdtr  # scipy.stats, the usual place, takes half a second to import

    return float(stdtr(freedom, -t))
