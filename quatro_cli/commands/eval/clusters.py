"""`quatro eval clusters`: what the clusters of one problem look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json
from quatro_cli.output import output, visible

if TYPE_CHECKING:
    from evals.studies.clusters import Clusters

LARGEST_CLUSTERS = 5
LONGEST_SHOWN_LINES = 12
LONGEST_SHOWN_CHARS = 1500


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
    from evals.studies.clusters import clusters_of_problem

    how = shared.clustering(similarity, threshold, linkage, tokens)
    asked = shared.asked_for(grader)
    samples, _ = shared.graded_samples(files, benchmarks, asked=asked, id=id)
    found = clusters_of_problem(samples, id, clustering=how)
    if json:
        output.json({"schema": 1, "problems": [one.document(largest=LARGEST_CLUSTERS) for one in found]})
    else:
        _show(found)


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
