"""Pass@k and UCC@k against k: several models with their intervals."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.errors import DataError, UsageError
from evals.figures.grid import GREY, Part, new_figure, wrapped
from evals.figures.method_looks import Facet
from evals.figures.panels import (
    draw_behind,
    draw_curve,
    finish_y_axis,
    head_facets,
    line_keys,
    line_look,
    panel_title,
    smaller,
)
from evals.figures.sheet import PAGE, SMALL, Axes, Figure, Sheet, fitted, styled
from evals.intervals import kinds_text
from evals.results.entries import Entry, Number
from evals.results.shown import title_of, without_lone_average
from evals.tables.parts import unique_labels
from evals.text import visible

_TICK_INCHES = 0.26
Y_LABELS = {"pass@k": "Pass@k, %", "ucc@k": "UCC@k"}


@dataclass(frozen=True)
class CurvePanel:
    """A curve for each label, its numbers by k, shares in percent; ``note`` is in small letters."""

    title: str
    y_label: str
    curves: Mapping[str, Mapping[int, Number]]
    is_share: bool = False
    note: str = ""


def curve_panels(entries: Sequence[Entry], metric: str, *, benchmarks: Collection[str] = ()) -> list[CurvePanel]:
    """A panel for each setting and each of ``benchmarks``; none given: all of them and their average.

    The note of a panel names its setting and what its bands are over.

    Raises UsageError if no entry has one of ``benchmarks``.
    """
    keys = [key for entry in entries for key in entry.numbers if key.metric == metric and key.k is not None]
    names = list(dict.fromkeys(key.benchmark for key in keys if key.benchmark is not None))
    for name in benchmarks:
        if name not in names:
            raise UsageError(f"{visible(name)!r} is not in {metric} in the files, which is of {', '.join(names)}")
    labels = unique_labels(entries)
    panels = []
    for name in benchmarks or without_lone_average(names):
        for setting in dict.fromkeys(key.setting for key in keys if key.benchmark == name):
            curves = {label: _curve(entry, metric, name, setting) for label, entry in zip(labels, entries, strict=True)}
            over = kinds_text({label: [one.over for one in curve.values()] for label, curve in curves.items()})
            note = ", ".join(filter(None, [setting, over]))
            panels.append(CurvePanel(title_of(name), Y_LABELS[metric], curves, metric == "pass@k", note))
    return panels


def _curve(entry: Entry, metric: str, benchmark: str, setting: str) -> dict[int, Number]:
    keys = [key for key in entry.numbers if (key.metric, key.benchmark, key.setting) == (metric, benchmark, setting)]
    return {key.k: entry.numbers[key] for key in keys if key.k is not None}


def curves_figure(panels: Sequence[CurvePanel], *, sheet: Sheet = PAGE) -> Figure:
    """Curves on a logarithmic k axis, intervals as bands.

    More than four curves have a panel for each method, with those of the others in grey behind.

    Raises DataError if there is no panel, or a panel without a single number.
    """
    if not panels or not all(any(panel.curves.values()) for panel in panels):
        raise DataError("nothing to draw: a panel has no rows with a k")
    labels = list(dict.fromkeys(label for panel in panels for label in panel.curves))
    labelled = sheet.labels(labels)
    facets = labelled.facets
    looks = {label: line_look(look) for label, look in labelled.with_looks}
    notes = {panel.note for panel in panels}
    common = notes.pop() if len(notes) == 1 and len(facets) > 1 else ""
    with styled():
        keys = line_keys(labelled)
        foot = wrapped([common, "grey: the other methods" if len(facets) > 1 else ""], sheet.width - 0.15)
        height = (1.75 if len(panels) > 1 else 2.1) + (0.15 if any(panel.note for panel in panels) else 0.0)
        if len(facets) > 1:
            height = 1.0 if len(facets) > 3 else 1.3
        figure, (grid,) = new_figure(sheet, Part(sheet.width, len(panels), height, facets, keys=keys, note=foot))
        for place, (panel, axes) in enumerate(zip(panels, grid.panels, strict=True)):
            for axis, facet in zip(axes, facets, strict=True):
                _draw_facet(axis, facet, panel, looks, is_small=len(facets) > 1)
            finish_k_axis(axes[0], [k for curve in panel.curves.values() for k in curve], grid.inches)
            finish_y_axis(axes)
            if len(facets) == 1:
                head(axes[0], panel.title, panel.note, grid.inches)
                axes[0].set_ylabel(panel.y_label)
                axes[0].set_xlabel("k")
            else:
                names = [panel.title, panel.y_label, "" if common else panel.note]
                head_facets(grid, place, names, x_label="k")
    return figure


def _draw_facet(
    axis: Axes, facet: Facet, panel: CurvePanel, looks: Mapping[str, dict[str, Any]], *, is_small: bool
) -> None:
    """Each curve in ascending order of k, those of other facets pale behind; none where there are no numbers."""
    scale = 100.0 if panel.is_share else 1.0
    for label, curve in panel.curves.items():
        ks = sorted(curve)
        values = [scale * curve[k].value for k in ks]
        if label in facet.labels and ks:
            ends = [(curve[k].low, curve[k].high) for k in ks]
            intervals = [
                (None, None) if low is None or high is None else (scale * low, scale * high) for low, high in ends
            ]
            draw_curve(axis, smaller(looks[label]) if is_small else looks[label], ks, values, intervals)
        elif label not in facet.labels:
            draw_behind(axis, ks, values)


def head(axis: Axes, title: str, note: str, inches: float) -> None:
    """The title, and the note on lines of its own below it: beside each other the two would not fit."""
    lines = wrapped(note.split(", "), inches - 0.45, joint=", ") if note else ""
    lines = "\n".join(fitted(line, inches - 0.45, size=SMALL) for line in lines.split("\n")) if lines else ""
    panel_title(axis, title, inches - 0.45)
    if lines:
        axis.set_title(axis.get_title(loc="left"), pad=5 + 9 * (lines.count("\n") + 1))
        at: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 3), "textcoords": "offset points"}
        axis.annotate(lines, xy=(0, 1), fontsize=SMALL, color=GREY, va="bottom", **at)


def finish_k_axis(axis: Axes, ks: Sequence[int], inches: float) -> None:
    """A logarithmic axis with a tick at each k, or at every second, third, ... where there is no room for all."""
    ticks = sorted(set(ks))
    most = max(2, int((inches - 0.45) / _TICK_INCHES))
    if len(ticks) > most:
        ticks = ticks[:: -(-(len(ticks) - 1) // (most - 1))]
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [str(k) for k in ticks])
    axis.minorticks_off()
