"""`quatro eval clusters`: what the clusters of one problem look like."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, refuse_idle, refuse_loss, write_or_print
from quatro_cli.output import output, visible

if TYPE_CHECKING:
    from evals.studies.clusters import Clusters

LARGEST_CLUSTERS = 5
CLUSTERS_IN_BOX = 3
LONGEST_SHOWN_LINES = 12
LONGEST_SHOWN_CHARS = 1500


class Format(StrEnum):
    """The formats of `quatro eval clusters`."""

    text = "text"
    latex = "latex"


def clusters(
    files: shared.Files,
    benchmarks: Benchmarks,
    id: shared.Id,
    format: Annotated[
        Format, Option(metavar="NAME", help="text (default); latex: boxes for a paper.", show_default=False)
    ] = Format.text,
    label: Annotated[str, Option(metavar="NAME", help="Name of the model, for the boxes.", show_default=False)] = "",
    out: Annotated[
        Path | None, Option("-o", "--out", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    grader: shared.Grader = None,
    json: Json = False,
) -> None:
    """Show the largest clusters of a problem, with a text each.

    The text shown is the one that occurs most often in its cluster. Only the samples of this problem are graded.
    --format latex writes boxes: the question with its answer, and three clusters. The texts of models are escaped.

    \b
    Examples:
      quatro eval clusters samples/math500.jsonl --id test/algebra/12
      quatro eval clusters ours.jsonl --id test/algebra/12 --format latex --label Ours -o examples.tex
    """
    from evals.studies.clusters import clusters_of_problem

    if format is Format.text:
        refuse_idle({"--label": label, "-o": out}, "--format text")
    else:
        refuse_idle({"--format latex": json}, "--json")
    refuse_loss(out, files)
    how = shared.clustering(similarity, threshold, linkage, tokens)
    asked = shared.asked_for(grader)
    samples, _ = shared.graded_samples(files, benchmarks, asked=asked, id=id)
    found = clusters_of_problem(samples, id, clustering=how)
    if json:
        output.json({"schema": 1, "problems": [one.document(largest=LARGEST_CLUSTERS) for one in found]})
    elif format is Format.text:
        _show(found)
    else:
        write_or_print(_boxes(found, label), out)


def _show(found: Sequence[Clusters]) -> None:
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


def _excerpt(text: str) -> list[str]:
    cut = text[:LONGEST_SHOWN_CHARS]
    lines = cut.split("\n")
    shown = lines[:LONGEST_SHOWN_LINES]
    rest = len(text) - len("\n".join(shown))
    return [*shown, f"... ({rest} more characters)"] if rest else shown


def _boxes(found: Sequence[Clusters], label: str) -> str:
    """LaTeX boxes like the paper's: question and answer of each problem, then texts of its largest clusters."""
    from evals.tables.latex import Box, Text, boxes_to_latex
    from evals.tables.parts import title_of

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
