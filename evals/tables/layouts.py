"""The tables as data: their numbers, the best of them, and the notes below.

The paper's come first; below are those of any metric of ours that the paper has no table for: flips by difficulty, UCR,
maj@k, UCR, ...

`formats.py` and `latex.py` write them down. Values are in the unit that is shown: Pass@k in percent,
UCC@k as a count, entropy in nats per token.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from evals.benchmarks.catalogue import grader_of
from evals.errors import DataError
from evals.files.frames import grouped
from evals.intervals import FEWEST_SEEDS, kinds_text
from evals.results.document import AVERAGE, Comparison
from evals.results.entries import ENTROPY, Entry, Number
from evals.results.paper import BENCHMARKS, paper
from evals.results.reading import labels_of, sides_of
from evals.results.shown import (
    in_order,
    metric_title,
    on_benchmark,
    rows_in_order,
    title_of,
    unit_of,
    without_lone_average,
)
from evals.results.training_metrics import LAST_ITERATIONS
from evals.similarity import setting_of
from evals.tables import parts
from evals.tables.parts import Cell, Column, Line, Section, Style, Table
from evals.text import visible

Layout = Literal["average", "benchmarks", "ucc", "entropy", "code", "metric"]

# Neither end of these is the better one.
UNRANKED = ("similarity",)
_P_DIGITS = 4
SMALL_K = 32  # UCC@k below this has a table of its own, as in the paper
PAPER_TABLES: Mapping[Layout, tuple[str, ...]] = {
    "average": ("tab:avg_passk", "tab:appendix_passk_all"),
    "benchmarks": ("tab:appendix_passk_all",),
    "ucc": ("tab:ucc_all2", "tab:ucc_all"),
    "entropy": ("tab:final_entropy",),
    "code": ("tab:code_generation",),
    "metric": (),
}


def build_tables(
    layout: Layout, own: Sequence[Entry], published: Sequence[Entry] = (), *, metric: str, style: Style
) -> list[Table]:
    """The tables of ``layout``. Published rows come first, of one's own models, benchmarks and k.

    Raises:
        UsageError: a k of ``style`` is in no entry.
        DataError: no entry has a number for this layout.
    """
    beside = _comparable(own, published, metric)
    entries = [*beside, *own]
    builders: Mapping[Layout, Callable[[Sequence[Entry], str, Style], list[Table]]] = {
        "average": _average,
        "benchmarks": partial(metric_tables, with_mean=False),
        "ucc": _ucc,
        "entropy": _entropy,
        "code": _code,
        "metric": metric_tables,
    }
    tables = builders[layout](entries, metric, style)
    if not any(cell for table in tables for section in table.sections for line in section.lines for cell in line.cells):
        raise DataError(f"the files have no {metric} to show; `--metric` chooses another metric")
    notes = (*_seeds_note(own), *(["The paper has no such numbers."] if published and not beside else []))
    kinds = kinds_text({entry.label: [number.over for number in entry.numbers.values()] for entry in own})
    said = f"; {kinds}" if style.with_ci and kinds else ""
    return [replace(table, title=f"{table.title}{said}", notes=(*table.notes, *notes)) for table in tables]


def _seeds_note(entries: Sequence[Entry]) -> Iterator[str]:
    """How many results each mean is of, where there are means."""
    means = [entry for entry in entries if entry.num_results > 1]
    if not means:
        return
    is_same = len({entry.num_results for entry in entries}) == 1
    listed = ", ".join(f"{entry.label} ({entry.num_results})" for entry in means)
    yield f"Means of {means[0].num_results} seeds." if is_same else f"Means of several seeds: {listed}."
    few = [entry.label for entry in means if all(number.low is None for number in entry.numbers.values())]
    if few:
        yield (
            f"{', '.join(few)}: no interval, which over seeds alone needs {FEWEST_SEEDS} of them that differ; results "
            "of `quatro eval ... --ci -o FILE` have the counts of each problem, and an interval from two seeds on."
        )


def _comparable(own: Sequence[Entry], published: Sequence[Entry], metric: str) -> list[Entry]:
    """Published entries of one's own models (of all if none is in common) at one's own benchmarks and k."""
    models = {entry.model for entry in own} & {entry.model for entry in published}
    kept = [entry for entry in published if entry.model is None or not models or entry.model in models]
    names = {name for entry in own for name in entry.benchmarks(metric)}
    common = names & {name for entry in kept for name in entry.benchmarks(metric)}
    ks = {key.k for entry in own for key in entry.numbers if key.metric == metric}
    held = (*common, None, *([AVERAGE] if common or not names else []))
    found = [
        replace(
            entry, numbers={key: one for key, one in entry.numbers.items() if key.benchmark in held and key.k in ks}
        )
        for entry in kept
    ]
    return [entry for entry in found if entry.numbers]


def _average(entries: Sequence[Entry], metric: str, style: Style) -> list[Table]:
    ks = parts.ks_of(entries, metric, style)
    names = in_order(name for entry in entries for name in entry.benchmarks(metric))
    complete = set(BENCHMARKS) <= set(names)

    def average(entry: Entry, k: int | None) -> Number | None:
        if entry.is_published and not complete:  # the printed mean is over six benchmarks, one's own over fewer
            known = [number for name in entry.benchmarks(metric) if (number := entry.number(metric, name, k))]
            return Number(sum(one.value for one in known) / len(known)) if known else None
        return entry.average(metric, k)

    notes = []
    for entry in entries:
        missing = [name for name in names if name not in entry.benchmarks(metric)]
        if missing and entry.benchmarks(metric):
            found = ", ".join(map(title_of, in_order(entry.benchmarks(metric))))
            notes.append(f"{entry.label}: the mean is over {found} only and cannot be compared with the others.")
    over = f" over {', '.join(map(title_of, names))}" if names else ""
    title = f"Average {metric_title(metric)}{over}"
    return [parts.method_table(title, AVERAGE, entries, ks, average, metric=metric, notes=notes)]


def _ucc(entries: Sequence[Entry], metric: str, style: Style) -> list[Table]:
    ks = parts.ks_of(entries, metric, style)
    own = [entry for entry in entries if not entry.is_published]
    settings = list(dict.fromkeys(key.setting for entry in own for key in entry.numbers)) or [""]
    groups = [ks] if style.ks else [[k for k in ks if k >= SMALL_K], [k for k in ks if k < SMALL_K]]
    tables = [_ucc_table(entries, metric, setting, some_ks, style) for setting in settings for some_ks in groups]
    return [table for table in tables if table.sections]


def _ucc_table(entries: Sequence[Entry], metric: str, setting: str, ks: Sequence[int], style: Style) -> Table:
    """Datasets x (k | methods inside); the best of each dataset and k."""
    own = [entry for entry in entries if not entry.is_published]
    elsewhere = {name for entry in own for name in entry.benchmarks(metric)}
    elsewhere -= {key.benchmark for entry in own for key in entry.numbers if key.setting == setting and key.benchmark}
    rows = in_order(name for entry in entries for name in entry.benchmarks(metric) if name not in elsewhere)
    rows += [AVERAGE] if style.with_average or not rows else []

    def number(entry: Entry, name: str, k: int) -> Number | None:
        return entry.average(metric, k, setting) if name == AVERAGE else entry.number(metric, name, k, setting)

    shown = [entry for entry in entries if any(number(entry, name, k) for name in rows for k in ks)]
    shown_at = {k: [entry for entry in shown if any(number(entry, name, k) for name in rows)] for k in ks}
    names = {id(entry): name for entry, name in zip(shown, parts.unique_labels(shown), strict=True)}
    columns = tuple(Column(names[id(entry)], f"k = {k}", is_ours=entry.is_ours) for k in ks for entry in shown_at[k])
    found = [(name, k, entry, number(entry, name, k)) for name in rows for k in ks for entry in shown_at[k]]
    lines = []
    for name in rows:
        of_k = [[one for row, at, _, one in found if (row, at) == (name, k)] for k in ks]
        cells = tuple(cell for numbers in of_k for cell in parts.cells_of(numbers))
        if any(cells):
            lines.append(Line(title_of(name), cells))
    notes = parts.misprint_notes((f"{entry.label}, {title_of(name)}, k = {k}", one) for name, k, entry, one in found)
    sizes = {one.n for *_, one in found if one is not None and one.n is not None}
    if len(sizes) > 1:
        notes.append(f"n differs ({min(sizes)} to {max(sizes)} samples per problem): compare UCC@k at equal n only.")
    n = f", n = {next(iter(sizes))}" if len(sizes) == 1 else ""
    n += f"; k = {min(ks)} to {max(ks)}" if len(ks) > 1 else f"; k = {ks[0]}" if ks else ""
    title = metric_title(metric, setting) + n
    if any(entry.is_published for entry in shown):
        notes += [f"Paper: {remark}." for remark in paper().remarks["tab:ucc_all"]]
    sections = (Section("", columns, tuple(lines)),) if lines else ()
    return Table(title, setting or "UCC@k", "Dataset", "", "count", sections, tuple(notes))


def _entropy(entries: Sequence[Entry], metric: str, style: Style) -> list[Table]:
    """One row, baselines first."""
    ordered = sorted(entries, key=lambda entry: entry.is_ours)
    names = parts.unique_labels(ordered)
    columns = tuple(
        Column(name.removeprefix("Ours "), "Ours" if entry.is_ours else "Baselines", is_ours=entry.is_ours)
        for name, entry in zip(names, ordered, strict=True)
    )
    cells = parts.cells_of([entry.number(ENTROPY, None, None) for entry in ordered])
    notes = [f"Nats per token; of a run: the mean over its last {LAST_ITERATIONS} iterations."]
    if any(entry.is_published for entry in ordered):
        notes += [f"Paper: {remark}." for remark in paper().remarks["tab:final_entropy"]]
    section = Section("", columns, (Line("Entropy", tuple(cells)),))
    return [Table("Final policy entropy", ENTROPY, "", "", "nats", (section,), tuple(notes))]


# The columns of the paper's table.
_CODE_KS = {
    **dict.fromkeys(("humaneval", "humanevalplus"), (1, 4, 8, 16, 32, 64)),
    **dict.fromkeys(("mbpp", "mbppplus"), (1, 8, 16)),
}


def _code(entries: Sequence[Entry], metric: str, style: Style) -> list[Table]:
    """A block for each benchmark of code, one below the other; MBPP and MBPP+ side by side. The ks are the paper's."""
    names = in_order(name for entry in entries for name in entry.benchmarks(metric) if grader_of(name) == "code")
    blocks = [[name] for name in names if name != "mbppplus" or "mbpp" not in names]
    blocks = [["mbpp", "mbppplus"] if block == ["mbpp"] and "mbppplus" in names else block for block in blocks]
    labels = parts.unique_labels(entries)
    sections = []
    for block in blocks:
        columns, of_columns = [], []
        for name in block:
            ks = sorted({key.k for e in entries for key in e.numbers if key.benchmark == name and key.k is not None})
            chosen = style.ks if style.ks is not None else _CODE_KS.get(name, ks)
            for k in [k for k in chosen if k in ks] or ks:
                columns.append(Column(str(k), title_of(name) if len(block) > 1 else ""))
                of_columns.append(parts.cells_of([e.number(metric, name, k) for e in entries], scale=100.0))
        lines = parts.lines_of(entries, of_columns, labels)
        if lines:
            sections.append(Section(" / ".join(map(title_of, block)), tuple(columns), lines))
    is_published = any(entry.is_published for entry in entries)
    notes = [f"Paper: {remark}." for remark in paper().remarks["tab:code_generation"]] if is_published else []
    return [Table("Code: Pass@k (%)", "code", "Method", "Benchmark", "percent", tuple(sections), tuple(notes))]


def metric_tables(entries: Sequence[Entry], metric: str, style: Style, *, with_mean: bool = True) -> list[Table]:
    """Methods x k for each benchmark and setting; if the metric has no k, datasets x methods for each setting."""
    keys = [key for entry in entries for key in entry.numbers]
    tables: list[Table] = []
    for setting in dict.fromkeys(key.setting for key in keys):
        held = [entry for entry in entries if any(key.setting == setting for key in entry.numbers)]
        names = without_lone_average(key.benchmark for key in keys if key.setting == setting and key.benchmark)
        names = [name for name in names if with_mean or name != AVERAGE]
        if any(key.k is not None for key in keys):
            tables += [_over_k(held, metric, name, setting, style, num_benchmarks=len(names)) for name in names]
        else:
            tables.append(_without_k(held, metric, names, setting))
    return tables


def _over_k(
    entries: Sequence[Entry], metric: str, name: str, setting: str, style: Style, *, num_benchmarks: int
) -> Table:
    words = f" ({setting})" if setting else ""
    return parts.method_table(
        f"{metric_title(metric)} {on_benchmark(name)}{words}",
        title_of(name) + words,
        [entry for entry in entries if any((key.benchmark, key.setting) == (name, setting) for key in entry.numbers)],
        parts.ks_of(entries, metric, style),
        lambda entry, k: entry.number(metric, name, k, setting),
        metric=metric,
        plate=f"{metric_title(metric)} on {num_benchmarks} benchmarks{words}",
    )


def _without_k(entries: Sequence[Entry], metric: str, names: Sequence[str], setting: str) -> Table:
    scale, unit = unit_of(metric)
    lines = []
    for name in names:
        cells = parts.cells_of([entry.number(metric, name, None, setting) for entry in entries], scale=scale)
        if metric in UNRANKED:
            cells = [cell and replace(cell, is_best=False) for cell in cells]
        lines.append(Line(title_of(name), tuple(cells)))
    columns = tuple(
        Column(label, is_ours=entry.is_ours) for label, entry in zip(parts.unique_labels(entries), entries, strict=True)
    )
    section = Section("", columns, tuple(lines))
    return Table(metric_title(metric, setting), setting or metric, "Dataset", "", unit, (section,))


def comparison_table(comparison: Comparison) -> list[Table]:
    """A table for each metric and setting, and each B: benchmarks and ks down; A, B, difference and p across."""
    if len(each := comparison.each()) > 1:
        names = labels_of([Path(one.b) for one in each])
        return [
            replace(table, name=f"{table.name}, {name}", title=f"{table.title}; {name}")
            for name, one in zip(names, each, strict=True)
            for table in comparison_table(one)
        ]
    columns = tuple(Column(visible(name)) for name in (*sides_of(comparison), "difference", "p", "p, Holm"))
    groups = grouped(rows_in_order(comparison.rows), lambda row: (row.metric, setting_of(row)))
    tables = []
    for (metric, setting), rows in groups.items():
        scale, unit = unit_of(metric)
        lines = []
        for row in rows:
            label = title_of(visible(row.benchmark)) + (f", k = {row.k}" if row.k is not None else "")
            difference = Cell(scale * row.difference, scale * row.ci_low, scale * row.ci_high, over=row.ci_over)
            ps = [None if p is None else Cell(p, digits=_P_DIGITS) for p in (row.p, row.p_adjusted)]
            cells = (Cell(scale * row.a), Cell(scale * row.b), difference, *ps)
            lines.append(Line(label, cells))
        name = f"{metric} ({setting})" if setting else metric
        section = Section("", columns, tuple(lines))
        title = f"{metric_title(metric, setting)}; {kinds_text({'': [rows[0].ci_over]})}"
        tables.append(Table(title, name, "Dataset", "", unit, (section,)))
    return tables
