"""How alike correct answers are: histograms of pairwise similarity, benchmarks down, measures across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.errors import DataError
from evals.figures.grid import Part, new_figure
from evals.figures.method_looks import DASHES, Look
from evals.figures.panels import line_keys, line_look, panel_title, small_title
from evals.figures.sheet import PAGE, SMALL, Sheet, fitted, styled
from evals.results.document import Row
from evals.similarity.catalogue import SIMILARITIES, default_threshold
from evals.studies.similarity import METRIC
from evals.tables.parts import in_order, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The x axis leaves out this share of the pairs at its left end.
_CUT = 0.005


def similarity_figure(rows_of: Mapping[str, Sequence[Row]], *, sheet: Sheet = PAGE) -> Figure:
    """A panel of histograms for each benchmark and similarity. Dashed: medians; grey: default threshold.

    More than four labels have a row for each method.

    ``rows_of`` are the rows of `similarity_result` by label.

    Raises:
        DataError: there is no such row, or a row has no histogram.
    """
    rows = {label: [row for row in found if row.metric == METRIC] for label, found in rows_of.items()}
    everyone = [row for found in rows.values() for row in found]
    benchmarks = in_order(row.benchmark for row in everyone)
    measures = list(dict.fromkeys(row.similarity or "" for row in everyone))
    if not everyone:
        raise DataError("no similarities in these files; make them with `quatro eval similarity FILES -o FILE`")
    from matplotlib.lines import Line2D

    labels = sheet.labels(list(rows))
    lowest = {name: _lowest([row for row in everyone if row.similarity == name], name) for name in measures}
    with styled():
        keys = [
            *line_keys(labels, is_whole=True),
            Line2D([], [], color="#444444", linewidth=1.0, linestyle=DASHES[1], label="median"),
        ]
        if any(default_threshold(measure) is not None for measure in measures):
            keys.append(Line2D([], [], color="#999999", linewidth=1.0, linestyle=DASHES[2], label="default threshold"))
        lines = [(benchmark, facet) for benchmark in benchmarks for facet in labels.facets]
        across = len(measures) if sheet.width / len(measures) >= 1.45 else 2
        least = sheet.width / min(across, len(measures))
        part = Part(sheet.width, len(lines) * len(measures), 1.35, least=least, most=across, keys=keys)
        figure, (grid,) = new_figure(sheet, part)
        places = [(benchmark, facet, measure) for benchmark, facet in lines for measure in measures]
        for place, (axis, (benchmark, facet, measure)) in enumerate(zip(grid.axes, places, strict=True)):
            found = [
                (look, row)
                for label, look in labels.with_looks
                for row in rows[label]
                if label in facet.labels and (row.benchmark, row.similarity) == (benchmark, measure)
            ]
            _draw(axis, found, measure)
            axis.set_xlim(lowest[measure], 1.0)
            if place < len(measures) or across < len(measures):
                known = SIMILARITIES.get(measure)
                panel_title(axis, known.title if known is not None else measure, grid.inches / 2)
            if place % across == 0:
                head = [title_of(benchmark), *([facet.title] if facet.title else []), "pairs, %"]
                axis.set_ylabel("\n".join(fitted(text, 1.2, size=SMALL) for text in head), fontsize=SMALL)
            if place + across >= len(places):
                axis.set_xlabel("similarity of two answers", fontsize=SMALL)
    return figure


def histogram_of(row: Row) -> list[int]:
    """The counts of a row; raises DataError if it has none."""
    counts = (row.model_extra or {}).get("histogram")
    if isinstance(counts, list) and all(type(count) is int and count >= 0 for count in counts) and sum(counts):
        return counts
    raise DataError(f"the row of {row.similarity} of {row.benchmark} has no histogram: expected a list of counts")


def _draw(axis: Axes, rows: Sequence[tuple[Look, Row]], measure: str) -> None:
    for look, row in rows:
        counts = histogram_of(row)
        edges = [place / len(counts) for place in range(len(counts) + 1)]
        share = [100 * count / sum(counts) for count in counts]
        axis.stairs(share, edges, color=look.color, linewidth=1.1, linestyle=look.dash)
        axis.stairs(share, edges, color=look.color, alpha=0.15, fill=True, linewidth=0)
        axis.axvline(row.value, color=look.color, linewidth=1.0, linestyle=DASHES[1])
        # The label's marker on its median: without colours, that tells them apart.
        marker = line_look(look) | {"linestyle": "none", "markersize": 4.5}
        axis.plot([row.value], [0.95], transform=axis.get_xaxis_transform(), zorder=5, **marker)
    default = default_threshold(measure)
    if default is not None:
        axis.axvline(default, color="#999999", linewidth=1.0, linestyle=DASHES[2])
    axis.set_ylim(bottom=0)
    num_pairs = [(row.model_extra or {}).get("num_pairs") for _, row in rows]
    if len(set(num_pairs)) == 1 and isinstance(num_pairs[0], int):
        small_title(axis, f"{num_pairs[0]:,} pairs")


def _lowest(rows: Sequence[Row], measure: str) -> float:
    """Where the x axis of a column begins, the same for all benchmarks."""
    return min((default_threshold(measure) or 1.0) - 0.1, *(_start(histogram_of(row)) for row in rows))


def _start(counts: Sequence[int]) -> float:
    """The tenth below which almost no pair lies."""
    below = 0
    for place, count in enumerate(counts):
        below += count
        if below > _CUT * sum(counts):
            return int(10 * place / len(counts)) / 10
    return 0.0
