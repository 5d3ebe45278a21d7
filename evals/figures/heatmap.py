"""Heatmaps of the similarities of one problem's answers, several policies side by side on one scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from evals.errors import DataError
from evals.figures.grid import GREY, Part, new_figure, note_text, wrapped
from evals.figures.panels import panel_title
from evals.figures.sheet import PAGE, SMALL, Sheet, styled
from evals.studies.heatmap import Heatmap
from evals.tables.parts import title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# White to dark blue: prints in grey as it looks in colour, for every kind of colour vision.
_COLORS = "Blues"
_INK = "#C84A00"
_MOST_INCHES = 2.9  # of a square
_BAR_INCHES, _SIDE_INCHES = 0.8, 0.18  # the scale at the right, and the words at the left of a square


def heatmap_figure(heatmaps: Mapping[str, Heatmap], *, sheet: Sheet = PAGE) -> Figure:
    """A square for each label, with the clusters of correct answers outlined. Darker is more alike.

    Wrong answers, if there are some, stand behind the correct ones, beyond a dashed line. Colours go from 0 to 1.

    Raises:
        DataError: there is no heatmap.
    """
    if not heatmaps:
        raise DataError("no samples given; name one or more .jsonl files")
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    shown = sheet.shown(list(heatmaps))
    first = next(iter(heatmaps.values()))
    about = [f"{title_of(first.benchmark)}, problem {first.id}", "frames: clusters of correct answers"]
    note = note_text(wrapped(about, sheet.width - 0.15), sheet.width)
    squares = Part(sheet.width, len(heatmaps), 1.0, least=1.5, note=note)
    across = squares.columns[2]
    side = min((sheet.width - _BAR_INCHES) / across - _SIDE_INCHES, _MOST_INCHES)
    share = min(1.0, (across * (side + _SIDE_INCHES) + _BAR_INCHES) / sheet.width)  # of the width that is used
    captions = {label: _caption(heatmap, side) for label, heatmap in heatmaps.items()}
    below = 0.14 * max(caption.count("\n") + 1 for caption in captions.values())
    with styled():
        figure, (grid,) = new_figure(sheet, replace(squares, height=side + 0.3 + below))
        engine = figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        engine.set(rect=((1 - share) / 2, 0, share, 1))
        for axis, (label, heatmap) in zip(grid.axes, heatmaps.items(), strict=True):
            image = axis.imshow(
                heatmap.similarity_AA, cmap=_COLORS, vmin=0.0, vmax=1.0, interpolation="nearest", rasterized=True
            )
            _outline(axis, heatmap)
            panel_title(axis, shown[label], side)
            axis.set_xlabel(captions[label], fontsize=SMALL)
            _mark_wrong(axis, heatmap)
            axis.grid(visible=False)
            for spine in axis.spines.values():
                spine.set_visible(True)
        bar = figure.colorbar(image, ax=grid.axes, shrink=0.8, aspect=28, pad=0.02)
        bar.set_label(f"{first.setting.similarity} similarity\nscale 0 to 1", fontsize=SMALL)
        bar.locator = MaxNLocator(5)
        bar.formatter = FuncFormatter(lambda value, _: f"{value:g}")
        bar.update_ticks()
        figure.supxlabel(note, fontsize=SMALL, color=GREY)
    return figure


def _outline(axis: Axes, heatmap: Heatmap) -> None:
    """A frame around each cluster of two and more."""
    from matplotlib.patches import Rectangle

    if len(heatmap.sizes) == 1 and heatmap.num_correct == len(heatmap.order_A):  # the frame of the picture is its frame
        return
    start = 0
    for size in heatmap.sizes:
        if size > 1:
            axis.add_patch(Rectangle((start - 0.5, start - 0.5), size, size, fill=False, edgecolor=_INK, linewidth=0.9))
        start += size


def _mark_wrong(axis: Axes, heatmap: Heatmap) -> None:
    """A dashed line between correct and wrong answers, and their names at the side."""
    num_shown = len(heatmap.order_A)
    axis.set_xticks([])
    axis.set_yticks([])
    if heatmap.num_correct == num_shown:
        return
    edge = heatmap.num_correct - 0.5
    if heatmap.num_correct:
        axis.axhline(edge, color="#000000", linewidth=0.9, linestyle=(0, (4, 2)))
        axis.axvline(edge, color="#000000", linewidth=0.9, linestyle=(0, (4, 2)))
    parts = {"correct": heatmap.num_correct / num_shown, "wrong": 1 - heatmap.num_correct / num_shown}
    middles = {"correct": edge / 2, "wrong": (edge + num_shown) / 2}
    # A name stands at its part of the side if that part is as long as the name.
    named = [name for name, share in parts.items() if share > 0.2] or ["wrong"]
    axis.set_yticks([middles[name] for name in named], named, rotation=90, va="center", fontsize=SMALL)
    axis.tick_params(axis="y", length=0)


def _caption(heatmap: Heatmap, inches: float) -> str:
    """How many answers and clusters, as it fits below a square."""
    num_wrong = len(heatmap.order_A) - heatmap.num_correct
    counts = (
        f"{heatmap.num_correct} correct of {heatmap.n}" if not num_wrong else f"{heatmap.n} answers, {num_wrong} wrong"
    )
    clusters = "1 cluster" if len(heatmap.sizes) == 1 else f"{len(heatmap.sizes)} clusters"
    reach = heatmap.setting.reach("≥").split(", ")
    return wrapped([counts, f"{clusters}{' at' if reach[0] else ''}{reach[0]}", *reach[1:]], inches, joint=", ")
