"""`quatro eval clusters`: what the clusters of one problem look like."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from quatro_cli.commands.eval import options as shared
from quatro_cli.options import Benchmarks, Json, refuse_idle, refuse_loss, write_or_print
from quatro_cli.output import output


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
    from quatro_cli.commands.eval.tables import LARGEST_CLUSTERS, clusters_as_boxes, show_clusters

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
        show_clusters(found)
    else:
        write_or_print(clusters_as_boxes(found, label), out)
