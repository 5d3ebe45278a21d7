"""UCR and pass@1 of several sets of samples side by side, one bar for each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.errors import DataError
from evals.figures.panels import (
    add_legend,
    bar_look,
    check_bar_labels,
    new_grid,
    shortened,
    small_title,
    styled,
    whiskers,
)
from evals.results.document import AVERAGE, Row
from evals.similarity.setting import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUP_WIDTH = 0.8


def temperature_figure(rows_of: Mapping[str, Sequence[Row]]) -> Figure:
    """Two panels, UCR and pass@1: a group of bars for each benchmark, a bar for each label.

    ``rows_of`` are rows of `temperature_result`, or of `ucc_result` with k = 1, by label.

    Raises:
        DataError: a label has no UCR, or several (more than one setting).
        UsageError: there are more labels than can be told apart.
    """
    check_bar_labels(list(rows_of))
    for label, rows in rows_of.items():
        names = [row.benchmark for row in rows if row.metric == "ucr"]
        if not names:
            raise DataError(f"{label} holds no UCR; make it with `quatro eval side-by-side` or `quatro eval ucc`")
        if len(names) > len(set(names)):
            raise DataError(f"{label} holds several UCR of {names[0]}; draw one similarity and threshold at a time")
    everyone = [row for rows in rows_of.values() for row in rows]
    benchmarks = list(dict.fromkeys(row.benchmark for row in everyone))
    if len(benchmarks) == 2 and AVERAGE in benchmarks:  # the average of one benchmark is that benchmark
        benchmarks.remove(AVERAGE)
    panels = {"UCR": _values(rows_of, "ucr"), "Pass@1, %": _values(rows_of, "pass@k", "ucc@k")}
    drawn = {title: values for title, values in panels.items() if values}
    first = next(row for row in everyone if row.metric == "ucr")
    setting = Setting.of(first)
    with styled():
        width = max(3.4, 0.6 + 0.2 * len(benchmarks) * (len(rows_of) + 1))
        num_columns = 2 if width < 4.5 else 1
        grid = new_grid(len(drawn), num_columns=num_columns, size=(width, 2.3), labels=list(rows_of))
        for axis, (title, values) in zip(grid.axes, drawn.items(), strict=True):
            scale = 100.0 if "%" in title else 1.0
            for position, label in enumerate(rows_of):
                found = {name: values.get((label, name)) for name in benchmarks}
                _draw_bars(axis, found, position, len(rows_of), scale)
            axis.set_xticks(range(len(benchmarks)), [shortened(name, 18) for name in benchmarks])
            axis.tick_params(axis="x", length=0)
            axis.grid(visible=False, axis="x")
            axis.set_ylim(bottom=0)
            axis.set_title(title)
        measure = f"{setting.similarity}{setting.reach('≥')}" if setting is not None else "unknown similarity"
        small_title(grid.axes[0], f"clusters per sample\n{measure}, n = {first.n}")
        add_legend(grid.figure, list(rows_of), bars=True)
    return grid.figure


def _values(rows_of: Mapping[str, Sequence[Row]], *metrics: str) -> dict[tuple[str, str], Row]:
    """Rows of the metric by label and benchmark."""
    return {
        (label, row.benchmark): row
        for label, rows in rows_of.items()
        for row in rows
        if row.metric in metrics and row.k in (None, 1)
    }


def _draw_bars(axis: Axes, rows: Mapping[str, Row | None], position: int, num_labels: int, scale: float) -> None:
    width = _GROUP_WIDTH / num_labels
    for place, row in enumerate(rows.values()):
        if row is None:
            continue
        middle = place + (position - (num_labels - 1) / 2) * width
        ends = (None if end is None else scale * end for end in (row.ci_low, row.ci_high))
        axis.bar(middle, scale * row.value, width * 0.92, **bar_look(position))
        error = whiskers(scale * row.value, *ends)
        if error is not None:
            axis.errorbar(
                middle, scale * row.value, yerr=error, fmt="none", ecolor="#222222", elinewidth=0.8, capsize=1.8
            )
