"""UCR and pass@1 of several sets of samples side by side, one bar for each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.errors import DataError
from evals.figures.grid import Part, new_figure, styled
from evals.figures.method_looks import Look, looks_of
from evals.figures.panels import bar_keys, check_bar_labels, draw_bar, panel_title, write_inside
from evals.figures.sheet import PAGE, SMALL, Sheet, fitted, inches_of
from evals.results.document import Row
from evals.similarity.setting import Setting
from evals.tables.titles import title_of, without_lone_average

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUP_WIDTH = 0.8


def temperature_figure(rows_of: Mapping[str, Sequence[Row]], *, sheet: Sheet = PAGE) -> Figure:
    """Two panels, UCR and pass@1: a group of bars for each benchmark, a bar for each label.

    ``rows_of`` are rows of `temperature_result`, or of `ucc_result` with k = 1, by label.

    Raises:
        DataError: a label has no UCR, or several (more than one setting).
        UsageError: there are more labels than can be told apart.
    """
    labels = list(rows_of)
    check_bar_labels(labels)
    for label, rows in rows_of.items():
        names = [row.benchmark for row in rows if row.metric == "ucr"]
        if not names:
            raise DataError(f"{label} holds no UCR; make it with `quatro eval side-by-side` or `quatro eval ucc`")
        if len(names) > len(set(names)):
            raise DataError(f"{label} holds several UCR of {names[0]}; draw one similarity and threshold at a time")
    everyone = [row for rows in rows_of.values() for row in rows]
    benchmarks = without_lone_average(row.benchmark for row in everyone)
    panels = {"UCR": _values(rows_of, "ucr"), "Pass@1, %": _values(rows_of, "pass@k", "ucc@k")}
    drawn = {title: values for title, values in panels.items() if values}
    first = next(row for row in everyone if row.metric == "ucr")
    setting = Setting.of(first)
    shown, looks = sheet.shown(labels), looks_of(labels)
    measure = f"{setting.similarity}{setting.reach('≥')}" if setting is not None else "unknown similarity"
    note = f"UCR: clusters per sample, {measure}, n = {first.n}"
    with styled():
        least = max(1.6, 0.6 + 0.06 * len(benchmarks) * (len(labels) + 1))
        keys = bar_keys(labels, looks, shown)
        part = Part(len(drawn), 1.9, least=min(least, sheet.width), most=2, keys=keys, note=note)
        figure, (grid,) = new_figure(sheet, [part])
        for axis, (title, values) in zip(grid.axes, drawn.items(), strict=True):
            scale = 100.0 if "%" in title else 1.0
            for position, (label, look) in enumerate(zip(labels, looks, strict=True)):
                found = {name: values.get((label, name)) for name in benchmarks}
                _draw_bars(axis, found, (position, len(labels)), look, scale)
            _name_groups(axis, [title_of(name) for name in benchmarks], grid.inches - 0.5)
            axis.grid(visible=False, axis="x")
            axis.set_ylim(0, max(axis.get_ylim()[1], 1e-3))
            if not any(row.value for row in values.values()):
                axis.set_ylim(0, 1)
                write_inside(axis, "all 0")
            panel_title(axis, title, grid.inches)
    return figure


def _name_groups(axis: Axes, names: Sequence[str], inches: float) -> None:
    """Names of groups under the bars: level where they fit, and else slanted."""
    room = inches / len(names) - 0.06
    axis.set_xticks(range(len(names)))
    axis.tick_params(axis="x", length=0)
    if all(inches_of(name, size=SMALL) <= room for name in names):
        axis.set_xticklabels(names)
    else:
        axis.set_xticklabels(
            [fitted(name, 1.0, size=SMALL) for name in names], rotation=35, ha="right", rotation_mode="anchor"
        )


def _values(rows_of: Mapping[str, Sequence[Row]], *metrics: str) -> dict[tuple[str, str], Row]:
    """Rows of the metric by label and benchmark."""
    return {
        (label, row.benchmark): row
        for label, rows in rows_of.items()
        for row in rows
        if row.metric in metrics and row.k in (None, 1)
    }


def _draw_bars(axis: Axes, rows: Mapping[str, Row | None], place: tuple[int, int], look: Look, scale: float) -> None:
    """The bars of one label, which has this ``place`` among so many, one for each benchmark."""
    position, num_labels = place
    width = _GROUP_WIDTH / num_labels
    for group, row in enumerate(rows.values()):
        if row is not None:
            low, high = (None if end is None else scale * end for end in (row.ci_low, row.ci_high))
            middle = group + (position - (num_labels - 1) / 2) * width
            draw_bar(axis, middle, scale * row.value, (low, high), width * 0.92, look)
