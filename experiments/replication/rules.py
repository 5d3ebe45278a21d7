"""Verdicts by rule: a claim is a region in which a number is said to lie, its interval decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from evals.estimators import Floats
from evals.intervals import mean_over_seeds_and_problems

GREATER = (0.0, math.inf)
LESS = (-math.inf, 0.0)


class Verdict(StrEnum):
    holds = "holds"
    does_not = "does not"
    undecided = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; one of a single seed has none. ``is_exact``: computed, nothing was sampled."""

    mean: float
    low: float | None
    high: float | None
    num_seeds: int
    num_problems: int
    is_exact: bool = False


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
        return shown.replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """One number of a claim: ``what`` it is, its estimate (None: not run), the region that the claim says it lies in.

    A claimed difference whose interval lies within ``negligible`` of 0 is none: the claim does not hold.
    """

    what: str
    estimate: Estimate | None
    region: tuple[float, float]
    unit: Unit
    negligible: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """holds: the interval lies in the region; does not: outside of it, or the difference is shown negligible."""
        if self.estimate is None or self.estimate.low is None or self.estimate.high is None:
            return Verdict.undecided
        low, high = self.estimate.low, self.estimate.high
        # A region's ends are outside of it, but for exact numbers: those are compared as they are.
        if self.region[0] < low and high < self.region[1]:
            return Verdict.holds
        if high < self.region[0] or low > self.region[1]:
            return Verdict.does_not
        if self.estimate.is_exact or (-self.negligible < low and high < self.negligible):
            return Verdict.does_not
        return Verdict.undecided


@dataclass(frozen=True)
class Finding:
    """A claim, the place in the paper where it stands, and every comparison that it states."""

    name: str
    claim: str
    where: str
    comparisons: tuple[Comparison, ...]
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """holds if every comparison does; does not if a single one does not; else undecided."""
        found = {comparison.verdict for comparison in self.comparisons}
        if found == {Verdict.holds}:
            return Verdict.holds
        return Verdict.does_not if Verdict.does_not in found else Verdict.undecided


def estimate_of(value_SP: Floats | None) -> Estimate | None:
    """The mean over seeds and problems of a (S, P) table with its interval; None of nothing."""
    if value_SP is None or not value_SP.size:
        return None
    mean = mean_over_seeds_and_problems(value_SP)
    return Estimate(mean.mean, mean.low, mean.high, mean.num_seeds, value_SP.shape[1])


def known(estimate: Estimate | None) -> Estimate:
    """``estimate``, which the caller knows to be there."""
    assert estimate is not None
    return estimate


def over_problems(value_P: Floats) -> Estimate | None:
    """The mean over problems with its interval, where no seed of training is involved."""
    found = estimate_of(value_P[:, None])
    return found and replace(found, num_seeds=0, num_problems=len(value_P))


def exact(value: float) -> Estimate:
    return Estimate(value, value, value, 0, 0, is_exact=True)


def tally(findings: Sequence[Finding]) -> dict[Verdict, int]:
    return {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
