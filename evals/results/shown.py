"""How numbers read: titles and units, the order of benchmarks, and documents as small tables.

Readers meet benchmarks by their titles, in the paper's order, which is the registry's.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from evals.benchmarks.catalogue import registry
from evals.estimators import PARTS
from evals.files.frames import grouped
from evals.intervals import kinds_text
from evals.results.document import AVERAGE, VALID, Comparison, DifferenceRow, Row
from evals.similarity import Setting, setting_of
from evals.text import Grid, table_beside, visible

AnyRow = TypeVar("AnyRow", Row, DifferenceRow)

# Metrics of clusters with a table of their own; the others stand beside UCC@k. Files of before hold vendi and cover.
_CLUSTERED = ("distinct@k", "vendi")
_PART = {f"ucc@k/{part}": "What a change in UCC@k is made of" for part in PARTS}
LEAST_COVERAGE = 0.9  # below it there is a warning
_METRICS = table_beside(__file__, "metrics.toml")


def is_share(metric: str) -> bool:
    """Whether ``metric`` is shown in percent."""
    return "is_share" in _METRICS.get(metric, ())


def unit_of(metric: str) -> tuple[float, str]:
    """What a number of ``metric`` is multiplied with to be shown, and the name of the unit that it has then."""
    return (100.0, "percent") if is_share(metric) else (1.0, "count")


def title_of(benchmark: str) -> str:
    """The registry's title, or the name itself of a benchmark that the registry does not know."""
    if benchmark == AVERAGE:
        return "Average"
    known = registry().get(benchmark)
    return known.title if known is not None else benchmark


def on_benchmark(name: str) -> str:
    """Where numbers are from, for a title: `on MATH`, or `average over benchmarks`."""
    return "average over benchmarks" if name == AVERAGE else f"on {title_of(name)}"


def in_order(benchmarks: Iterable[str]) -> list[str]:
    """Each name once, in the registry's order; then those that it does not know, as they came; the average last."""
    known = {name: place for place, name in enumerate(registry())}
    names = dict.fromkeys(benchmarks)
    return sorted(names, key=lambda name: (name == AVERAGE, known.get(name, len(known))))


def without_lone_average(benchmarks: Iterable[str]) -> list[str]:
    """`in_order`, but without the average of a single benchmark, which is that benchmark."""
    names = in_order(benchmarks)
    return names[:1] if len(names) == 2 and names[1] == AVERAGE else names


def rows_in_order(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """``rows`` by their benchmarks, in the order of `in_order`; those of one benchmark stay as they are."""
    found = list(rows)
    places = {name: place for place, name in enumerate(in_order(row.benchmark for row in found))}
    return sorted(found, key=lambda row: places[row.benchmark])


def metric_at(metric: str, k: int | None) -> str:
    """`pass@8` for pass@k at k = 8; the metric itself where there is no k."""
    return metric if k is None else re.sub("(?<=[@^])k", str(k), metric)


def metric_title(metric: str, setting: str = "") -> str:
    """``metric`` as a table's title, with `(%)` where it is shown in percent and the ``setting`` in parentheses."""
    base = metric.removeprefix(VALID)
    title = _METRICS.get(base, {}).get("title", visible(metric)) + (" (%)" if is_share(metric) else "")
    title += ", without false derivations" if base != metric else ""
    return f"{title} ({setting})" if setting else title


def grids_of_rows(rows: Iterable[Row]) -> Iterator[Grid]:
    """A table for each group of rows that belong side by side: benchmarks down, k across."""
    for title, group in tables_of(rows).items():
        beside = ["bucket"] if any(row.bucket is not None for row in group) else []
        has_valid = any(row.metric.startswith(VALID) for row in group)
        names = without_lone_average(row.benchmark for row in group)
        lines: dict[tuple[object, ...], list[Row]] = {}
        for row in group:
            if row.benchmark in names:
                lead: tuple[object, ...] = (title_of(row.benchmark), *[row.bucket] * len(beside))
                lead += ("valid" if row.metric.startswith(VALID) else "all right",) if has_valid else ()
                lines.setdefault(lead, []).append(row)
        heads = list(dict.fromkeys(head_of(row) for found in lines.values() for row in found))
        is_covered = any(row.coverage is not None for row in group)
        body = []
        for lead, found in lines.items():
            cells = {head_of(row): number_cell(row) for row in found}
            covered = [f"{found[0].coverage:.2f}"] if found[0].coverage is not None else [None] * is_covered
            body.append([*lead, found[0].num_problems, found[0].n, *map(cells.get, heads), *covered])
        notes = [
            f"{title_of(row.benchmark)}: {100 * row.share_of_all_solutions:.1f} % of a problem's distinct solutions "
            "found, on average"
            for row in group
            if row.metric == "ucr" and row.share_of_all_solutions is not None
        ]
        paired = {row.benchmark: row.num_problems for row in group if row.metric == "pairs"}
        if numbers := ", ".join(f"{title_of(name)} {num}" for name, num in paired.items() if name != AVERAGE):
            notes.append(f"pairs: over the problems with two or more correct samples ({numbers})")
        columns = ["benchmark", *beside, *["answers"] * has_valid, "problems", "n", *heads, *["coverage"] * is_covered]
        yield Grid(title, columns, body, notes)


def grids_of_comparison(comparison: Comparison, num_adjusted: int) -> Iterator[Grid]:
    """A line for each difference, with its interval and p-value, of which the call adjusted ``num_adjusted``."""
    columns = ["benchmark", "problems", "n", "metric", "A", "B", "change", "low to high", "p", "p, Holm"]
    notes = [f"p, Holm: adjusted for the {num_adjusted} comparisons of this call"] if num_adjusted else []
    for title, rows in tables_of(comparison.rows).items():
        if rows[0].metric in _PART:
            yield _grid_of_parts(title, rows)
            continue
        body = []
        covered = [key for key in ("coverage_a", "coverage_b") if key in (rows[0].model_extra or {})]
        for row in rows:
            a, b = (scaled(value, row.metric) for value in (row.a, row.b))
            change, low, high = (scaled(value, row.metric, "+") for value in (row.difference, row.ci_low, row.ci_high))
            lead = [title_of(row.benchmark), row.num_problems, row.n, head_of(row)]
            more = [(row.model_extra or {}).get(key) for key in covered]
            ps = ["" if p is None else f"{p:.4f}" if p >= 5e-5 else "<0.0001" for p in (row.p, row.p_adjusted)]
            body.append([*lead, a, b, change, f"{low} to {high}", *ps, *more])
        yield Grid(title, [*columns, *(key.replace("_a", " A").replace("_b", " B") for key in covered)], body, notes)
        notes = []


def _grid_of_parts(title: str, rows: Sequence[DifferenceRow]) -> Grid:
    """A line for each k: the change in UCC@k and its parts, each with its interval."""
    body = []
    for (name, k), found in grouped(rows, lambda row: (row.benchmark, head_of(row))).items():
        signed = [[scaled(x, "ucc@k", "+") for x in (row.difference, row.ci_low, row.ci_high)] for row in found]
        change = scaled(sum(row.difference for row in found), "ucc@k", "+")
        lead = [title_of(name), found[0].num_problems, found[0].n, k]
        body.append([*lead, change, *(f"{part} [{low}, {high}]" for part, low, high in signed)])
    return Grid(title, ["benchmark", "problems", "n", "UCC@k", "change", *PARTS], body)


def tables_of(rows: Iterable[AnyRow]) -> dict[str, list[AnyRow]]:
    """The rows that stand in one table, by its title."""
    tables: dict[str, list[AnyRow]] = {}
    for row in rows_in_order(rows):
        metric = row.metric.removeprefix(VALID)
        is_beside_ucc = Setting.of(row) is not None and metric not in (*_CLUSTERED, *_PART)
        title = metric_title("ucc@k" if is_beside_ucc else _PART.get(metric, metric), setting_of(row))
        seeds = f"means of {row.num_seeds} seeds" if isinstance(row, Row) and row.num_seeds else ""
        title = "; ".join(filter(None, [title, seeds, kinds_text({"": [row.ci_over]})]))
        tables.setdefault(title, []).append(row)
    return tables


def little_covered(rows: Iterable[AnyRow]) -> list[str]:
    """A warning that names where a coverage is below `LEAST_COVERAGE`, if there is such a place."""
    low = dict.fromkeys(
        f"{side}{value:.2f} on {row.benchmark} ({setting_of(row)})"
        for row in rows
        for side, key in (("", "coverage"), ("A: ", "coverage_a"), ("B: ", "coverage_b"))
        if row.metric == "ucc@k" and row.benchmark != AVERAGE and (value := getattr(row, key, 1.0)) is not None
        if value < LEAST_COVERAGE
    )
    told = (
        f"coverage, the chance that the next correct sample is of a solution already seen, is below {LEAST_COVERAGE}: "
    )
    more = "with more samples UCC@k near n and the number of clusters would be larger, pairs would not"
    return [f"{told}{', '.join(low)}; {more}"] if low else []


def head_of(row: Row | DifferenceRow) -> str:
    """What stands above the number of ``row``, or beside it: its k, or its metric."""
    metric = row.metric.removeprefix(VALID)
    return _METRICS.get(metric, {}).get("head", metric) if row.k is None else f"k={row.k}"


def number_cell(row: Row) -> str:
    """The value of a row and, where it has one, its interval."""
    text = scaled(row.value, row.metric)
    if row.ci_low is None or row.ci_high is None:
        return text
    return f"{text} [{scaled(row.ci_low, row.metric)}, {scaled(row.ci_high, row.metric)}]"


def scaled(value: float, metric: str, sign: str = "") -> str:
    """``value`` in the unit and with the digits in which its metric is shown."""
    scale, unit = unit_of(metric)
    digits = 1 if unit == "percent" else 3 if metric.removeprefix(VALID) in ("ucr", "pairs") else 2
    return f"{scale * value:{sign}.{digits}f}"
