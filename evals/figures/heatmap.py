"""Heatmaps of the similarities of one problem's correct answers, several policies side by side on one scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from evals.errors import DataError
from evals.figures.method_looks import PALETTE
from evals.figures.panels import GREY, new_grid, shortened, styled
from evals.studies.heatmap import Heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# White to dark blue: prints in grey as it looks in colour, for every kind of colour vision.
_COLORS = "Blues"
_CUT = 0.02
_INK = PALETTE[1]


def heatmap_figure(heatmaps: Mapping[str, Heatmap]) -> Figure:
    """A square for each label, with its clusters outlined. Darker is more alike.

    Raises:
        DataError: there is no heatmap.
    """
    if not heatmaps:
        raise DataError("no samples given; name one or more .jsonl files")
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    lowest = min(_low_end(heatmap) for heatmap in heatmaps.values())
    with styled():
        figure, axes = new_grid(len(heatmaps), num_columns=3, size=(3.1, 3.3))
        for axis, (label, heatmap) in zip(axes, heatmaps.items(), strict=True):
            image = axis.imshow(
                heatmap.similarity_CC, cmap=_COLORS, vmin=lowest, vmax=1.0, interpolation="nearest", rasterized=True
            )
            _outline(axis, heatmap)
            axis.set_title(shortened(label, 32))
            axis.set_xlabel(_caption(heatmap), fontsize=7.5)
            axis.grid(visible=False)
            axis.set_yticks([])
            axis.set_xticks([])
            for spine in axis.spines.values():
                spine.set_visible(True)
        first = next(iter(heatmaps.values()))
        measure = first.setting.similarity
        bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=28, pad=0.02, label=f"{measure} similarity")
        bar.locator = MaxNLocator(5)
        bar.formatter = FuncFormatter(lambda value, _: f"{value:g}")
        bar.update_ticks()
        about = f"{shortened(first.benchmark, 30)}, problem {shortened(first.id, 40)}"
        figure.suptitle(about, fontsize=8.5, color=GREY)
    return figure


def _low_end(heatmap: Heatmap) -> float:
    """Where the scale starts: a tenth below which almost no pair lies."""
    above = heatmap.similarity_CC[np.triu_indices(len(heatmap.similarity_CC), 1)]
    return min(0.9, float(np.floor(10 * np.quantile(above, _CUT)) / 10))


def _outline(axis: Axes, heatmap: Heatmap) -> None:
    """A frame around each cluster of two and more."""
    from matplotlib.patches import Rectangle

    if len(heatmap.sizes) == 1:  # the frame of the picture is its frame
        return
    start = 0
    for size in heatmap.sizes:
        if size > 1:
            axis.add_patch(Rectangle((start - 0.5, start - 0.5), size, size, fill=False, edgecolor=_INK, linewidth=1.0))
        start += size


def _caption(heatmap: Heatmap) -> str:
    reach = heatmap.setting.reach("≥")
    at = f" at{reach}" if reach else ""
    clusters = "1 cluster" if len(heatmap.sizes) == 1 else f"{len(heatmap.sizes)} clusters"
    return f"{len(heatmap.order_C)} correct of {heatmap.n} samples\n{clusters}{at}"
