"""How UCC@k depends on the threshold, and on clustering n answers instead of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evals.errors import DataError, UsageError
from evals.figures.curves import draw_over_k, finish_k_axis, head
from evals.figures.grid import GREY, Part, new_figure, styled
from evals.figures.method_looks import DASHES, Facet, Look, facets_of, looks_of
from evals.figures.panels import draw_behind, draw_curve, finish_y_axis, head_facets, line_keys, line_look
from evals.figures.sheet import PAGE, SMALL, Sheet
from evals.results.document import Row
from evals.similarity.catalogue import default_threshold
from evals.similarity.setting import Setting
from evals.studies.partition_bias import RECLUSTERED
from evals.tables.titles import title_of, without_lone_average

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

UCC = "ucc@k"
Panel = tuple[str, str | None, str | None]


def threshold_figure(rows_of: Mapping[str, Sequence[Row]], *, k: int, sheet: Sheet = PAGE) -> Figure:
    """UCC@k against the threshold: a panel for each benchmark and similarity, a curve for each label.

    Raises:
        DataError: no file holds UCC@k at two thresholds of one similarity.
        UsageError: no row has this ``k``.
    """
    from matplotlib.lines import Line2D

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
    labels = list(rows)
    shown, looks = sheet.shown(labels), looks_of(labels)
    facets = facets_of(labels, shown)
    with styled():
        mark: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "linestyle": DASHES[2]}
        keys = line_keys(labels, looks, shown, facets)
        if any(default_threshold(panel[1]) is not None for panel in drawn):
            keys = [*keys, Line2D([], [], label="default threshold", **mark)]
        # A column for each similarity, so that what compares stands side by side.
        most = max(2, min(4, len({panel[1:] for panel in drawn})))
        part = _part(len(drawn), facets, keys, most=most)
        figure, (grid,) = new_figure(sheet, [part])
        for place, (panel, axes) in enumerate(zip(drawn, grid.panels, strict=True)):
            of_label = {
                label: sorted((row for row in found if _panel(row) == panel), key=lambda row: row.threshold or 0.0)
                for label, found in rows.items()
            }
            for axis, facet in zip(axes, facets, strict=True):
                for label, look in zip(labels, looks, strict=True):
                    _draw_thresholds(axis, of_label[label], look, is_own=label in facet.labels)
                default = default_threshold(panel[1])
                if default is not None:
                    axis.axvline(default, zorder=1, **mark)
            values = [row.value for found in of_label.values() for row in found]
            finish_y_axis(axes, is_log=0 < 10 * min(values) < max(values))
            _head_panel(axes, facets, panel, part, sheet, place=place, labels=("threshold", f"UCC@{k}"))
    return figure


def _part(num_panels: int, facets: Sequence[Facet], keys: Sequence[Line2D], *, most: int) -> Part:
    return Part(num_panels, 1.9 if len(facets) == 1 else 1.15, len(facets), most=most, keys=keys)


def _draw_thresholds(axis: Axes, rows: Sequence[Row], look: Look, *, is_own: bool) -> None:
    at, values = [row.threshold or 0.0 for row in rows], [row.value for row in rows]
    if not is_own:
        draw_behind(axis, at, values)
    elif rows:
        draw_curve(axis, line_look(look), at, values, [(row.ci_low, row.ci_high) for row in rows])


def _head_panel(
    axes: Sequence[Axes],
    facets: Sequence[Facet],
    panel: Panel,
    part: Part,
    sheet: Sheet,
    *,
    place: int,
    labels: tuple[str, str],
) -> None:
    """Titles and labels of a panel: its benchmark and clustering above it, or beside it below the names of methods."""
    benchmark, how = title_of(panel[0]), ", ".join(filter(None, panel[1:]))
    x_label, y_label = labels
    if len(facets) == 1:
        head(axes[0], benchmark, how, sheet.width / part.columns(sheet.width)[2])
        axes[0].set_ylabel(y_label, fontsize=SMALL)
        axes[0].set_xlabel(x_label, fontsize=SMALL)
        return
    head_facets(axes, facets, [benchmark, how, y_label], part, sheet, place=place, x_label=x_label)


def largest_common_k(rows_of: Mapping[str, Sequence[Row]]) -> int:
    """The largest k that every label has; raises UsageError where they have none in common."""
    common = set.intersection(*({row.k for row in rows if row.k is not None} for rows in rows_of.values()))
    if not common:
        raise UsageError(f"{', '.join(rows_of)} have no k in common; choose one with --k when you make the files")
    return max(common)


def bias_figure(rows_of: Mapping[str, Sequence[Row]], *, sheet: Sheet = PAGE) -> Figure:
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
    labels = list(rows_of)
    shown, looks = sheet.shown(labels), looks_of(labels)
    facets = facets_of(labels, shown, num_lines=2 * len(labels) if len(labels) > 2 else 0)
    with styled():
        keys = [
            *line_keys(labels, [look._replace(dash="solid") for look in looks], shown, facets),
            Line2D([], [], color=GREY, linewidth=1.4, label="UCC@k, clusters of all n"),
            Line2D([], [], color=GREY, linewidth=1.4, linestyle=DASHES[1], label="k samples clustered afresh"),
        ]
        part = _part(len(drawn), facets, keys, most=2)
        figure, (grid,) = new_figure(sheet, [part])
        for place, (panel, axes) in enumerate(zip(drawn, grid.panels, strict=True)):
            own = [row for row in everyone if _panel(row) == panel]
            for axis, facet in zip(axes, facets, strict=True):
                for label, look in zip(labels, looks, strict=True):
                    if label in facet.labels:
                        _draw_pair(axis, [row for row in rows_of[label] if _panel(row) == panel], look)
            finish_k_axis(axes[0], [row.k for row in own if row.k is not None], grid.inches)
            finish_y_axis(axes)
            setting = next(Setting.of(row) for row in own)
            reach = setting.reach("≥") if setting is not None else ""
            named = (panel[0], f"{panel[1]}{reach}" if reach else panel[1], None if reach else panel[2])
            _head_panel(axes, facets, named, part, sheet, place=place, labels=("k", "distinct answers"))
    return figure


def _draw_pair(axis: Axes, rows: Sequence[Row], of_label: Look) -> None:
    look = line_look(of_label._replace(dash="solid"))
    draw_over_k(axis, [row for row in rows if row.metric == UCC], look)
    hollow = line_look(of_label._replace(dash=DASHES[1], is_hollow=True))
    draw_over_k(axis, [row for row in rows if row.metric == RECLUSTERED], hollow)


def _panel(row: Row) -> Panel:
    return row.benchmark, row.similarity, row.linkage


def _without_lone_average(panels: Sequence[Panel]) -> list[Panel]:
    """Panels by benchmark. The average comes last, and is left out if there is only one benchmark."""
    names = without_lone_average(panel[0] for panel in panels)
    return [panel for name in names for panel in panels if panel[0] == name]
