"""How alike correct answers are: histograms of pairwise similarity, benchmarks down, measures across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.clustering import DEFAULT_THRESHOLDS
from evals.errors import DataError
from evals.figures.method_looks import PALETTE, places
from evals.figures.panels import LINES, add_legend, line_look, new_grid, shortened, small_title, styled
from evals.results.document import Row
from evals.studies.similarity import METRIC

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {"tfidf": "TF-IDF", "rouge-l": "ROUGE-L", "jaccard": "Jaccard", "edit": "edit", "exact": "exact"}
# The x axis leaves out this share of the pairs at its left end.
_CUT = 0.005


def similarity_figure(rows_of: Mapping[str, Sequence[Row]]) -> Figure:
    """A panel of histograms for each benchmark and similarity. Dashed: medians; grey: default threshold.

    ``rows_of`` are the rows of `similarity_result` by label.

    Raises:
        DataError: there is no such row, or a row has no histogram.
    """
    rows = {label: [row for row in found if row.metric == METRIC] for label, found in rows_of.items()}
    everyone = [row for found in rows.values() for row in found]
    benchmarks = list(dict.fromkeys(row.benchmark for row in everyone))
    measures = list(dict.fromkeys(row.similarity or "" for row in everyone))
    if not everyone:
        raise DataError("no similarities in these files; make them with `quatro eval similarity FILES -o FILE`")
    from matplotlib.lines import Line2D

    with styled():
        size = (2.3, 1.75) if len(measures) > 2 else (3.4, 2.1)
        more = [
            Line2D([], [], color="#444444", linewidth=1.1, linestyle=LINES[1], label="median"),
            Line2D([], [], color="#999999", linewidth=1.1, linestyle=LINES[2], label="default threshold"),
        ]
        keys = [*rows, *(str(key.get_label()) for key in more)]
        grid = new_grid(len(benchmarks) * len(measures), num_columns=len(measures), size=size, labels=keys)
        lowest = {
            measure: _lowest([row for row in everyone if row.similarity == measure], measure) for measure in measures
        }
        for place, axis in enumerate(grid.axes):
            benchmark, measure = benchmarks[place // len(measures)], measures[place % len(measures)]
            found = {
                label: next((row for row in own if (row.benchmark, row.similarity) == (benchmark, measure)), None)
                for label, own in rows.items()
            }
            _draw(axis, found, measure)
            axis.set_xlim(lowest[measure], 1.0)
            if place < len(measures):
                axis.set_title(_TITLES.get(measure, measure))
            if place % len(measures) == 0:
                axis.set_ylabel(f"{shortened(benchmark, 24)}\npairs, %")
            if place >= len(measures) * (len(benchmarks) - 1):
                axis.set_xlabel("similarity of two correct answers", fontsize=7.5)
        add_legend(grid.figure, list(rows), more=more)
    return grid.figure


def histogram_of(row: Row) -> list[int]:
    """The counts of a row; raises DataError if it has none."""
    counts = (row.model_extra or {}).get("histogram")
    if isinstance(counts, list) and all(type(count) is int and count >= 0 for count in counts) and sum(counts):
        return counts
    raise DataError(f"the row of {row.similarity} of {row.benchmark} has no histogram: expected a list of counts")


def _draw(axis: Axes, rows: Mapping[str, Row | None], measure: str) -> None:
    for position, row in zip(places(rows), rows.values(), strict=True):
        if row is None:
            continue
        counts = histogram_of(row)
        edges = [place / len(counts) for place in range(len(counts) + 1)]
        share = [100 * count / sum(counts) for count in counts]
        color = PALETTE[position % len(PALETTE)]
        dash = LINES[position // len(PALETTE) % len(LINES)]
        axis.stairs(share, edges, color=color, linewidth=1.3, linestyle=dash)
        axis.stairs(share, edges, color=color, alpha=0.15, fill=True, linewidth=0)
        axis.axvline(row.value, color=color, linewidth=1.1, linestyle=LINES[1])
        # The label's marker on its median: without colours, that tells them apart.
        marker = line_look(position) | {"linestyle": "none", "markersize": 4.5}
        axis.plot([row.value], [0.95], transform=axis.get_xaxis_transform(), zorder=5, **marker)
    if measure in DEFAULT_THRESHOLDS:
        axis.axvline(DEFAULT_THRESHOLDS[measure], color="#999999", linewidth=1.1, linestyle=LINES[2])
    axis.set_ylim(bottom=0)
    num_pairs = [(row.model_extra or {}).get("num_pairs") for row in rows.values() if row is not None]
    if len(set(num_pairs)) == 1 and isinstance(num_pairs[0], int):
        small_title(axis, f"{num_pairs[0]:,} pairs")


def _lowest(rows: Sequence[Row], measure: str) -> float:
    """Where the x axis of a column begins, the same for all benchmarks."""
    return min(DEFAULT_THRESHOLDS.get(measure, 1.0) - 0.1, *(_start(histogram_of(row)) for row in rows))


def _start(counts: Sequence[int]) -> float:
    """The tenth below which almost no pair lies."""
    below = 0
    for place, count in enumerate(counts):
        below += count
        if below > _CUT * sum(counts):
            return int(10 * place / len(counts)) / 10
    return 0.0
