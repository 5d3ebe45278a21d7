"""The clusters of one problem, with a text that stands for each of the largest."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from evals.estimators import ucc_at_k
from evals.metrics.counting import labels_by_setting, solutions
from evals.metrics.measuring import Options, Progress, Source, listed, paths_of, progress_line
from evals.metrics.passk_ucc import resolve_ks
from evals.samples.graded import read_graded
from evals.samples.types import GradedProblem
from evals.similarity import Setting
from evals.similarity.measures import Distinct
from evals.text import visible

LARGEST = 5  # clusters of which a text is shown
LONGEST_SHOWN_LINES = 12
LONGEST_SHOWN_CHARS = 1500


class Cluster(NamedTuple):
    """``text`` is the commonest solution in the cluster (`solutions_in`), and ``times`` says how often it occurs."""

    size: int
    num_distinct: int
    times: int
    text: str


class Clusters(NamedTuple):
    """One problem's clusters of correct completions under one setting, largest first."""

    benchmark: str
    id: str
    n: int
    correct: int
    setting: Setting
    clusters: list[Cluster]

    def ucc(self) -> dict[int, float]:
        """UCC@k of the problem for each k of `resolve_ks`."""
        sizes = [cluster.size for cluster in self.clusters]
        return {k: ucc_at_k(self.n, sizes, k) for k in resolve_ks([self], None)}

    def document(self) -> dict[str, Any]:
        """Plain JSON values: all sizes, and descriptions of the largest clusters."""
        return {
            "benchmark": self.benchmark,
            "id": self.id,
            "n": self.n,
            "correct": self.correct,
            **self.setting._asdict(),
            "ucc": {str(k): value for k, value in self.ucc().items()},
            "sizes": [cluster.size for cluster in self.clusters],
            "clusters": [cluster._asdict() for cluster in self.clusters[:LARGEST]],
        }


class ProblemClusters(list[Clusters]):
    """What `clusters` found: an entry for each benchmark that has the problem, and setting. The texts are escaped."""

    def document(self) -> dict[str, Any]:
        """What `quatro eval clusters --json` prints."""
        return {"schema": 1, "problems": [one.document() for one in self]}

    def __repr__(self) -> str:
        lines = []
        for one in self:
            counted = f"{one.correct} of {one.n} samples correct, {len(one.clusters)} cluster(s) by {one.setting}"
            lines.append(f"{one.id} ({one.benchmark}): {counted}")
            lines.append(", ".join(f"UCC@{k} {value:.3f}" for k, value in one.ucc().items()))
            for rank, cluster in enumerate(one.clusters[:LARGEST], start=1):
                head = f"\n#{rank}  {cluster.size} sample(s), {cluster.num_distinct} different text(s)"
                lines.append(f"{head}; this one {cluster.times} time(s):")
                lines += [f"    {line}" for line in _excerpt(cluster.text)]
            if others := [str(cluster.size) for cluster in one.clusters[LARGEST:]]:
                lines.append(f"\nand {len(others)} more cluster(s), of size {', '.join(others[:20])}")
        return "\n".join(visible(line, keep="\n\t") for line in lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _excerpt(text: str) -> list[str]:
    cut = text[:LONGEST_SHOWN_CHARS]
    lines = cut.split("\n")
    shown = lines[:LONGEST_SHOWN_LINES]
    rest = len(text) - len("\n".join(shown))
    return [*shown, f"... ({rest} more characters)"] if rest else shown


def clusters(
    samples: Source,
    id: str,
    *,
    benchmarks: str | Sequence[str] | None = None,
    grader: str | None = None,
    similarity: str | Sequence[str] | None = None,
    threshold: float | Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str | None = None,
    progress: Progress | None = None,
) -> ProblemClusters:
    """The clusters of one problem's correct samples, largest first, as `quatro eval clusters` shows them.

    Each entry has `clusters`, and each cluster a `size` and its commonest `text`. `document()` returns what --json
    prints. The options are those of `measure`. Only the samples of this problem are graded.

        >>> found = quatro.clusters("runs/first", id="countdown/test/0000")
        >>> [one.n for one in found], sum(one.size for one in found[0].clusters) == found[0].correct
        ([2], True)

    Raises:
        UsageError: no problem has that id (similar ones are named), or an option is unknown or out of range.
        DataError: a file is missing or damaged.
    """
    how: dict[str, Any] = {"similarity": similarity, "threshold": threshold, "linkage": linkage, "tokens": tokens}
    asked, wanted = Options(["ucc@k"], grader=grader, **how), listed(benchmarks)
    with (progress or progress_line)("grading answers") as tell:
        read, _ = read_graded(paths_of(samples), benchmarks=wanted, asked=asked.grading, id=id, on_progress=tell)
    return ProblemClusters(
        found
        for problem in read.of_problem(id).graded()
        for found in clusters_of(problem, asked.clustering.settings(problem.benchmark, problem.kind))
    )


def clusters_of(problem: GradedProblem, settings: Sequence[Setting]) -> list[Clusters]:
    """The clusters of a problem's correct completions under each of ``settings``, which have the same tokens."""
    head, found = (problem.benchmark, problem.id, problem.n, problem.correct), []
    for setting, some in texts_by_cluster(problem, settings).items():
        clusters = [Cluster(one.total(), len(one), n, text) for one in some for text, n in one.most_common(1)]
        found.append(Clusters(*head, setting, clusters))
    return found


def texts_by_cluster(problem: GradedProblem, settings: Sequence[Setting]) -> dict[Setting, list[Counter[str]]]:
    """How often each solution (`solutions_in`) occurs in each cluster, the largest first, under each setting."""
    unique = solutions(problem, settings[0].tokens)
    return {setting: times_in(unique, labels) for setting, labels in labels_by_setting(unique, settings).items()}


def times_in(unique: Distinct, labels: Sequence[int]) -> list[Counter[str]]:
    """How often each of the texts occurs in each cluster of ``labels``, the largest first."""
    times_of: dict[int, Counter[str]] = {}
    for label, place in zip(labels, unique.which_N.tolist(), strict=True):
        times_of.setdefault(label, Counter())[unique.texts[place]] += 1
    return sorted(times_of.values(), key=lambda times: -times.total())
