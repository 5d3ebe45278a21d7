"""Which of the paper's numbers and orders a maths sweep agrees with, as a page.

    python -m experiments.claims sweeps/paper-math > claims.md

A number agrees if the 95 % interval of the sweep's own holds it. An order, such as that QUATRO's Pass@k is above
GSPO's, is confirmed or contradicted if the interval of the difference, problem by problem, lies on one side of 0.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.errors import DataError, QuatroError
from evals.estimators import Floats
from evals.files.frames import grouped
from evals.intervals import average_paired_differences, mean_intervals
from evals.results.document import AVERAGE, largest_value
from evals.results.paper import BENCHMARKS, paper
from evals.results.shown import title_of
from evals.text import visible
from experiments.counts import Counts, counts_in
from experiments.replication.markdown import filled, grid
from quatro.sample.folder import Tag
from quatro.sweep.paper import SweepSources
from quatro.sweep.results import SweptRun, is_measured

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
    """``published`` is the first method's Pass@k less the second's, ``found`` the sweep's, over the six benchmarks."""

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


Seeds = Sequence[Mapping[str, Counts]]  # a mapping by benchmark for each seed
Measured = Mapping[str, Seeds]  # by label


def measured_runs(runs: Sequence[SweptRun], tag: Tag) -> Measured:
    """The counts of each setting in the samples ``tag``."""
    by_label = grouped([run for run in runs if is_measured(run.folder, tag)], lambda run: run.label)
    return {label: [counts_in(run.folder, tag) for run in some] for label, some in by_label.items()}


def number_claims(found: Measured, model: str) -> list[NumberClaim]:
    """Every published number of Pass@k and UCC@k that ``found`` has one's own of; UCC@k is of the 1.5B model."""
    claims = []
    for series in (one for metric in METRICS for one in paper().of(metric)):
        seeds = found.get(series.label, ())
        if series.benchmark is None or series.model not in (model, None):
            continue
        names = BENCHMARKS if series.benchmark == AVERAGE else (series.benchmark,)
        scale = 0.01 if series.metric == "pass@k" else 1.0
        for k, value in series.values().items():
            if k is not None and k not in series.misprints and (values := _values(seeds, names, series.metric, k)):
                own = mean_intervals(values, [float(largest_value(series.metric, k, None) or 1)])[0]
                interval = Interval(own.mean, own.low or 0.0, own.high or 0.0)
                claims.append(NumberClaim(series.metric, series.benchmark, series.label, k, scale * value, interval))
    return claims


def order_claims(found: Measured, model: str) -> list[OrderClaim]:
    """QUATRO at each radius against every other published row, on the mean over the six benchmarks."""
    claims = []
    published = {s.label: s.values() for s in paper().of("pass@k") if (s.benchmark, s.model) == (AVERAGE, model)}
    ours = [label for label in published if label.startswith("Ours")]
    for first, second in ((one, other) for one in ours for other in published if other not in ours or other < one):
        for k in ORDERED_KS:
            own, others = (_values(found.get(label, ()), BENCHMARKS, "pass@k", k) for label in (first, second))
            if own and others and k in published[first] and k in published[second]:
                count = min(len(own[0]), len(others[0]))  # seeds that both have
                less, more = ([one[:count] for one in side] for side in (others, own))
                gap = Interval(*average_paired_differences(less, more, [1.0])[0][:3])
                claims.append(OrderClaim(first, second, k, 0.01 * (published[first][k] - published[second][k]), gap))
    return claims


def _values(seeds: Seeds, names: Sequence[str], metric: str, k: int) -> list[Floats]:
    """An array (S, P, 1) of each benchmark; nothing unless every seed has k samples of all of them."""
    if not all(name in seed and seed[name].n >= k for seed in seeds for name in names):
        return []
    of = Counts.passed if metric == "pass@k" else Counts.unique
    return [np.stack([of(seed[name], k) for seed in seeds])[:, :, None] for name in names] if seeds else []


def claims_page(numbers: Sequence[NumberClaim], orders: Sequence[OrderClaim]) -> str:
    """The page, Markdown: counts first, then the means over benchmarks and the orders, then each benchmark."""
    counts, order_counts = Counter(claim.verdict for claim in numbers), Counter(claim.verdict for claim in orders)
    by_place, lines = grouped(numbers, lambda claim: (claim.metric, claim.benchmark)), list[str]()
    for metric, name in product(METRICS, (AVERAGE, *BENCHMARKS)):
        if rows := by_place.get((metric, name)):
            where = "the mean over the six benchmarks" if name == AVERAGE else title_of(name)
            table = grid(["row", "k", "paper", "ours", "verdict"], map(_number_row, rows))
            lines += ["", f"## {METRICS[metric]}, {where}", "", *table]
    return filled(
        Path(__file__).with_suffix(".md"),
        num_numbers=len(numbers),
        agree=counts[AGREES],
        lower=counts[LOWER],
        higher=counts[HIGHER],
        num_orders=len(orders),
        confirmed=order_counts[CONFIRMED],
        contradicted=order_counts[CONTRADICTED],
        undecided=order_counts[UNDECIDED],
        orders=grid(["claim", "k", "paper", "ours", "verdict"], map(_order_row, orders)),
        numbers=lines,
    )


def _order_row(one: OrderClaim) -> list[str]:
    sign = "above" if one.published > 0 else "below"
    claim = f"Pass@k of {visible(one.first)} is {sign} that of {visible(one.second)}"
    return [claim, str(one.k), f"{100 * one.published:+.2f}", _text(one.found, "{:+.2f}", 100), one.verdict]


def _number_row(one: NumberClaim) -> list[str]:
    scale = 100 if one.metric == "pass@k" else 1
    own = _text(one.found, "{:.2f}", scale)
    return [visible(one.label), str(one.k), f"{scale * one.published:.2f}", own, one.verdict]


def _text(found: Interval, form: str, scale: float) -> str:
    return f"{form} [{form}, {form}]".format(*(scale * value for value in found))


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
    sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
