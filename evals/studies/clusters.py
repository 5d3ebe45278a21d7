"""The clusters of one problem, with a text that stands for each of the largest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from evals.errors import UsageError
from evals.metrics.counting import clustering_settings, labels_by_setting, solutions
from evals.samples.types import GradedProblem, Samples
from evals.similarity.setting import Setting


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
    prompt: str | None = None
    answer: str | int | float | None = None

    def document(self, *, largest: int) -> dict[str, Any]:
        """Plain JSON values: all sizes, and descriptions of the ``largest`` clusters."""
        return {
            "benchmark": self.benchmark,
            "id": self.id,
            "n": self.n,
            "correct": self.correct,
            **self.setting._asdict(),
            "sizes": [cluster.size for cluster in self.clusters],
            "clusters": [cluster._asdict() for cluster in self.clusters[:largest]],
        }


def clusters_of_problem(
    samples: Samples,
    id: str,
    *,
    similarities: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str | None = None,
) -> list[Clusters]:
    """The clusters of the problem called ``id``, in every benchmark that has one, under each setting of `ucc_result`.

    Raises:
        UsageError: no problem has that id (similar ones are named), or as `ucc_result`.
        DataError: a sample of it has no grade.
    """
    return [
        clusters
        for problem in samples.of_problem(id).graded()
        for clusters in clusters_of(
            problem, clustering_settings(problem.benchmark, similarities, thresholds, linkage, tokens, problem.kind)
        )
    ]


def random_clusters(
    samples: Samples,
    num_problems: int,
    *,
    seed: int = 0,
    similarities: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str | None = None,
) -> list[Clusters]:
    """The clusters of ``num_problems`` problems, drawn by ``seed`` from those with at least two under every setting.

    Settings are those of `ucc_result`.

    Raises:
        UsageError: there are fewer such problems, or as `ucc_result`.
        DataError: a sample has no grade.
    """
    found: list[Clusters] = []
    problems = samples.graded()
    num_found = 0
    for problem in random.Random(seed).sample(problems, len(problems)):
        settings = clustering_settings(problem.benchmark, similarities, thresholds, linkage, tokens, problem.kind)
        several = clusters_of(problem, settings) if problem.correct > 1 else []
        if not several or any(len(one.clusters) < 2 for one in several):
            continue
        found += several
        num_found += 1
        if num_found == num_problems:
            return found
    raise UsageError(
        f"--random {num_problems}: of {len(problems)} problems only {num_found} have two clusters of correct answers; "
        "ask for fewer, or cluster more finely with a higher --threshold"
    )


def clusters_of(problem: GradedProblem, settings: Sequence[Setting]) -> list[Clusters]:
    """The clusters of a problem's correct completions under each of ``settings``, which have the same tokens."""
    unique = solutions(problem, settings[0].tokens)
    described = []
    for setting, labels in labels_by_setting(unique, settings).items():
        members: dict[int, Counter[str]] = {}
        for label, place in zip(labels, unique.which_N.tolist(), strict=True):
            members.setdefault(label, Counter())[unique.texts[place]] += 1
        clusters = []
        for texts in members.values():
            text, times = texts.most_common(1)[0]
            clusters.append(Cluster(texts.total(), len(texts), times, text))
        clusters.sort(key=lambda cluster: -cluster.size)
        head = (problem.benchmark, problem.id, problem.n, problem.correct)
        described.append(Clusters(*head, setting, clusters, problem.prompt, problem.answer))
    return described
