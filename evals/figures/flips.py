"""Flips by difficulty: bars for each bucket of the base's counts, one panel for each benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evals.errors import DataError, UsageError
from evals.figures.grid import GREY, Part, new_figure, styled
from evals.figures.method_looks import Look, looks_of
from evals.figures.panels import bar_keys, check_bar_labels, draw_bar, panel_title, write_inside
from evals.figures.sheet import PAGE, SMALL, Sheet
from evals.metrics.flips import BUCKETS, FLIP, FLIP_AT_K, bucket_bounds
from evals.results.document import AVERAGE, Row
from evals.tables.titles import in_order, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNSOLVED = "never"
_GROUP_WIDTH = 0.84
_LINE_POINTS = 9.5
_SHARES = (1.0, 4.4)  # of the panel: the problems never solved, and the buckets


def flips_figure(rows_of: Mapping[str, Sequence[Row]], *, k: int, sheet: Sheet = PAGE) -> Figure:
    """Newly solved problems and flip@k of every bucket, a panel for each benchmark and a bar for each label.

    ``rows_of`` are the rows of `flips_result` by label. Under each bucket stands how many problems it holds.

    Raises:
        DataError: there is no flip@k, or two labels disagree on a bucket's number of problems.
        UsageError: no row has this ``k``, or there are more labels than can be told apart.
    """
    labels = list(rows_of)
    check_bar_labels(labels)
    rows = {label: [row for row in rows if row.k == k or row.metric == FLIP] for label, rows in rows_of.items()}
    names = in_order(row.benchmark for found in rows.values() for row in found if row.k == k)
    benchmarks = [name for name in names if name != AVERAGE]
    if not benchmarks:
        held = sorted({row.k for found in rows_of.values() for row in found if row.k is not None})
        if not held:
            raise DataError("no flip@k in these files; make them with `quatro eval flips BASE TUNED -o FILE`")
        raise UsageError(
            f"--k {k}: no flip@{k} in these files, only k = {', '.join(map(str, held))}; choose one of these, or make "
            f"them with `quatro eval flips BASE TUNED --k {k} -o FILE`"
        )
    shown, looks = sheet.shown(labels), looks_of(labels)
    with styled():
        keys = bar_keys(labels, looks, shown)
        part = Part(len(benchmarks), 2.0, len(_SHARES), least=1.6, ratios=_SHARES, keys=keys)
        figure, (grid,) = new_figure(sheet, [part])
        for (left, right), benchmark in zip(grid.panels, benchmarks, strict=True):
            own = {label: [row for row in found if row.benchmark == benchmark] for label, found in rows.items()}
            n = next(row.n for found in own.values() for row in found)
            first = {_UNSOLVED: {label: _only(found, FLIP, BUCKETS[0].name) for label, found in own.items()}}
            second = {
                bucket.name: {label: _only(found, FLIP_AT_K, bucket.name) for label, found in own.items()}
                for bucket in BUCKETS
            }
            _draw_groups(left, first, ["0"], looks)
            _draw_groups(right, second, list(bucket_bounds(n).values()), looks)
            panel_title(right, title_of(benchmark), 0.8 * (2 * grid.inches - 1.0))
            right.set_ylabel(f"flip@{k}, %", fontsize=SMALL)
            left.set_ylabel("newly solved, %", fontsize=SMALL)
            for line, text in enumerate(("", f"base of {n}", "problems")):
                _write_below(left, -0.08, line, text, xcoords="axes fraction", ha="right")
    return figure


def _only(rows: Sequence[Row], metric: str, bucket: str) -> Row | None:
    return next((row for row in rows if row.metric == metric and (row.model_extra or {}).get("bucket") == bucket), None)


def _draw_groups(
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
        width = _GROUP_WIDTH / len(rows)
        for position, (row, look) in enumerate(zip(rows.values(), looks, strict=True)):
            if row is not None:
                ends = (
                    None if row.ci_low is None else 100 * row.ci_low,
                    None if row.ci_high is None else 100 * row.ci_high,
                )
                middle = place + (position - (len(rows) - 1) / 2) * width
                draw_bar(axis, middle, 100 * row.value, ends, width * 0.92, look)
                highest = max(highest, row.value)
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
