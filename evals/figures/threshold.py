"""How UCC@k depends on the threshold of the similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evals.errors import DataError, UsageError
from evals.figures.curves import head
from evals.figures.grid import GREY, Part, new_figure
from evals.figures.method_looks import DASHES
from evals.figures.panels import draw_behind, draw_curve, finish_y_axis, head_facets, line_keys, line_look
from evals.figures.sheet import PAGE, SMALL, Sheet, styled
from evals.results.document import Row
from evals.similarity.catalogue import default_threshold
from evals.tables.parts import require_k, title_of, without_lone_average

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UCC = "ucc@k"


def threshold_figure(rows_of: Mapping[str, Sequence[Row]], *, k: int, sheet: Sheet = PAGE) -> Figure:
    """UCC@k against the threshold: a panel for each benchmark and similarity, a curve for each label.

    Raises:
        DataError: no file holds UCC@k at two thresholds of one similarity.
        UsageError: the files hold UCC@k, of other k.
    """
    from matplotlib.lines import Line2D

    rows = {
        label: [row for row in found if row.metric == UCC and row.k == k and row.threshold is not None]
        for label, found in rows_of.items()
    }
    thresholds: dict[tuple[str, str | None, str | None], set[float | None]] = {}
    for row in (row for found in rows.values() for row in found):
        thresholds.setdefault((row.benchmark, row.similarity, row.linkage), set()).add(row.threshold)
    panels = [panel for panel, found in thresholds.items() if len(found) > 1]
    held = [row.k for found in rows_of.values() for row in found if row.metric == UCC]
    if held:
        require_k(k, UCC, held)
    if not panels:
        raise DataError(
            f"no UCC@{k} at several thresholds in these files; make them with `quatro eval ucc FILES "
            f"--threshold 0.5,0.6,0.7,0.8,0.9 --k {k} -o FILE`"
        )
    names = without_lone_average(name for name, _, _ in panels)
    panels = [panel for name in names for panel in panels if panel[0] == name]
    labels = sheet.labels(list(rows))
    facets = labels.facets
    with styled():
        mark: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "linestyle": DASHES[2]}
        keys = line_keys(labels)
        if any(default_threshold(similarity) is not None for _, similarity, _ in panels):
            keys = [*keys, Line2D([], [], label="default threshold", **mark)]
        # A column for each similarity, so that what compares stands side by side.
        most = max(2, min(4, len({panel[1:] for panel in panels})))
        height = 1.9 if len(facets) == 1 else 1.15
        figure, (grid,) = new_figure(sheet, Part(sheet.width, len(panels), height, facets, most=most, keys=keys))
        for place, ((benchmark, similarity, linkage), axes) in enumerate(zip(panels, grid.panels, strict=True)):
            values = []
            for label, look in labels.with_looks:
                own = [row for row in rows[label] if (row.benchmark, row.similarity) == (benchmark, similarity)]
                own = sorted((row for row in own if row.linkage == linkage), key=lambda row: row.threshold or 0.0)
                at, heights = [row.threshold or 0.0 for row in own], [row.value for row in own]
                values += heights
                for axis, facet in zip(axes, facets, strict=True):
                    if label not in facet.labels:
                        draw_behind(axis, at, heights)
                    elif own:
                        draw_curve(axis, line_look(look), at, heights, [(row.ci_low, row.ci_high) for row in own])
            default = default_threshold(similarity)
            if default is not None:
                for axis in axes:
                    axis.axvline(default, zorder=1, **mark)
            finish_y_axis(axes, is_log=0 < 10 * min(values) < max(values))
            title, how = title_of(benchmark), ", ".join(filter(None, (similarity, linkage)))
            if len(facets) == 1:
                head(axes[0], title, how, grid.inches)
                axes[0].set_ylabel(f"UCC@{k}", fontsize=SMALL)
                axes[0].set_xlabel("threshold", fontsize=SMALL)
            else:
                head_facets(grid, place, [title, how, f"UCC@{k}"], x_label="threshold")
    return figure


def largest_common_k(rows_of: Mapping[str, Sequence[Row]]) -> int:
    """The largest k that every label has; raises UsageError where they have none in common."""
    common = set.intersection(*({row.k for row in rows if row.k is not None} for rows in rows_of.values()))
    if not common:
        raise UsageError(f"{', '.join(rows_of)} have no k in common; choose one with --k when you make the files")
    return max(common)
