"""How UCC@k depends on the threshold, and on clustering n answers instead of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.clustering import DEFAULT_THRESHOLDS
from evals.errors import DataError, UsageError
from evals.figures.curves import draw_over_k, finish_k_axis
from evals.figures.method_looks import places
from evals.figures.panels import (
    GREY,
    LINES,
    add_legend,
    draw_curve,
    line_look,
    new_grid,
    shortened,
    small_title,
    start_at_zero,
    styled,
)
from evals.figures.style import make_logarithmic
from evals.results.document import AVERAGE, Row
from evals.similarity.setting import Setting
from evals.studies.partition_bias import RECLUSTERED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

UCC = "ucc@k"
Panel = tuple[str, str | None, str | None]


def threshold_figure(rows_of: Mapping[str, Sequence[Row]], *, k: int) -> Figure:
    """UCC@k against the threshold: a panel for each benchmark and similarity, a curve for each label.

    Raises:
        DataError: no file holds UCC@k at two thresholds of one similarity.
        UsageError: no row has this ``k``.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullLocator

    rows = {
        label: [row for row in found if row.metric == UCC and row.k == k and row.threshold is not None]
        for label, found in rows_of.items()
    }
    everyone = [row for found in rows.values() for row in found]
    thresholds: dict[Panel, set[float | None]] = {}
    for row in everyone:
        thresholds.setdefault(_panel(row), set()).add(row.threshold)
    drawn = _without_lone_average([panel for panel, found in thresholds.items() if len(found) > 1])
    held = {row.k for found in rows_of.values() for row in found if row.metric == UCC and row.threshold is not None}
    if held and k not in held:
        known = ", ".join(map(str, sorted(one for one in held if one is not None)))
        raise UsageError(f"--k {k}: no UCC@{k} in these files, only k = {known}; choose one of these")
    if not drawn:
        raise DataError(
            f"no UCC@{k} at several thresholds in these files; make them with `quatro eval ucc FILES "
            f"--threshold 0.5,0.6,0.7,0.8,0.9 --k {k} -o FILE`"
        )
    with styled():
        # A column for each similarity, so that what compares stands side by side.
        num_kinds = len({panel[1:] for panel in drawn})
        num_columns = num_kinds if num_kinds > 1 else 2 if len(drawn) <= 4 else 3
        more = [Line2D([], [], color=GREY, linewidth=1.0, linestyle=LINES[2], label="default threshold")]
        size = (3.4, 2.2) if num_columns <= 2 else (2.8, 2.0)
        grid = new_grid(len(drawn), num_columns=num_columns, size=size, labels=[*rows, *_labels(more)])
        for axis, panel in zip(grid.axes, drawn, strict=True):
            for place, found in zip(places(rows), rows.values(), strict=True):
                points = sorted((row for row in found if _panel(row) == panel), key=lambda row: row.threshold or 0.0)
                draw_curve(
                    axis,
                    line_look(place),
                    [row.threshold or 0.0 for row in points],
                    [row.value for row in points],
                    [(row.ci_low, row.ci_high) for row in points],
                )
            benchmark, similarity, linkage = panel
            default = DEFAULT_THRESHOLDS.get(similarity or "")
            if default is not None:
                axis.axvline(default, color=GREY, linewidth=1.0, linestyle=LINES[2], zorder=1)
            values = [row.value for row in everyone if _panel(row) == panel]
            if 0 < 10 * min(values) < max(values):
                make_logarithmic(axis)
                axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.yaxis.set_minor_locator(NullLocator())
            else:
                start_at_zero(axis)
            axis.set_title(shortened(benchmark, 24))
            small_title(axis, f"{similarity}, {linkage}")
            axis.set_xlabel("threshold: the same solution from here")
            axis.set_ylabel(f"UCC@{k}")
        add_legend(grid.figure, list(rows), more=more)
    return grid.figure


def largest_common_k(rows_of: Mapping[str, Sequence[Row]]) -> int:
    """The largest k that every label has; raises UsageError where they have none in common."""
    common = set.intersection(*({row.k for row in rows if row.k is not None} for rows in rows_of.values()))
    if not common:
        raise UsageError(f"{', '.join(rows_of)} have no k in common; choose one with --k when you make the files")
    return max(common)


def bias_figure(rows_of: Mapping[str, Sequence[Row]]) -> Figure:
    """UCC@k by the estimator (solid) and from clustering k drawn samples afresh (dashed), by benchmark.

    ``rows_of`` are the rows of `reclustered_result` by label.

    Raises:
        DataError: a label lacks one of the two.
    """
    from matplotlib.lines import Line2D

    for label, found in rows_of.items():
        if not {UCC, RECLUSTERED} <= {row.metric for row in found}:
            raise DataError(f"{label}: needs UCC@k and its re-clustered values; make both with `quatro eval bias`")
    everyone = [row for found in rows_of.values() for row in found]
    panels = dict.fromkeys(
        (row.benchmark, row.similarity, row.linkage) for row in everyone if row.metric == RECLUSTERED
    )
    drawn = _without_lone_average(list(panels))
    with styled():
        more = [
            Line2D([], [], color=GREY, linewidth=1.4, label="UCC@k, clusters of all n"),
            Line2D([], [], color=GREY, linewidth=1.4, linestyle=LINES[1], label="k samples clustered afresh"),
        ]
        grid = new_grid(len(drawn), num_columns=2, size=(3.4, 2.4), labels=[*rows_of, *_labels(more)])
        for axis, panel in zip(grid.axes, drawn, strict=True):
            for place, found in zip(places(rows_of), rows_of.values(), strict=True):
                _draw_pair(axis, [row for row in found if _panel(row) == panel], place)
            finish_k_axis(axis, [row.k for row in everyone if _panel(row) == panel and row.k is not None])
            start_at_zero(axis)
            axis.set_title(shortened(panel[0], 24))
            setting = next(Setting.of(row) for row in everyone if _panel(row) == panel)
            reach = setting.reach("≥") if setting is not None else ""
            small_title(axis, f"{panel[1]}{reach}")
            axis.set_ylabel("distinct correct answers")
        add_legend(grid.figure, list(rows_of), more=more)
    return grid.figure


def _draw_pair(axis: Axes, rows: Sequence[Row], place: int) -> None:
    look = line_look(place) | {"linestyle": "solid"}
    draw_over_k(axis, [row for row in rows if row.metric == UCC], look)
    hollow = {
        "linestyle": LINES[1],
        "markerfacecolor": "white",
        "markeredgecolor": look["color"],
        "markeredgewidth": 0.9,
    }
    draw_over_k(axis, [row for row in rows if row.metric == RECLUSTERED], look | hollow)


def _labels(keys: Sequence[Line2D]) -> list[str]:
    return [str(key.get_label()) for key in keys]


def _panel(row: Row) -> Panel:
    return row.benchmark, row.similarity, row.linkage


def _without_lone_average(panels: Sequence[Panel]) -> list[Panel]:
    """Panels by benchmark. The average comes last, and is left out if there is only one benchmark."""
    names = list(dict.fromkeys(panel[0] for panel in panels if panel[0] != AVERAGE))
    if len(names) > 1:
        names.append(AVERAGE)
    return [panel for name in names for panel in panels if panel[0] == name]
