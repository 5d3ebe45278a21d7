"""What is drawn inside panels: curves and bars with the look of their label, and axes that end where they should."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from evals.figures.grid import GREY, Grid, wrapped
from evals.figures.method_looks import Labels, Look
from evals.figures.sheet import SMALL, Axes, Line2D, Patch, fitted

BEHIND = 1.2  # zorder of what stands behind the curves of a panel: those of other methods, faint lines
_PALE = "#CFCFCF"


def line_look(look: Look) -> dict[str, Any]:
    """How matplotlib draws the curve of a label."""
    return {
        "color": look.color,
        "marker": look.marker,
        "linestyle": look.dash,
        "linewidth": 1.3,
        "markersize": 3.8,
        "markerfacecolor": "white" if look.is_hollow else look.color,
        "markeredgecolor": look.color if look.is_hollow else "white",
        "markeredgewidth": 0.8 if look.is_hollow else 0.4,
    }


def bar_look(look: Look) -> dict[str, Any]:
    """How matplotlib draws the bar of a label."""
    return {"facecolor": look.color, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0.5}


def line_key(label: str, look: Mapping[str, Any]) -> Line2D:
    """The key of a curve for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **{**look, "markersize": 4.2, "linewidth": 1.5})


def line_keys(labels: Labels, *, is_whole: bool = False) -> list[Line2D]:
    """The keys of curves, unless ``is_whole`` without labels that have one of several facets to themselves."""
    facets = [] if is_whole or len(labels.facets) == 1 else labels.facets
    own = [[name for name in facet.labels if name in labels.names] for facet in facets]
    return [line_key(labels.shown[name], line_look(look)) for name, look in labels.with_looks if [name] not in own]


def bar_keys(labels: Labels) -> list[Patch]:
    """The keys of bars."""
    from matplotlib.patches import Patch

    return [Patch(label=labels.shown[name], **bar_look(look)) for name, look in labels.with_looks]


def draw_curve(
    axis: Axes,
    look: Mapping[str, Any],
    xs: Sequence[float],
    values: Sequence[float],
    intervals: Sequence[tuple[float | None, float | None]] = (),
) -> None:
    """A curve, and a band where every point has an interval."""
    axis.plot(xs, values, **look)
    low = [low for low, _ in intervals if low is not None]
    high = [high for _, high in intervals if high is not None]
    if intervals and len(low) == len(high) == len(xs):
        axis.fill_between(xs, low, high, color=look["color"], alpha=0.13, linewidth=0)


def smaller(look: Mapping[str, Any]) -> dict[str, Any]:
    """``look`` for one of many small panels."""
    return {**look, "linewidth": 1.1, "markersize": 2.7}


def draw_behind(axis: Axes, xs: Sequence[float], values: Sequence[float]) -> None:
    """A pale curve of a method that has a panel of its own."""
    axis.plot(xs, values, color=_PALE, linewidth=0.7, zorder=BEHIND)


def finish_y_axis(axes: Sequence[Axes], *, is_log: bool = False, from_zero: bool | None = None) -> None:
    """Limits and ticks of axes that share their y axis; each panel without a curve, or with zeros only, says so.

    It starts at 0 with ``from_zero``, and where that is None unless all values are so far above 0 that nothing could
    be told apart.
    """
    first = axes[0]
    values = [value for axis in axes for value in _values(axis.lines, axis)]
    if values and not any(values):
        first.set_ylim(0, 1)
        first.set_yticks([0, 1], ["0", "1"])
    elif is_log:
        make_logarithmic(first)
    elif values:
        low = min(axis.dataLim.intervaly[0] for axis in axes)
        high = max(axis.dataLim.intervaly[1] for axis in axes)
        if from_zero or (from_zero is None and low < 0.5 * high):
            bottom = min(0.0, low)
            first.set_ylim(bottom, high + 0.05 * (high - bottom))
    for axis in axes:
        own = _values([line for line in axis.lines if line.get_zorder() > BEHIND], axis)
        if not own:
            write_inside(axis, "none")
        elif not any(own):
            write_inside(axis, "all 0")


def _values(lines: Iterable[Line2D], axis: Axes) -> list[float]:
    """The finite y of curves; lines across a whole panel are none."""
    curves = [line for line in lines if line.get_transform().contains_branch(axis.transData)]
    found = [float(y) for line in curves for y in np.asarray(line.get_ydata(), dtype=np.float64)]
    return [y for y in found if math.isfinite(y)]


def write_inside(axis: Axes, text: str) -> None:
    """Small grey ``text`` in the middle of a panel."""
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", fontsize=SMALL, color=GREY)


def make_logarithmic(axis: Axes) -> None:
    """A logarithmic y axis of at least a decade, with plain numbers at two ticks or more."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    widen = max(1.0, math.sqrt(10 / (high / low)))  # at least a decade, or noise looks like a mountain range
    low, high = low / widen, high * widen
    axis.set_ylim(low, high)
    ticks = log_ticks(low, high)
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def log_ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers between the ends, which are a decade apart or more, evenly on a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    round_numbers = [[float(f"{step}e{decade}") for decade in decades for step in steps] for steps in _STEPS]
    inside = [[value for value in values if low <= value <= high] for values in round_numbers]
    few = next((ticks for ticks in inside if 3 <= len(ticks) <= 5), None)
    if few is not None:
        return few
    powers = inside[0]
    return powers[:: math.ceil(len(powers) / 5)] if len(powers) > 5 else inside[-1]


_STEPS = ((1,), (1, 3), (1, 2, 5))


def small_title(axis: Axes, text: str) -> None:
    """``text`` in small grey letters opposite the panel's title."""
    axis.set_title(text, loc="right", fontsize=SMALL, fontweight="normal", color=GREY)


def panel_title(axis: Axes, text: str, inches: float) -> None:
    """The title of a panel that is so wide, on two lines if need be."""
    # A delta stays beside its sign.
    lines = wrapped(text.replace("δ ", "δ\u00a0").split(" "), inches, size=8.5, weight="bold", joint=" ", most=2)
    axis.set_title("\n".join(fitted(line, inches, size=8.5, weight="bold") for line in lines.split("\n")))


def name_beside(axis: Axes, texts: Sequence[str], inches: float) -> None:
    """``texts`` as the y label of a panel that is so high, each on lines of its own."""
    # A formula stays on one line.
    words = [text.replace(" ‖ ", "\u00a0‖\u00a0").split(" ") for text in texts]
    lines = [line for some in words for line in wrapped(some, inches, joint=" ").split("\n")]
    axis.set_ylabel("\n".join(fitted(line, inches, size=SMALL) for line in lines), fontsize=SMALL)


def head_facets(grid: Grid, place: int, names: Sequence[str], *, x_label: str) -> None:
    """What panel ``place`` of many facets is about: its ``names`` beside it, and the methods above."""
    part, axes = grid.part, grid.panels[place]
    across, lines, beside = part.columns
    name_beside(axes[0], [name for name in names if name], part.height - 0.1)
    for at, (axis, facet) in enumerate(zip(axes, part.facets, strict=True)):
        if lines > 1 or place < beside:
            panel_title(axis, facet.title, part.title_inches)
        if place + beside >= part.num_panels and at + across >= part.num_facets:
            axis.set_xlabel(x_label, fontsize=SMALL)
