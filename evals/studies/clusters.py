"""The clusters of one problem, with a text that stands for each of the largest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from evals.estimators import ucc_at_k
from evals.metrics.counting import BY_DEFAULT, Clustering, labels_by_setting, solutions
from evals.metrics.passk_ucc import resolve_ks
from evals.samples.types import GradedProblem, Samples
from evals.similarity import Setting


class Cluster(NamedTuple):
    """``text`` is the commonest solution in the cluster (`solutions_in`), and ``times`` says how often it occurs."""

    size: int
    num_distinct: int
    times: int
    text: str


class Clusters(NamedTuple):
    """The clusters of one problem's correct completions under one setting, largest first.

    ``prompt`` is None where the samples do not hold it.
    """

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

    def document(self, *, largest: int) -> dict[str, Any]:
        """Plain JSON values: all sizes, and descriptions of the ``largest`` clusters."""
        return {
            "benchmark": self.benchmark,
            "id": self.id,
            "n": self.n,
            "correct": self.correct,
            **self.setting._asdict(),
            "ucc": {str(k): value for k, value in self.ucc().items()},
            "sizes": [cluster.size for cluster in self.clusters],
            "clusters": [cluster._asdict() for cluster in self.clusters[:largest]],
        }


def clusters_of_problem(
    samples: Samples,
    id: str,
    *,
    clustering: Clustering = BY_DEFAULT,
) -> list[Clusters]:
    """The clusters of the problem called ``id``, in every benchmark that has one, under each setting of `ucc_result`.

    Raises:
        UsageError: no problem has that id (similar ones are named), or as `ucc_result`.
        DataError: a sample of it has no grade.
    """
    return [
        clusters
        for problem in samples.of_problem(id).graded()
        for clusters in clusters_of(problem, clustering.settings(problem.benchmark, problem.kind))
    ]


def clusters_of(problem: GradedProblem, settings: Sequence[Setting]) -> list[Clusters]:
    """The clusters of a problem's correct completions under each of ``settings``, which have the same tokens."""
    unique = solutions(problem, settings[0].tokens)
    described = []
    for setting, labels in labels_by_setting(unique, settings).items():
        times_of: dict[int, Counter[int]] = {}  # by cluster and text
        for label, place in zip(labels, unique.which_N.tolist(), strict=True):
            times_of.setdefault(label, Counter())[place] += 1
        clusters = []
        for times in times_of.values():
            ((commonest, most),) = times.most_common(1)
            clusters.append(Cluster(times.total(), len(times), most, unique.texts[commonest]))
        clusters.sort(key=lambda cluster: -cluster.size)
        head = (problem.benchmark, problem.id, problem.n, problem.correct)
        described.append(Clusters(*head, setting, clusters))
    return described
