"""Panels of one figure: their size, the colour, marker and dash of each label, the legend below them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from evals.errors import DataError, UsageError
from evals.figures.method_looks import MARKERS, PALETTE, places
from evals.figures.style import STYLE, legible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#666666"
HATCHES = ("", "////", "....", "\\\\\\\\", "xx", "--", "++")
LINES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)))
LONGEST_LABEL = 48
_LEGEND_LINE_INCHES = 0.2

Parts = tuple[float, ...]


class Grid(NamedTuple):
    """A figure and the axes of its panels; cells beyond them are switched off."""

    figure: Figure
    axes: list[Axes]


@contextmanager
def styled() -> Iterator[None]:
    """Everything inside is drawn in the one style of `evals.figures.style`."""
    import matplotlib

    with matplotlib.rc_context(cast("Any", STYLE)):
        yield


def new_grid(
    num_panels: int, *, num_columns: int, size: tuple[float, float], labels: Sequence[str] = (), parts: Parts = (1.0,)
) -> Grid:
    """Panels of ``size`` inches (width, height), row by row, with room for a legend of ``labels`` below.

    A panel has an axes for each of ``parts``, side by side; the parts are their relative widths.

    Raises:
        DataError: there is no panel.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if num_panels < 1:
        raise DataError("nothing to draw: no panel has a number")
    num_columns = min(num_columns, num_panels)
    num_rows = math.ceil(num_panels / num_columns)
    width = size[0] * num_columns
    legend_inches = 0.15 + _LEGEND_LINE_INCHES * math.ceil(len(labels) / _legend_columns(labels, width))
    figure = Figure(
        figsize=(width, size[1] * num_rows + legend_inches),
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06),
    )
    num_axes = num_panels * len(parts)
    ratios = [part for _ in range(num_columns) for part in parts]
    axes = list(figure.subplots(num_rows, len(ratios), squeeze=False, width_ratios=ratios).flat)
    for axis in axes[num_axes:]:
        axis.set_axis_off()
    return Grid(figure, axes[:num_axes])


def add_legend(figure: Figure, labels: Sequence[str], *, bars: bool = False, more: Sequence[Any] = ()) -> None:
    """A legend of ``labels`` below the panels; ``more`` are further matplotlib keys with labels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    larger = {"markersize": 4.5, "linewidth": 1.8}
    keys: list[Any]
    if bars:
        keys = [Patch(label=shortened(label), **bar_look(position)) for position, label in enumerate(labels)]
    else:
        keys = [
            Line2D([], [], label=shortened(label), **(line_look(place) | larger))
            for label, place in zip(labels, places(labels), strict=True)
        ]
    keys += more
    ncols = _legend_columns([key.get_label() for key in keys], float(figure.get_size_inches()[0]))
    figure.legend(handles=keys, loc="outside lower center", ncols=ncols)


def _legend_columns(labels: Sequence[str], width_inches: float) -> int:
    """As many columns as the longest label leaves room for."""
    longest = max((min(len(label), LONGEST_LABEL) for label in labels), default=0)
    return max(1, min(len(labels), int(width_inches / (0.6 + 0.075 * longest))))


def line_look(position: int) -> dict[str, Any]:
    """Colour, marker and dash of the curve with this place (`places`); after seven curves the dash changes."""
    return {
        "color": PALETTE[position % len(PALETTE)],
        "marker": MARKERS[position % len(MARKERS)],
        "linestyle": LINES[position // len(PALETTE) % len(LINES)],
        "linewidth": 1.4,
        "markersize": 3.6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def bar_look(position: int) -> dict[str, Any]:
    """Colour and hatch of the label with this number."""
    return {
        "facecolor": PALETTE[position % len(PALETTE)],
        "hatch": HATCHES[position % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.5,
    }


def check_bar_labels(labels: Sequence[str]) -> None:
    """Raises UsageError if there are more labels than looks of bars."""
    if len(labels) > len(PALETTE):
        raise UsageError(f"{len(labels)} labels in one figure of bars; at most {len(PALETTE)} can be told apart")


def shortened(label: str, longest: int = LONGEST_LABEL) -> str:
    """``label`` on one line, as matplotlib can show it. A long one loses its middle."""
    shown = legible(label)
    if len(shown) <= longest:
        return shown
    head = longest * 2 // 3
    return f"{shown[:head]}…{shown[head - longest + 1 :]}"


def draw_curve(
    axis: Axes,
    look: dict[str, Any],
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


def whiskers(value: float, low: float | None, high: float | None) -> list[list[float]] | None:
    """The lengths of the whiskers of a bar, as matplotlib's `errorbar` wants them; None without an interval."""
    if low is None or high is None:
        return None
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def start_at_zero(axis: Axes) -> None:
    """The axis starts at 0, unless all values are so far above it that nothing could be told apart."""
    low, high = axis.dataLim.intervaly
    if low < 0.5 * high:
        axis.set_ylim(bottom=0)


def small_title(axis: Axes, text: str) -> None:
    """``text`` in small grey letters opposite the panel's title."""
    axis.set_title(text, loc="right", fontsize=7, fontweight="normal", color=GREY)
