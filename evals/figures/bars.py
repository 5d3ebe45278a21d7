"""Bars in groups: flips by difficulty, and UCR beside pass@1 of several sets of samples."""

from collections.abc import Mapping, Sequence

from evals.errors import DataError, UsageError
from evals.figures.grid import GREY, Part, new_figure
from evals.figures.method_looks import HATCHES, Look
from evals.figures.panels import bar_keys, bar_look, panel_title, write_inside
from evals.figures.sheet import PAGE, SMALL, Axes, Figure, Sheet, fitted, inches_of, styled
from evals.intervals import kinds_text
from evals.metrics.flips import BUCKETS, DEFAULT_K, FLIP, FLIP_AT_K, HARDEST, bucket_bounds
from evals.results.document import AVERAGE, Row
from evals.results.shown import in_order, title_of, without_lone_average
from evals.similarity import Setting
from evals.tables.parts import require_k

_UNSOLVED = "never"
_LINE_POINTS = 9.5
_SHARES = (1.0, 4.4)  # of the panel: the problems never solved, and the buckets


def flips_figure(rows_of: Mapping[str, Sequence[Row]], *, k: int | None = None, sheet: Sheet = PAGE) -> Figure:
    """Newly solved problems and flip@k of every bucket, a panel for each benchmark and a bar for each label.

    ``rows_of`` are the rows of `flips_result` by label. Under each bucket stands how many problems it holds. ``k`` None
    is 16, else the smallest that there is.

    Raises:
        DataError: two labels disagree on a bucket's number of problems.
        UsageError: no row has this ``k``, or there are more labels than can be told apart.
    """
    labels = list(rows_of)
    _check_labels(labels)
    held = {row.k for found in rows_of.values() for row in found if row.k is not None}
    if k is None:
        k = DEFAULT_K if DEFAULT_K in held else min(held, default=DEFAULT_K)
    require_k(k, FLIP_AT_K, held)
    rows = {label: [row for row in rows if row.k == k or row.metric == FLIP] for label, rows in rows_of.items()}
    names = in_order(row.benchmark for found in rows.values() for row in found if row.k == k)
    benchmarks = [name for name in names if name != AVERAGE]
    labelled = sheet.labels(labels)
    with styled():
        keys, note = bar_keys(labelled), _whiskers(rows)
        part = Part(sheet.width, len(benchmarks), 2.0, least=1.6, ratios=_SHARES, keys=keys, note=note)
        figure, (grid,) = new_figure(sheet, part)
        for (left, right), benchmark in zip(grid.panels, benchmarks, strict=True):
            own = {label: [row for row in found if row.benchmark == benchmark] for label, found in rows.items()}
            n = next(row.n for found in own.values() for row in found)
            first = {_UNSOLVED: {label: _only(found, FLIP, HARDEST) for label, found in own.items()}}
            second = {
                bucket: {label: _only(found, FLIP_AT_K, bucket) for label, found in own.items()} for bucket in BUCKETS
            }
            _draw_buckets(left, first, ["0"], labelled.looks)
            _draw_buckets(right, second, list(bucket_bounds(n).values()), labelled.looks)
            panel_title(right, title_of(benchmark), 0.8 * (2 * grid.inches - 1.0))
            right.set_ylabel(f"flip@{k}, %", fontsize=SMALL)
            left.set_ylabel("newly solved, %", fontsize=SMALL)
            for line, text in enumerate(("", f"base of {n}", "problems")):
                _write_below(left, -0.08, line, text, xcoords="axes fraction", ha="right")
    return figure


def _whiskers(rows_of: Mapping[str, Sequence[Row]]) -> str:
    """What the whiskers of bars are over; empty where there are none."""
    return kinds_text({label: [row.ci_over for row in rows] for label, rows in rows_of.items()})


def _only(rows: Sequence[Row], metric: str, bucket: str) -> Row | None:
    return next((row for row in rows if row.metric == metric and row.bucket == bucket), None)


def _draw_buckets(
    axis: Axes, groups: Mapping[str, Mapping[str, Row | None]], bounds: Sequence[str], looks: Sequence[Look]
) -> None:
    """A group of bars for each bucket; below it the base's counts and the number of problems."""
    highest = 0.0
    for place, (bucket, rows) in enumerate(groups.items()):
        found = {label: row for label, row in rows.items() if row is not None}
        num_problems = {row.num_problems for row in found.values()}
        if len(num_problems) > 1:
            raise DataError(
                f"{', '.join(rows)} hold {', '.join(map(str, sorted(num_problems)))} problems in {bucket!r}: their "
                "flips start from different bases; draw them apart"
            )
        for position, (row, look) in enumerate(zip(rows.values(), looks, strict=True)):
            _draw_bar(axis, _place(place, position, len(rows), 0.84), row, look, 100.0)
        highest = max([highest, *(row.value for row in found.values())])
        for line, text in enumerate((bucket, bounds[place], str(max(num_problems, default=0)))):
            _write_below(axis, place, line, text)
    axis.set_xticks([])
    axis.grid(visible=False, axis="x")
    axis.set_xlim(-0.5, len(groups) - 0.5)
    axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
    if not highest:
        write_inside(axis, "all 0")


def _write_below(axis: Axes, x: float, line: int, text: str, *, xcoords: str = "data", ha: str = "center") -> None:
    """Writes a text under the axis, on a line of its own."""
    # One tick label of several lines would not do: its first line would stand higher where it has no tall letters.
    axis.annotate(
        text,
        xy=(x, 0),
        xycoords=(xcoords, "axes fraction"),
        xytext=(0, -_LINE_POINTS * (line + 1)),
        textcoords="offset points",
        ha=ha,
        fontsize=SMALL,
        color=GREY if line else "#333333",
        annotation_clip=False,
    )


def temperature_figure(rows_of: Mapping[str, Sequence[Row]], *, sheet: Sheet = PAGE) -> Figure:
    """Two panels, UCR and pass@1: a group of bars for each benchmark, a bar for each label.

    ``rows_of`` are rows of `ucc_result` under one setting, of which those with k = 1 are pass@1, by label.

    Raises:
        DataError: a label has no UCR, or several (more than one setting).
        UsageError: there are more labels than can be told apart.
    """
    labels = list(rows_of)
    _check_labels(labels)
    for label, rows in rows_of.items():
        names = [row.benchmark for row in rows if row.metric == "ucr"]
        if not names:
            raise DataError(f"{label} holds no UCR; make it with `quatro eval ucc`")
        if len(names) > len(set(names)):
            raise DataError(f"{label} holds several UCR of {names[0]}; draw one similarity and threshold at a time")
    everyone = [row for rows in rows_of.values() for row in rows]
    benchmarks = without_lone_average(row.benchmark for row in everyone)
    panels = {"UCR": _values(rows_of, "ucr"), "Pass@1, %": _values(rows_of, "pass@k", "ucc@k")}
    drawn = {title: values for title, values in panels.items() if values}
    first = next(row for row in everyone if row.metric == "ucr")
    setting = Setting.of(first)
    labelled = sheet.labels(labels)
    measure = f"{setting.similarity}{setting.reach('≥')}" if setting is not None else "unknown similarity"
    note = ", ".join(filter(None, [f"UCR: clusters per sample, {measure}, n = {first.n}", _whiskers(rows_of)]))
    with styled():
        least = min(max(1.6, 0.6 + 0.06 * len(benchmarks) * (len(labels) + 1)), sheet.width)
        part = Part(sheet.width, len(drawn), 1.9, least=least, most=2, keys=bar_keys(labelled), note=note)
        figure, (grid,) = new_figure(sheet, part)
        for axis, (title, values) in zip(grid.axes, drawn.items(), strict=True):
            scale = 100.0 if "%" in title else 1.0
            for position, (label, look) in enumerate(labelled.with_looks):
                for group, name in enumerate(benchmarks):
                    place = _place(group, position, len(labels), 0.8)
                    _draw_bar(axis, place, values.get((label, name)), look, scale)
            _name_groups(axis, [title_of(name) for name in benchmarks], grid.inches - 0.5)
            axis.grid(visible=False, axis="x")
            axis.set_ylim(0, max(axis.get_ylim()[1], 1e-3))
            if not any(row.value for row in values.values()):
                axis.set_ylim(0, 1)
                write_inside(axis, "all 0")
            panel_title(axis, title, grid.inches)
    return figure


def _name_groups(axis: Axes, names: Sequence[str], inches: float) -> None:
    """Names of groups under the bars: level where they fit, and else slanted."""
    room = inches / len(names) - 0.06
    axis.set_xticks(range(len(names)))
    axis.tick_params(axis="x", length=0)
    if all(inches_of(name, size=SMALL) <= room for name in names):
        axis.set_xticklabels(names)
    else:
        axis.set_xticklabels(
            [fitted(name, 1.0, size=SMALL) for name in names], rotation=35, ha="right", rotation_mode="anchor"
        )


def _values(rows_of: Mapping[str, Sequence[Row]], *metrics: str) -> dict[tuple[str, str], Row]:
    """Rows of the metric by label and benchmark."""
    return {
        (label, row.benchmark): row
        for label, rows in rows_of.items()
        for row in rows
        if row.metric in metrics and row.k in (None, 1)
    }


def _check_labels(labels: Sequence[str]) -> None:
    """Raises UsageError if there are more labels than looks of bars."""
    if len(labels) > len(HATCHES):
        raise UsageError(f"{len(labels)} labels in one figure of bars; at most {len(HATCHES)} can be told apart")


def _place(group: int, position: int, num_labels: int, width: float) -> tuple[float, float]:
    """The middle and width of the bar of one label in a group of bars, which is so wide."""
    return group + (position - (num_labels - 1) / 2) * (width / num_labels), width / num_labels * 0.92


def _draw_bar(axis: Axes, place: tuple[float, float], row: Row | None, look: Look, scale: float) -> None:
    """The bar of a row, and its whiskers if it has an interval; nothing without a row."""
    if row is None:
        return
    middle, width = place
    value = scale * row.value
    axis.bar(middle, value, width, **bar_look(look))
    if row.ci_low is not None and row.ci_high is not None:
        ends = [[max(0.0, value - scale * row.ci_low)], [max(0.0, scale * row.ci_high - value)]]
        axis.errorbar(middle, value, yerr=ends, fmt="none", ecolor="#222222", elinewidth=0.7, capsize=1.5)
