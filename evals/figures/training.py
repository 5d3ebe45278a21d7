"""Training curves: metrics over the steps, a panel for each metric, and for each method where there are many."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evals.errors import DataError
from evals.figures.grid import Part, new_figure, wrapped
from evals.figures.method_looks import Facet
from evals.figures.panels import line_keys
from evals.figures.run_settings import Line, draw_metric, is_smoothed, lines_of
from evals.figures.sheet import PAGE, SMALL, Axes, Figure, Sheet, styled
from evals.results.training_metrics import EVALUATED, FIGURE_PANELS, Rows, series

_CLOSE = 1.35  # two deltas with a smaller ratio have one label between them


@dataclass(frozen=True)
class TrainingCurve:
    """Rows of metrics.jsonl, in order of "step", of runs that differ in their seed alone; their KL radius in nats."""

    label: str
    runs: tuple[Rows, ...]
    delta: float | None = None


def training_figure(curves: Sequence[TrainingCurve], *, sheet: Sheet = PAGE) -> Figure:
    """Curves over the steps. Every step of a run, or every seed of several, is faint, and the running mean bold.

    Runs of few steps are not smoothed. On a logarithmic axis the mean is geometric. A metric without numbers is left
    out. More than four curves have a panel for each method, with those of the others pale behind. Dashed lines across
    the panels of the KL are the delta. Raises DataError if a run has no rows, or no panel has a single finite number.
    """
    for curve in curves:
        if not all(curve.runs):
            raise DataError(f"run {curve.label!r} has no metrics yet; let it finish a step, then plot again")
    everything = [rows for curve in curves for rows in curve.runs]
    drawn = [panel for panel in FIGURE_PANELS if any(series(rows, panel.name)[0] for rows in everything)]
    if not drawn:
        wanted = ", ".join(panel.name for panel in FIGURE_PANELS)
        raise DataError(f"none of the metrics {wanted} has a finite number in {len(everything)} runs; nothing to draw")
    labels = sheet.labels([curve.label for curve in curves])
    facets = labels.facets
    lines = lines_of(labels, [curve.runs for curve in curves])
    with styled():
        note = wrapped(_reading(curves, facets), sheet.width - 0.15)
        height = 1.5 if len(facets) == 1 else 1.0 if len(facets) > 3 else 1.3
        part = Part(sheet.width, len(drawn), height, facets, keys=line_keys(labels), note=note)
        figure, (grid,) = new_figure(sheet, part)
        for place, (metric, axes) in enumerate(zip(drawn, grid.panels, strict=True)):
            radii = {}
            for axis, facet in zip(axes, facets, strict=True):
                if metric.lines == "delta":
                    own = [pair for pair in zip(curves, lines, strict=True) if pair[0].label in facet.labels]
                    radii = _draw_radii(axis, own)  # first, so that the limits take them in
            draw_metric(grid, place, metric, lines, seeds_as_lines=True)
            if len(facets) == 1:
                _name_radii(axes[0], radii)
    return figure


def _reading(curves: Sequence[TrainingCurve], facets: Sequence[Facet]) -> list[str]:
    """Says what bold, thin and pale lines are."""
    most = max(len(curve.runs) for curve in curves)
    is_smooth = is_smoothed(rows for curve in curves for rows in curve.runs)
    if most > 1:
        said = [f"bold: {'running mean' if is_smooth else 'mean of the seeds'}", "thin: each seed"]
    else:
        said = ["bold: running mean", "thin: every step"] if is_smooth else ["every step is shown as it is"]
    if any(f"{EVALUATED}pass@1_se" in row for curve in curves for rows in curve.runs for row in rows):
        said.append("bars of evaluations: ± 1 standard error, over problems only")
    if len(facets) > 1:
        said.append("grey: the other methods")
    return said


def _draw_radii(axis: Axes, curves: Sequence[tuple[TrainingCurve, Line]]) -> dict[float, str]:
    """A dashed line at each delta; returns its colour: the look's, or grey if several curves have that delta."""
    colors: dict[float, str] = {}
    for curve, line in curves:
        if curve.delta is not None:
            colors[curve.delta] = "#666666" if curve.delta in colors else line.look["color"]
    for delta, color in colors.items():
        axis.axhline(delta, color=color, linewidth=0.9, linestyle=(0, (6, 3)), alpha=0.75, zorder=1.5)
    return colors


def _name_radii(axis: Axes, colors: Mapping[float, str]) -> None:
    """The number of each delta inside the panel, beside its line where fewer curves end, or where there is room."""
    ends = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64)[-1:] for line in axis.lines])
    written: list[float] = []
    for delta, color in sorted(colors.items()):
        if any(abs(math.log(delta / other)) < math.log(_CLOSE) for other in written):
            continue
        written.append(delta)
        height = axis.transAxes.inverted().transform(axis.transData.transform((0, delta)))[1]
        is_above = height < 0.15 or (height < 0.85 and (ends < delta).sum() > (ends > delta).sum())
        axis.annotate(
            f"δ {delta:g}",
            xy=(1, delta),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2 if is_above else -2),
            textcoords="offset points",
            ha="right",
            va="bottom" if is_above else "top",
            fontsize=SMALL,
            color=color,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )
