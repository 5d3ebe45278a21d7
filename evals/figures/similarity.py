"""How alike answers are: histograms of pairwise similarity, and heatmaps of one problem's answers.

Histograms have benchmarks down and measures across; heatmaps show several policies side by side on one scale.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from evals.errors import DataError
from evals.figures.grid import GREY, Part, new_figure, note_text, wrapped
from evals.figures.method_looks import DASHES, Look
from evals.figures.panels import line_keys, line_look, panel_title, small_title
from evals.figures.sheet import PAGE, SMALL, Axes, Figure, Sheet, fitted, styled
from evals.metrics.studies.similarity import METRIC, Heatmap
from evals.results.document import Row
from evals.results.shown import in_order, title_of
from evals.similarity import SIMILARITIES, default_threshold

# The x axis leaves out this share of the pairs at its left end.
_CUT = 0.005
# White to dark blue: prints in grey as it looks in colour, for every kind of colour vision.
_COLORS = "Blues"
_INK = "#C84A00"
_MOST_INCHES = 2.9  # of a square
_BAR_INCHES, _SIDE_INCHES = 0.8, 0.18  # the scale at the right, and the words at the left of a square


def similarity_figure(rows_of: Mapping[str, Sequence[Row]], *, sheet: Sheet = PAGE) -> Figure:
    """A panel of histograms for each benchmark and similarity. Dashed: medians; grey: default threshold.

    More than four labels have a row for each method.

    ``rows_of`` are the rows of `similarity_result` by label.

    Raises DataError if there is no such row, or a row has no histogram.
    """
    rows = {label: [row for row in found if row.metric == METRIC] for label, found in rows_of.items()}
    everyone = [row for found in rows.values() for row in found]
    benchmarks = in_order(row.benchmark for row in everyone)
    measures = list(dict.fromkeys(row.similarity or "" for row in everyone))
    if not everyone:
        raise DataError("no similarities in these files; make them with `quatro eval similarity FILES -o FILE`")
    from matplotlib.lines import Line2D

    labels = sheet.labels(list(rows))
    starts = {name: [_start(histogram_of(row)) for row in everyone if row.similarity == name] for name in measures}
    lowest = {name: min((default_threshold(name) or 1.0) - 0.1, *found) for name, found in starts.items()}
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
    if rows and type(num_pairs[0]) is int and all(one == num_pairs[0] for one in num_pairs):
        small_title(axis, f"{num_pairs[0]:,} pairs")


def _start(counts: Sequence[int]) -> float:
    """The tenth below which almost no pair lies."""
    place = bisect_right(list(accumulate(counts)), _CUT * sum(counts))
    return int(10 * place / len(counts)) / 10


def heatmap_figure(heatmaps: Mapping[str, Heatmap], *, sheet: Sheet = PAGE) -> Figure:
    """A square for each label, darker where answers are more alike, with the clusters of correct answers outlined.

    Wrong answers, if there are some, stand behind them, beyond a dashed line.
    """
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
