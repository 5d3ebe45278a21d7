"""Which of the paper's numbers and orders a maths sweep agrees with, as a page.

    python -m experiments.claims sweeps/paper-math > claims.md

A number agrees if the 95 % interval of the sweep's own holds it. An order, such as that QUATRO's Pass@k is above
GSPO's, is confirmed or contradicted if the interval of the difference, problem by problem, lies on one side of 0.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.errors import DataError, QuatroError
from evals.estimators import Floats
from evals.intervals import mean_over_seeds_and_problems
from evals.results.document import AVERAGE
from evals.results.paper import BENCHMARKS, Series, paper
from evals.results.shown import title_of
from evals.text import visible
from experiments.counts import Counts, counts_in
from quatro.sample.folder import Tag
from quatro.sweep.paper import SweepSources
from quatro.sweep.results import SweptRun, is_measured, label_of

METRICS = {"pass@k": "Pass@k", "ucc@k": "UCC@k"}
ORDERED_KS = (1, 16, 256)
AGREES, HIGHER, LOWER = "agrees", "ours is higher", "ours is lower"
CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"


class Interval(NamedTuple):
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


class NumberClaim(NamedTuple):
    """A published number beside the sweep's; Pass@k as shares."""

    metric: str
    benchmark: str
    label: str
    k: int
    published: float
    found: Interval

    @property
    def verdict(self) -> str:
        """Whether the interval holds the published number, which is printed to half a unit of its last digit."""
        slack = 5e-5 if self.metric == "pass@k" else 5e-3
        if self.found.low - slack <= self.published <= self.found.high + slack:
            return AGREES
        return HIGHER if self.found.mean > self.published else LOWER


class OrderClaim(NamedTuple):
    """``published`` is the first method's number less the second's, ``found`` the sweep's, over the six benchmarks."""

    metric: str
    first: str
    second: str
    k: int
    published: float
    found: Interval

    @property
    def verdict(self) -> str:
        """Whether the sweep shows the published sign, the other one, or neither."""
        if self.found.low <= 0 <= self.found.high:
            return UNDECIDED
        return CONFIRMED if self.found.mean * self.published > 0 else CONTRADICTED


Measured = Mapping[str, Sequence[Mapping[str, Counts]]]  # label -> a mapping by benchmark for each seed


def measured_runs(runs: Sequence[SweptRun], tag: Tag) -> Measured:
    """The counts of each setting in the samples ``tag``, a mapping by benchmark for each seed."""
    found: dict[str, list[Mapping[str, Counts]]] = {}
    for run in runs:
        if is_measured(run.folder, tag):
            label = label_of(run.settings, method=run.config.method.name)
            found.setdefault(label, []).append(counts_in(run.folder, tag))
    return found


def number_claims(found: Measured, model: str) -> list[NumberClaim]:
    """Every published number of Pass@k and UCC@k that ``found`` has one's own of; UCC@k is of the 1.5B model."""
    claims = []
    for series in (one for metric in METRICS for one in paper().of(metric)):
        seeds = found.get(series.label)
        if seeds is None or series.benchmark is None or series.model not in (model, None):
            continue
        names = BENCHMARKS if series.benchmark == AVERAGE else (series.benchmark,)
        misprinted = {k for flag in series.flags if flag.kind == "misprint" for k in flag.k}
        for k, value in series.values().items():
            if k is None or k in misprinted or not _has(seeds, names, k):
                continue
            scale = 0.01 if series.metric == "pass@k" else 1.0
            own = _mean_over(names, partial(_values, seeds, series.metric, k))
            claims.append(NumberClaim(series.metric, series.benchmark, series.label, k, scale * value, own))
    return claims


def order_claims(found: Measured, model: str) -> list[OrderClaim]:
    """QUATRO at each radius against every other published row, on the mean over the six benchmarks."""
    claims = []
    published = {(s.metric, s.label): s.values() for s in _averages(model)}
    for (metric, first), values in published.items():
        if not first.startswith("Ours"):
            continue
        for (other_metric, second), others in published.items():
            is_pair = other_metric == metric and (not second.startswith("Ours") or second < first)
            if not is_pair or first not in found or second not in found:
                continue
            for k in ORDERED_KS:
                pair = (found[first], found[second])
                if k in values and k in others and all(_has(seeds, BENCHMARKS, k) for seeds in pair):
                    gap = _mean_over(BENCHMARKS, partial(_gap, *pair, metric, k))
                    claims.append(OrderClaim(metric, first, second, k, 0.01 * (values[k] - others[k]), gap))
    return claims


def _averages(model: str) -> Iterator[Series]:
    return (s for s in paper().of("pass@k") if (s.benchmark, s.model) == (AVERAGE, model))


def _has(seeds: Sequence[Mapping[str, Counts]], names: Sequence[str], k: int) -> bool:
    return all(name in seed and seed[name].n >= k for seed in seeds for name in names)


def _values(seeds: Sequence[Mapping[str, Counts]], metric: str, k: int, name: str) -> Floats:
    """(S, P) of a benchmark."""
    return np.stack([seed[name].passed(k) if metric == "pass@k" else seed[name].unique(k) for seed in seeds])


def _gap(
    first: Sequence[Mapping[str, Counts]], second: Sequence[Mapping[str, Counts]], metric: str, k: int, name: str
) -> Floats:
    """(S, P): problem by problem, of as many seeds as both have."""
    own, other = _values(first, metric, k, name), _values(second, metric, k, name)
    count = min(len(own), len(other))
    gap_SP: Floats = own[:count] - other[:count]
    return gap_SP


def _mean_over(names: Sequence[str], values: Callable[[str], Floats]) -> Interval:
    """The unweighted mean over benchmarks; their problems are drawn apart, so squared half-widths add up."""
    means, halves = [], []
    for name in names:
        value_SP = values(name)
        found = mean_over_seeds_and_problems(value_SP if len(value_SP) > 1 else value_SP.T)
        means.append(found.mean)
        halves.append(0.0 if found.high is None else found.high - found.mean)
    mean = math.fsum(means) / len(means)
    half = math.sqrt(math.fsum(half * half for half in halves)) / len(halves)
    return Interval(mean, mean - half, mean + half)


def claims_page(numbers: Sequence[NumberClaim], orders: Sequence[OrderClaim]) -> str:
    """The page, Markdown: counts first, then the means over benchmarks and the orders, then each benchmark."""
    counts, order_counts = Counter(claim.verdict for claim in numbers), Counter(claim.verdict for claim in orders)
    lines = [
        "# The paper's numbers, claim by claim",
        "",
        f"Of {len(numbers)} published numbers {counts[AGREES]} lie in the 95 % interval of the sweep's own, "
        f"{counts[LOWER]} are above it and {counts[HIGHER]} below it. Of {len(orders)} published orders "
        f"{order_counts[CONFIRMED]} are confirmed, {order_counts[CONTRADICTED]} contradicted and "
        f"{order_counts[UNDECIDED]} undecided: the interval of the difference, problem by problem, holds 0.",
        "",
        "Intervals are over problems, and over seeds where a setting has several. Among so many claims about one in "
        "twenty differs by chance.",
        "",
        "## Orders, on the mean over the six benchmarks",
        "",
        "| claim | k | paper | ours | verdict |",
        "|---|---|---|---|---|",
    ]
    for order in orders:
        sign = "above" if order.published > 0 else "below"
        claim = f"{METRICS[order.metric]} of {visible(order.first)} is {sign} that of {visible(order.second)}"
        own = _text(order.found, order.metric, signed=True)
        published = _one(order.published, order.metric, signed=True)
        lines.append(f"| {claim} | {order.k} | {published} | {own} | {order.verdict} |")
    for metric, title in METRICS.items():
        for name in (AVERAGE, *BENCHMARKS):
            rows = [claim for claim in numbers if (claim.metric, claim.benchmark) == (metric, name)]
            if rows:
                where = "the mean over the six benchmarks" if name == AVERAGE else title_of(name)
                lines += ["", f"## {title}, {where}", "", "| row | k | paper | ours | verdict |"]
                lines += ["|---|---|---|---|---|"]
                lines += [
                    f"| {visible(row.label)} | {row.k} | {_one(row.published, metric)} | {_text(row.found, metric)} | "
                    f"{row.verdict} |"
                    for row in rows
                ]
    return "\n".join(lines)


def _one(value: float, metric: str, *, signed: bool = False) -> str:
    shown = 100 * value if metric == "pass@k" else value
    return f"{shown:+.2f}" if signed else f"{shown:.2f}"


def _text(found: Interval, metric: str, *, signed: bool = False) -> str:
    mean, low, high = (_one(value, metric, signed=signed) for value in found)
    return f"{mean} [{low}, {high}]"


def claims_of(found: SweepSources) -> str:
    """The page of a sweep.

    Raises:
        DataError: the sweep has none of the paper's numbers.
    """
    measured = measured_runs(found.runs, found.tag)
    known = {series.model for series in paper().series if series.model is not None}
    model = next((Path(name).name for name in found.models if Path(name).name in known), "Qwen2.5-Math-1.5B")
    numbers = number_claims(measured, model)
    if not numbers:
        raise DataError(f"{found.folder} has none of the paper's numbers; measure its benchmarks with `quatro sweep`")
    return claims_page(numbers, order_claims(measured, model))


def main() -> int:
    parser = argparse.ArgumentParser(description="Which of the paper's numbers a maths sweep agrees with.")
    parser.add_argument("sweep", type=Path, help="a finished sweep")
    parser.add_argument("--temperature", type=float, help="of its samples, if there are several")
    parser.add_argument("--top-p", type=float, help="of its samples, if there are several")
    options = parser.parse_args()
    try:
        page = claims_of(SweepSources(options.sweep, options.top_p, options.temperature, None, with_paper=True))
    except QuatroError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
