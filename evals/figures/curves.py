"""Pass@k and UCC@k against k, several models over one another, with their intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evals.errors import DataError, UsageError
from evals.figures.method_looks import places
from evals.figures.panels import GREY, add_legend, draw_curve, line_look, new_grid, shortened, start_at_zero, styled
from evals.results.document import AVERAGE, Row
from evals.results.entries import Entry
from evals.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TICKS = 9
_LONGEST_NOTE = 52
_NOTE_INCHES = 0.055  # a character of a note
Y_LABELS = {"pass@k": "Pass@k, %", "ucc@k": "UCC@k"}


class Point(NamedTuple):
    """A value at one k with its interval, made of an `Entry`."""

    k: int | None
    value: float
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True)
class CurvePanel:
    """One picture: a curve over k for each label. ``is_share`` values become percent; ``note`` is in small letters."""

    title: str
    y_label: str
    rows: Mapping[str, Sequence[Row | Point]]
    is_share: bool = False
    note: str = ""


def curve_panels(entries: Sequence[Entry], metric: str, *, benchmarks: Collection[str] = ()) -> list[CurvePanel]:
    """A panel for each setting and each of ``benchmarks``; none given: all of them and their average.

    Raises:
        UsageError: no entry has one of ``benchmarks``.
    """
    keys = [key for entry in entries for key in entry.numbers if key.metric == metric and key.k is not None]
    names = list(dict.fromkeys(key.benchmark for key in keys if key.benchmark is not None))
    for name in benchmarks:
        if name not in names:
            raise UsageError(f"no file holds {metric} of {visible(name)!r}; they hold {', '.join(names)}")
    wanted = list(benchmarks) or [name for name in names if name != AVERAGE]
    if not benchmarks and len(wanted) > 1 and AVERAGE in names:
        wanted.append(AVERAGE)
    labels = unique_labels(entries)
    panels = []
    for name in wanted:
        for setting in dict.fromkeys(key.setting for key in keys if key.benchmark == name):
            curves = {
                label: [
                    Point(key.k, number.value, number.low, number.high)
                    for key, number in entry.numbers.items()
                    if (key.metric, key.benchmark, key.setting) == (metric, name, setting) and key.k is not None
                ]
                for label, entry in zip(labels, entries, strict=True)
            }
            panels.append(CurvePanel(name, Y_LABELS[metric], curves, is_share=metric == "pass@k", note=setting))
    return panels


def unique_labels(entries: Sequence[Entry]) -> list[str]:
    """Labels of ``entries``, with the model where the same label stands for several."""
    labels = [entry.label for entry in entries]
    return [
        f"{entry.label} ({entry.model})" if labels.count(entry.label) > 1 and entry.model else entry.label
        for entry in entries
    ]


def curves_figure(panels: Sequence[CurvePanel], *, num_columns: int | None = None) -> Figure:
    """Curves on a logarithmic k axis, intervals as bands. A label has one colour and marker in all panels.

    Raises:
        DataError: there is no panel, or a panel without a single row.
    """
    if not panels or not all(any(panel.rows.values()) for panel in panels):
        raise DataError("nothing to draw: a panel has no rows with a k")
    labels = list(dict.fromkeys(label for panel in panels for label in panel.rows))
    looks = {label: line_look(place) for label, place in zip(labels, places(labels), strict=True)}
    num_columns = num_columns or (2 if len(panels) <= 4 else 3)
    width, height = (3.4, 2.4) if min(num_columns, len(panels)) <= 2 else (2.7, 2.1)
    longest = max(min(len(panel.note), _LONGEST_NOTE) for panel in panels)
    size = (max(width, 0.7 + _NOTE_INCHES * longest), height)
    with styled():
        figure, axes = new_grid(len(panels), num_columns=num_columns, size=size, labels=labels)
        for axis, panel in zip(axes, panels, strict=True):
            scale = 100.0 if panel.is_share else 1.0
            for label, rows in panel.rows.items():
                draw_over_k(axis, rows, looks[label], scale=scale)
            finish_k_axis(axis, [row.k for rows in panel.rows.values() for row in rows if row.k is not None])
            start_at_zero(axis)
            _head(axis, panel)
            axis.set_ylabel(panel.y_label)
        add_legend(figure, labels)
    return figure


def _head(axis: Axes, panel: CurvePanel) -> None:
    """The title, and the note on a line of its own below it: beside each other the two would not fit."""
    axis.set_title(shortened(panel.title, 30), pad=6 if not panel.note else 16)
    if panel.note:
        axis.annotate(
            shortened(panel.note, _LONGEST_NOTE),
            xy=(0, 1),
            xycoords="axes fraction",
            xytext=(0, 5),
            textcoords="offset points",
            fontsize=7,
            color=GREY,
        )


def draw_over_k(axis: Axes, rows: Sequence[Row | Point], look: dict[str, object], *, scale: float = 1.0) -> None:
    """The curve of ``rows`` in ascending order of k; nothing where there are none."""
    points = sorted(((row.k, row) for row in rows if row.k is not None), key=lambda point: point[0])
    values = [scale * row.value for _, row in points]
    intervals = [
        (None, None) if row.ci_low is None or row.ci_high is None else (scale * row.ci_low, scale * row.ci_high)
        for _, row in points
    ]
    draw_curve(axis, look, [k for k, _ in points], values, intervals)


def finish_k_axis(axis: Axes, ks: Sequence[int]) -> None:
    """A logarithmic axis with a tick at each k, or at every second, third, ... where there are many."""
    ticks = sorted(set(ks))
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [str(k) for k in ticks])
    axis.minorticks_off()
    axis.set_xlabel("k")
