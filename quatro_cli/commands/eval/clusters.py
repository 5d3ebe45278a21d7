"""`quatro eval clusters`: what the clusters of one problem look like."""

from __future__ import annotations

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json
from quatro_cli.output import output


def clusters(
    files: shared.Files,
    benchmarks: Benchmarks,
    id: shared.Id,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    grader: shared.Grader = None,
    json: Json = False,
) -> None:
    """Show the largest clusters of a problem, with a text each.

    The text shown is the one that occurs most often in its cluster. Only the samples of this problem are graded. The
    texts of models are escaped.

    \b
    Examples:
      quatro eval clusters samples/math500.jsonl --id test/algebra/12
      quatro eval clusters ours.jsonl --id test/algebra/12 --json
    """
    from evals.studies.clusters import clusters

    how = shared.options(
        benchmarks, grader=grader, similarity=similarity, threshold=threshold, linkage=linkage, tokens=tokens
    )
    found = clusters(files, id, progress=shared.progress, **how)
    if json:
        output.json(found.document())
    else:
        output.data(f"{found}\n")
