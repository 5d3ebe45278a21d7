"""`quatro eval clusters`: what the clusters of one problem look like."""

from __future__ import annotations

from quatro_cli.commands.eval.options import (
    Extraction,
    Files,
    Grader,
    Id,
    Linkage,
    Policy,
    Regrade,
    Similarities,
    Thresholds,
    Tokens,
    asked_for,
    clustering,
    graded_samples,
)
from quatro_cli.options import AllowUnsafe, Benchmarks, Json
from quatro_cli.output import output


def clusters(
    files: Files,
    benchmarks: Benchmarks,
    id: Id,
    similarity: Similarities = None,
    threshold: Thresholds = None,
    linkage: Linkage = "components",
    tokens: Tokens = None,
    regrade: Regrade = False,
    policy: Policy = None,
    extraction: Extraction = None,
    grader: Grader = None,
    allow_unsafe_code: AllowUnsafe = False,
    json: Json = False,
) -> None:
    """Show the largest clusters of one problem, with a text each.

    The text shown is the one that occurs most often in its cluster. Only the samples of this problem are graded.

    \b
    Examples:
      quatro eval clusters samples/math500.jsonl --id test/algebra/12
      quatro eval clusters ours.jsonl --id 60 --similarity tfidf,rouge-l --threshold 0.8
    """
    from evals.studies.clusters import clusters_of_problem
    from quatro_cli.commands.eval.tables import LARGEST_CLUSTERS, show_clusters

    how = clustering(similarity, threshold, linkage, tokens)
    samples, _ = graded_samples(files, benchmarks, asked=asked_for(policy, extraction, grader, regrade=regrade), id=id)
    found = clusters_of_problem(samples, id, **how)
    if json:
        output.json({"schema": 1, "problems": [one.document(largest=LARGEST_CLUSTERS) for one in found]})
    else:
        show_clusters(found)
