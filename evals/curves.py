"""Pass@k and UCC@k against k, several models over one another, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from evals.errors import DataError
from evals.figures import MARKERS, PALETTE, STYLE
from evals.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class CurvePanel:
    """One picture: a curve a label over k. ``is_share`` values are drawn as percent, from 0 up."""

    title: str
    y_label: str
    rows: Mapping[str, Sequence[Row]]
    is_share: bool = False


def curves_figure(panels: Sequence[CurvePanel], *, num_columns: int = 2) -> Figure:
    """Every panel's curves on a logarithmic k axis; one colour and marker a label throughout, intervals as bands.

    Raises:
        DataError: there is no panel, or a panel without a single row.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    if not panels or not all(any(panel.rows.values()) for panel in panels):
        raise DataError("nothing to draw: a panel has no rows with a k")
    labels = list(dict.fromkeys(label for panel in panels for label in panel.rows))
    num_columns = min(num_columns, len(panels))
    num_rows = -(-len(panels) // num_columns)
    with matplotlib.rc_context(cast("Any", STYLE)):
        figure = Figure(
            figsize=(3.4 * num_columns, 2.4 * num_rows + 0.35), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
        )
        axes = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
        for axis, panel in zip(axes, panels, strict=False):
            scale = 100.0 if panel.is_share else 1.0
            for label, rows in panel.rows.items():
                position = labels.index(label)
                color = PALETTE[position % len(PALETTE)]
                points = sorted((row for row in rows if row.k is not None), key=lambda row: row.k or 0)
                ks = [row.k for row in points]
                axis.plot(
                    ks,
                    [scale * row.value for row in points],
                    color=color,
                    marker=MARKERS[position % len(MARKERS)],
                    markersize=3.5,
                    linewidth=1.4,
                )
                if all(row.ci_low is not None and row.ci_high is not None for row in points):
                    low = [scale * (row.ci_low or 0.0) for row in points]
                    high = [scale * (row.ci_high or 0.0) for row in points]
                    axis.fill_between(ks, low, high, color=color, alpha=0.13, linewidth=0)
            axis.set_xscale("log", base=2)
            axis.set_xticks(ks, [str(k) for k in ks])
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
            axis.set_title(panel.title)
            axis.set_xlabel("k")
            axis.set_ylabel(panel.y_label)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        keys = [
            Line2D([], [], color=PALETTE[i % len(PALETTE)], marker=MARKERS[i % len(MARKERS)], markersize=4, label=label)
            for i, label in enumerate(labels)
        ]
        figure.legend(handles=keys, loc="outside lower center", ncols=min(4, len(keys)))
    return figure
