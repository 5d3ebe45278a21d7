"""Benchmarks as readers meet them: by their titles, in the paper's order, which is the registry's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from evals.benchmarks.catalogue import registry
from evals.results.comparison import DifferenceRow
from evals.results.document import AVERAGE, Row

_Row = TypeVar("_Row", Row, DifferenceRow)


def title_of(benchmark: str) -> str:
    """The registry's title, or the name itself of a benchmark that the registry does not know."""
    if benchmark == AVERAGE:
        return "Average"
    known = registry().get(benchmark)
    return known.title if known is not None else benchmark


def on_benchmark(name: str) -> str:
    """Where numbers are from, for a title: `on MATH`, or `average over benchmarks`."""
    return "average over benchmarks" if name == AVERAGE else f"on {title_of(name)}"


def in_order(benchmarks: Iterable[str]) -> list[str]:
    """Each name once, in the registry's order; then those that it does not know, as they came; the average last."""
    known = {name: place for place, name in enumerate(registry())}
    names = dict.fromkeys(benchmarks)
    return sorted(names, key=lambda name: (name == AVERAGE, known.get(name, len(known))))


def without_lone_average(benchmarks: Iterable[str]) -> list[str]:
    """`in_order`, but without the average of a single benchmark, which is that benchmark."""
    names = in_order(benchmarks)
    return names[:1] if len(names) == 2 and names[1] == AVERAGE else names


def rows_in_order(rows: Iterable[_Row]) -> list[_Row]:
    """``rows`` by their benchmarks, in the order of `in_order`; those of one benchmark stay as they are."""
    found = list(rows)
    places = {name: place for place, name in enumerate(in_order(row.benchmark for row in found))}
    return sorted(found, key=lambda row: places[row.benchmark])
