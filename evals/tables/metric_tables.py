"""Tables of any metric of ours that the paper has no table for: flips by difficulty, UCR, maj@k, Vendi score, ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evals.results.comparison import Comparison, DifferenceRow
from evals.results.entries import Entry
from evals.results.reading import labels_of
from evals.similarity.catalogue import setting_of
from evals.tables.parts import (
    PERCENT,
    Cell,
    Column,
    Line,
    Section,
    Style,
    Table,
    cells_of,
    ks_of,
    lines_of,
    method_table,
    unique_labels,
    unit_of,
)
from evals.tables.titles import on_benchmark, rows_in_order, title_of, without_lone_average
from evals.text import visible

TITLES = {
    "pass@k": "Pass@k",
    "ucc@k": "UCC@k, the number of distinct correct solutions among k samples",
    "ucc@k reclustered": "UCC@k, k samples clustered afresh",
    "distinct@k": "Clusters among k correct answers",
    "maj@k": "maj@k",
    "g-pass@k": "G-Pass@k",
    "cover": "Cover@tau",
    "flip@k": "flip@k",
    "flip": "Problems never solved before that are solved after",
    "ucr": "UCR, the number of distinct correct solutions per sample",
    "num_clusters": "Number of distinct correct solutions",
    "effective_number": "Effective number of distinct correct solutions",
    "vendi": "Vendi score of the correct answers",
    "similarity": "Median similarity of two correct answers",
}
# Neither end of these is the better one.
UNRANKED = ("similarity",)
_P_DIGITS = 4  # the smallest p of 10,000 resamples is 0.0002


def metric_title(metric: str, setting: str = "") -> str:
    """``metric`` as a table's title, with `(%)` where it is shown in percent and the ``setting`` in parentheses."""
    title = TITLES.get(metric, visible(metric)) + (" (%)" if metric in PERCENT else "")
    return f"{title} ({setting})" if setting else title


def flips_tables(entries: Sequence[Entry], metric: str, style: Style) -> list[Table]:
    """A table for each benchmark: methods x (k | buckets inside)."""
    ks = ks_of(entries, metric, style)
    keys = [key for entry in entries for key in entry.numbers]
    tables = []
    for name in without_lone_average(key.benchmark for key in keys if key.benchmark is not None):
        buckets = dict.fromkeys(key.setting for key in keys if key.benchmark == name)
        places = [(k, bucket) for k in ks for bucket in buckets]
        columns = tuple(Column(bucket, f"k = {k}") for k, bucket in places)
        of_columns = [
            cells_of([entry.number(metric, name, k, bucket) for entry in entries], scale=100.0) for k, bucket in places
        ]
        lines = lines_of(entries, of_columns, unique_labels(entries))
        title = f"flip@k (%) {on_benchmark(name)}, by the base's share of correct samples"
        tables.append(Table(title, title_of(name), "Method", "", "percent", (Section("", columns, lines),)))
    return tables


def metric_tables(entries: Sequence[Entry], metric: str, style: Style) -> list[Table]:
    """Methods x k for each benchmark and setting; if the metric has no k, datasets x methods for each setting."""
    keys = [key for entry in entries for key in entry.numbers]
    tables: list[Table] = []
    for setting in dict.fromkeys(key.setting for key in keys):
        held = [entry for entry in entries if any(key.setting == setting for key in entry.numbers)]
        names = without_lone_average(key.benchmark for key in keys if key.setting == setting and key.benchmark)
        if any(key.k is not None for key in keys):
            tables += [_over_k(held, metric, name, setting, style, num_benchmarks=len(names)) for name in names]
        else:
            tables.append(_without_k(held, metric, names, setting))
    return tables


def _over_k(
    entries: Sequence[Entry], metric: str, name: str, setting: str, style: Style, *, num_benchmarks: int
) -> Table:
    words = f" ({setting})" if setting else ""
    return method_table(
        f"{metric_title(metric)} {on_benchmark(name)}{words}",
        title_of(name) + words,
        [entry for entry in entries if any((key.benchmark, key.setting) == (name, setting) for key in entry.numbers)],
        ks_of(entries, metric, style),
        lambda entry, k: entry.number(metric, name, k, setting),
        metric=metric,
        plate=f"{metric_title(metric)} on {num_benchmarks} benchmarks{words}",
    )


def _without_k(entries: Sequence[Entry], metric: str, names: Sequence[str], setting: str) -> Table:
    scale, unit = unit_of(metric)
    lines = []
    for name in names:
        cells = cells_of([entry.number(metric, name, None, setting) for entry in entries], scale=scale)
        if metric in UNRANKED:
            cells = [cell and replace(cell, is_best=False) for cell in cells]
        lines.append(Line(title_of(name), tuple(cells)))
    columns = tuple(
        Column(label, is_ours=entry.is_ours) for label, entry in zip(unique_labels(entries), entries, strict=True)
    )
    section = Section("", columns, tuple(lines))
    return Table(metric_title(metric, setting), setting or metric, "Dataset", "", unit, (section,))


def comparison_table(comparison: Comparison) -> list[Table]:
    """A table for each metric and setting: benchmarks and ks down; A, B, difference and p across."""
    sides = [comparison.a, comparison.b]
    if len(set(sides)) == 2:
        sides = labels_of([Path(side) for side in sides])
    columns = tuple(Column(visible(name)) for name in (*sides, "difference", "p"))
    groups: dict[tuple[str, str], list[DifferenceRow]] = {}
    for row in rows_in_order(comparison.rows):
        groups.setdefault((row.metric, setting_of(row)), []).append(row)
    tables = []
    for (metric, setting), rows in groups.items():
        scale, unit = unit_of(metric)
        lines = []
        for row in rows:
            label = title_of(visible(row.benchmark)) + (f", k = {row.k}" if row.k is not None else "")
            difference = Cell(scale * row.difference, scale * row.ci_low, scale * row.ci_high)
            cells = (Cell(scale * row.a), Cell(scale * row.b), difference, Cell(row.p, digits=_P_DIGITS))
            lines.append(Line(label, cells))
        name = f"{metric} ({setting})" if setting else metric
        section = Section("", columns, tuple(lines))
        tables.append(Table(metric_title(metric, setting), name, "Dataset", "", unit, (section,)))
    return tables
