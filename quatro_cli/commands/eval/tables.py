"""How `quatro eval passk` and `quatro eval ucc` look to a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from quatro_cli.output import output, visible

if TYPE_CHECKING:
    from evals.results.comparison import Comparison, DifferenceRow
    from evals.results.document import Row
    from evals.studies.clusters import Clusters

AnyRow = TypeVar("AnyRow", "Row", "DifferenceRow")

LARGEST_CLUSTERS = 5
CLUSTERS_IN_BOX = 3
LONGEST_SHOWN_LINES = 12
LONGEST_SHOWN_CHARS = 1500

_CLUSTERED = ("distinct@k", "vendi")  # metrics of clusters with a table of their own; the others stand beside UCC@k
_HEADS = {"ucr": "UCR", "num_clusters": "clusters", "effective_number": "effective", "vendi": "Vendi"}


def show_grid(title: str, leads: Sequence[str], cells: Iterable[tuple[tuple[object, ...], str, object]]) -> None:
    """A table of ``cells``: each has what its line begins with, under ``leads``, the head of its column and a text."""
    lines: dict[tuple[object, ...], dict[str, object]] = {}
    heads: dict[str, None] = {}
    for lead, head, text in cells:
        lines.setdefault(lead, {})[head] = text
        heads[head] = None
    rows = [[*lead, *(line.get(head) for head in heads)] for lead, line in lines.items()]
    output.table(title, [*leads, *heads], rows)


def show_rows(rows: Iterable[Row]) -> None:
    """A table for each group of rows that belong side by side: benchmarks down, k across."""
    from evals.tables.titles import title_of, without_lone_average

    for title, group in _tables_of(rows).items():
        lead_of = {row.benchmark: (title_of(row.benchmark), row.num_problems, row.n) for row in reversed(group)}
        names = without_lone_average(lead_of)
        cells = [(lead_of[row.benchmark], head_of(row), number_cell(row)) for row in group if row.benchmark in names]
        show_grid(title, ["benchmark", "problems", "n"], cells)
        for row in group:
            share = row.share_of_all_solutions
            if row.metric == "ucr" and share is not None:
                found = f"{100 * share:.1f} % of a problem's distinct solutions found, on average"
                output.data(f"{visible(title_of(row.benchmark))}: {found}")


def show_sensitivity(rows: Sequence[Row]) -> None:
    """UCC under other clusterings of the same samples: thresholds across, the preset's own cell has a star.

    Of several benchmarks the mean is shown.
    """
    from evals.results.document import AVERAGE
    from evals.similarity.catalogue import Setting
    from evals.studies.sensitivity import PAPER
    from evals.tables.titles import title_of

    names = {row.benchmark for row in rows} - {AVERAGE}
    name = AVERAGE if len(names) > 1 else min(names)
    cells = [
        (
            (row.linkage, row.tokens),
            f">= {row.threshold:g}",
            f"{row.value:.2f} {'*' if Setting.of(row) == PAPER else ' '}",
        )
        for row in rows
        if row.benchmark == name
    ]
    output.info(
        "The paper states neither threshold, linkage nor tokens; * is our reading of it. What the "
        "same samples would give otherwise:"
    )
    title = f"UCC@{rows[0].k} of {visible(title_of(name))} by {PAPER.similarity}, by threshold"
    show_grid(title, ["linkage", "tokens"], cells)


def show_comparison(comparison: Comparison) -> None:
    """A line for each difference, with its interval and p-value."""
    from evals.tables.titles import title_of

    output.info(f"A: {comparison.a}\nB: {comparison.b}\nchange: B minus A")
    columns = ["benchmark", "problems", "n", "metric", "A", "B", "change", "95 % interval", "p"]
    for title, rows in _tables_of(comparison.rows).items():
        body = []
        for row in rows:
            a, b = (_scaled(value, row.metric) for value in (row.a, row.b))
            change, low, high = (_scaled(value, row.metric, "+") for value in (row.difference, row.ci_low, row.ci_high))
            lead = [title_of(row.benchmark), row.num_problems, row.n, head_of(row)]
            body.append([*lead, a, b, change, f"{low} to {high}", f"{row.p:.4f}"])
        output.table(title, columns, body)


def show_clusters(found: Sequence[Clusters]) -> None:
    """The largest clusters of a problem, each with the text that stands for it; what models wrote is escaped."""
    for one in found:
        counted = f"{one.correct} of {one.n} samples correct, {len(one.clusters)} cluster(s) by {one.setting}"
        lines = [f"{one.id} ({one.benchmark}): {counted}"]
        lines.append(", ".join(f"UCC@{k} {value:.3f}" for k, value in one.ucc().items()))
        for rank, cluster in enumerate(one.clusters[:LARGEST_CLUSTERS], start=1):
            head = f"\n#{rank}  {cluster.size} sample(s), {cluster.num_distinct} different text(s)"
            lines.append(f"{head}; this one {cluster.times} time(s):")
            lines += [f"    {line}" for line in _excerpt(cluster.text)]
        if len(one.clusters) > LARGEST_CLUSTERS:
            sizes = ", ".join(str(cluster.size) for cluster in one.clusters[LARGEST_CLUSTERS:][:20])
            lines.append(f"\nand {len(one.clusters) - LARGEST_CLUSTERS} more cluster(s), of size {sizes}")
        output.data("\n".join(visible(line, keep="\n\t") for line in lines) + "\n")


def clusters_as_boxes(found: Sequence[Clusters], label: str) -> str:
    """LaTeX boxes like the paper's: question and answer of each problem, then texts of its largest clusters."""
    from evals.tables.boxes import Box, Text, boxes_to_latex
    from evals.tables.titles import title_of

    boxes: list[Box] = []
    shown: tuple[object, ...] = ()
    for one in found:
        question = Text("Question", one.prompt if one.prompt is not None else f"(not in the samples) {one.id}")
        truth = [] if one.answer is None else [Text("Ground truth", str(one.answer))]
        truth += [Text("Clusters", f"by {one.setting.words('≥')}")]
        head = Box(f"{title_of(one.benchmark)}, problem {one.id}", "gray", [question, *truth])
        boxes += [head] if shown != (one.benchmark, one.id, one.setting) else []
        shown = (one.benchmark, one.id, one.setting)
        texts = [
            Text(f"Cluster {rank}: {cluster.size} sample{'s' if cluster.size > 1 else ''}", cluster.text)
            for rank, cluster in enumerate(one.clusters[:CLUSTERS_IN_BOX], start=1)
        ]
        whose = f"Responses{f' of {label}' if label else ''}"
        counted = f"{one.correct} of {one.n} correct, {len(one.clusters)} clusters"
        boxes.append(Box(f"{whose}: {counted}", "blue", texts))
    return boxes_to_latex(boxes)


def _excerpt(text: str) -> list[str]:
    cut = text[:LONGEST_SHOWN_CHARS]
    lines = cut.split("\n")
    shown = lines[:LONGEST_SHOWN_LINES]
    rest = len(text) - len("\n".join(shown))
    return [*shown, f"... ({rest} more characters)"] if rest else shown


def _tables_of(rows: Iterable[AnyRow]) -> dict[str, list[AnyRow]]:
    """The rows that stand in one table, by its title."""
    from evals.similarity.catalogue import Setting, setting_of
    from evals.tables.metric_tables import metric_title
    from evals.tables.titles import rows_in_order

    tables: dict[str, list[AnyRow]] = {}
    for row in rows_in_order(rows):
        is_beside_ucc = Setting.of(row) is not None and row.metric not in _CLUSTERED
        title = metric_title("ucc@k" if is_beside_ucc else row.metric, setting_of(row))
        tables.setdefault(title, []).append(row)
    return tables


def head_of(row: Row | DifferenceRow) -> str:
    """What stands above the number of ``row``, or beside it: its k, or its metric."""
    return _HEADS.get(row.metric, row.metric) if row.k is None else f"k={row.k}"


def number_cell(row: Row) -> str:
    """The value of a row and, where it has one, its interval."""
    text = _scaled(row.value, row.metric)
    if row.ci_low is None or row.ci_high is None:
        return text
    return f"{text} [{_scaled(row.ci_low, row.metric)}, {_scaled(row.ci_high, row.metric)}]"


def _scaled(value: float, metric: str, sign: str = "") -> str:
    from evals.tables.parts import PERCENT

    scale, digits = (100, 1) if metric in PERCENT else (1, 3 if metric == "ucr" else 2)
    return f"{scale * value:{sign}.{digits}f}"
