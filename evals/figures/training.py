"""Training curves: metrics of several runs over steps, a panel for each metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evals.errors import DataError
from evals.figures.method_looks import MARKERS, PALETTE, places
from evals.figures.panels import styled
from evals.figures.run_settings import mean_curve
from evals.figures.style import legible, make_logarithmic
from evals.files.metric_rows import Rows, series
from evals.training_metrics import PANELS, Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@dataclass(frozen=True)
class TrainingRun:
    """``rows`` of one run's metrics.jsonl, in order of "step"; ``delta`` its KL radius in nats, if it has one."""

    label: str
    rows: Rows
    delta: float | None = None


_Placed = tuple[int, TrainingRun]


def training_figure(runs: Sequence[TrainingRun]) -> Figure:
    """Curves over steps, a colour and marker for each run: every step faint, the running mean bold.

    On a logarithmic axis the mean is geometric. A panel is left out if no run has numbers for it. Dashed lines across
    the KL panel are the runs' delta.

    Raises:
        DataError: a run has no rows, or no panel has a single finite number.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    for run in runs:
        if not run.rows:
            raise DataError(f"run {run.label!r} has no metrics yet; let it finish a step, then plot again")
    panels = [metric for metric in PANELS if metric.is_in_figure]
    drawn = [panel for panel in panels if any(series(run.rows, panel.name)[0] for run in runs)]
    if not drawn:
        wanted = ", ".join(panel.name for panel in panels)
        raise DataError(f"none of the metrics {wanted} has a finite number in {len(runs)} runs; nothing to draw")
    placed = list(zip(places(run.label for run in runs), runs, strict=True))
    with styled():
        num_columns = min(3, len(drawn))
        num_rows = math.ceil(len(drawn) / num_columns)
        has_free_cell = len(drawn) < num_rows * num_columns
        legend_inches = 0.0 if has_free_cell else 0.25 + 0.2 * math.ceil(len(runs) / num_columns)
        figure = Figure(
            figsize=(3.1 * num_columns, 2.2 * num_rows + legend_inches),
            layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06),
        )
        axes = list(figure.subplots(num_rows, num_columns, squeeze=False, sharex=True).flat)
        for position, axis in enumerate(axes):
            if position >= len(drawn):
                axis.set_axis_off()
                continue
            _draw_panel(axis, drawn[position], placed)
            if position + num_columns >= len(drawn):  # nothing below: it carries the step numbers
                axis.set_xlabel("step")
                axis.tick_params(labelbottom=True)
        _draw_legend(figure, axes[-1] if has_free_cell else None, placed, num_columns)
    return figure


def _draw_panel(axis: Axes, panel: Metric, placed: Sequence[_Placed]) -> None:
    axis.set_title(panel.title)
    axis.set_ylabel(panel.unit)
    for place, run in placed:
        _draw_curve(axis, panel, run.rows, place)
    if panel.lines == "delta":
        _draw_radii(axis, placed)
    if panel.is_log:
        make_logarithmic(axis)
    if panel.is_share:
        axis.set_ylim(bottom=0)


def _draw_curve(axis: Axes, panel: Metric, rows: Rows, place: int) -> None:
    steps, means, *_ = mean_curve([rows], panel)
    if not steps:
        return
    color = PALETTE[place % len(PALETTE)]
    if len(steps) >= 24:  # shorter curves are not smoothed
        value_at = dict(zip(*series(rows, panel.name), strict=True))
        axis.plot(steps, [value_at[step] for step in steps], color=color, linewidth=0.7, alpha=0.28)
    # Markers of different runs stand at different steps, so that equal curves do not cover each other.
    every = max(1, len(steps) // 6)
    marker: dict[str, Any] = {"marker": MARKERS[place % len(MARKERS)], "markersize": 3.6}
    marker |= {"markeredgecolor": "white", "markeredgewidth": 0.4}
    axis.plot(steps, means, color=color, linewidth=1.6, markevery=(place * every // 4 % every, every), **marker)


def _draw_radii(axis: Axes, placed: Sequence[_Placed]) -> None:
    """A dashed line at each delta, in the run's colour; grey if several runs have that delta."""
    colors: dict[float, str] = {}
    for place, run in placed:
        if run.delta is not None:
            colors[run.delta] = "#666666" if run.delta in colors else PALETTE[place % len(PALETTE)]
    for delta, color in colors.items():
        axis.axhline(delta, color=color, linewidth=1.0, linestyle=(0, (6, 3)), alpha=0.75, zorder=1.5)
        axis.annotate(
            f"δ {delta:g}",
            xy=(1, delta),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=7.5,
            color=color,
            annotation_clip=False,
        )


def _draw_legend(figure: Figure, free_cell: Axes | None, placed: Sequence[_Placed], num_columns: int) -> None:
    """The legend, below the panels or in a cell that no panel needs."""
    keys = [_key(place) for place, _ in placed]
    labels = [legible(run.label) for _, run in placed]
    if free_cell is not None:
        free_cell.legend(keys, labels, loc="center left", labelspacing=0.8, fontsize=9)
    else:
        figure.legend(keys, labels, loc="outside lower center", ncols=min(num_columns, len(keys)))


def _key(place: int) -> Line2D:
    from matplotlib.lines import Line2D

    marker = MARKERS[place % len(MARKERS)]
    return Line2D([], [], color=PALETTE[place % len(PALETTE)], marker=marker, linewidth=1.8, markersize=4.5)
