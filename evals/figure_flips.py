"""Flips by difficulty: bars for each bucket of the base's counts, one panel a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.aggregate import AVERAGE
from evals.errors import DataError
from evals.flips import BUCKETS, FLIP, FLIP_AT_K
from evals.panels import (
    GREY,
    add_legend,
    bar_look,
    check_bar_labels,
    new_grid,
    shortened,
    small_title,
    styled,
    whiskers,
)
from evals.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNSOLVED = "never"
_GROUP_WIDTH = 0.8


def flips_figure(rows_of: Mapping[str, Sequence[Row]], *, k: int) -> Figure:
    """For each benchmark: reading 1 (of problems the base never solved) and flip@k of every bucket, one bar a label.

    ``rows_of`` are the rows of `flips_result` by label. Under each bucket stands how many problems it holds.

    Raises:
        DataError: there are no rows of flips at ``k``, or two labels disagree on a bucket's number of problems.
        UsageError: there are more labels than can be told apart.
    """
    labels = list(rows_of)
    check_bar_labels(labels)
    rows = {label: [row for row in rows if row.k == k or row.metric == FLIP] for label, rows in rows_of.items()}
    names = list(dict.fromkeys(row.benchmark for found in rows.values() for row in found if row.k == k))
    benchmarks = [name for name in names if name != AVERAGE]
    if not benchmarks:
        held = sorted({row.k for found in rows_of.values() for row in found if row.k is not None})
        raise DataError(f"no flip@{k} in these files, only k = {held}; make them with `quatro eval flips --k {k}`")
    with styled():
        grid = new_grid(len(benchmarks), num_columns=2, size=(3.9, 2.5), num_labels=len(labels))
        for axis, benchmark in zip(grid.axes, benchmarks, strict=True):
            _draw_benchmark(axis, benchmark, rows, k)
        add_legend(grid.figure, labels, bars=True)
    return grid.figure


def _draw_benchmark(axis: Axes, benchmark: str, rows: Mapping[str, Sequence[Row]], k: int) -> None:
    places = [_UNSOLVED, *(bucket.name for bucket in BUCKETS)]
    num_problems = dict.fromkeys(places, 0)
    width = _GROUP_WIDTH / len(rows)
    n = 0
    for position, (label, found) in enumerate(rows.items()):
        for row in found:
            place = _UNSOLVED if row.metric == FLIP else (row.model_extra or {}).get("bucket")
            if row.benchmark != benchmark or row.metric not in (FLIP, FLIP_AT_K) or place not in num_problems:
                continue
            if num_problems[place] not in (0, row.num_problems):
                raise DataError(
                    f"{label}: {row.num_problems} problems in {place!r} of {benchmark}, but {num_problems[place]} in "
                    "the others: these flips start from different bases; draw them apart"
                )
            num_problems[place], n = row.num_problems, row.n
            middle = places.index(place) + (position - (len(rows) - 1) / 2) * width
            ends = (None if end is None else 100 * end for end in (row.ci_low, row.ci_high))
            axis.bar(middle, 100 * row.value, width * 0.92, **bar_look(position))
            axis.errorbar(
                middle,
                100 * row.value,
                yerr=whiskers(100 * row.value, *ends),
                fmt="none",
                ecolor="#222222",
                elinewidth=0.8,
                capsize=1.8,
                capthick=0.8,
            )
    bounds = {bucket.name: f"{bucket.name}\n≤ {bucket.upto * n / 256:g}" for bucket in BUCKETS}
    heads = {_UNSOLVED: "never\n0", **bounds}
    below = [f"{heads[place]}\n{num_problems[place]}" for place in places]
    axis.set_xticks(range(len(places)), below, fontsize=7.5, linespacing=1.3)
    axis.tick_params(axis="x", length=0)
    axis.grid(visible=False, axis="x")
    axis.axvline(0.5, color=GREY, linewidth=0.7, linestyle=(0, (1, 2)))
    axis.set_xlim(-0.5, len(places) - 0.5)
    axis.set_ylim(bottom=0)
    axis.set_title(shortened(benchmark, 30))
    small_title(axis, f"left: reading 1; right: flip@{k}")
    axis.set_ylabel("flipped, %")
    axis.set_xlabel(f"base correct of {n}, and problems", color=GREY, fontsize=7.5)
