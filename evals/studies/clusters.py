"""The clusters of one problem, with a text that stands for each of the largest."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evals.errors import UsageError
from evals.estimators import ucc_at_k
from evals.metrics.counting import clustering_settings, labels_by_setting, resolve_ks, solutions
from evals.samples.types import GradedProblem, Samples
from evals.similarity.measures import Distinct, Floats, similarity_of_distinct
from evals.similarity.setting import Setting


class Member(NamedTuple):
    """One of the different texts of a cluster, and the indices of the ``samples`` that it is.

    ``similarity`` is that to the most similar other text of the cluster, which is sample ``nearest``; both are None
    where there is no other.
    """

    samples: list[int]
    text: str
    similarity: float | None = None
    nearest: int | None = None


class Cluster(NamedTuple):
    """``text`` is the commonest solution in the cluster (`solutions_in`), and ``times`` says how often it occurs.

    ``members`` begin with what occurs most often.
    """

    size: int
    num_distinct: int
    times: int
    text: str
    members: list[Member]


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

    def ucc(self) -> dict[int, float]:
        """UCC@k of the problem for each k of `resolve_ks`."""
        sizes = [cluster.size for cluster in self.clusters]
        return {k: ucc_at_k(self.n, sizes, k) for k in resolve_ks([self], None)}

    def document(self, *, largest: int | None, with_members: bool = False) -> dict[str, Any]:
        """Plain JSON values: all sizes, and descriptions of the ``largest`` clusters (None: of all)."""
        described = [cluster._asdict() for cluster in self.clusters[:largest]]
        for one in described:
            members = one.pop("members")
            one |= {"members": [member._asdict() for member in members]} if with_members else {}
        return {
            "benchmark": self.benchmark,
            "id": self.id,
            "n": self.n,
            "correct": self.correct,
            **self.setting._asdict(),
            "ucc": {str(k): value for k, value in self.ucc().items()},
            "sizes": [cluster.size for cluster in self.clusters],
            "clusters": described,
        }


def clusters_of_problem(
    samples: Samples,
    id: str,
    *,
    similarities: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str | None = None,
    with_similarities: bool = False,
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
            problem,
            clustering_settings(problem.benchmark, similarities, thresholds, linkage, tokens, problem.kind),
            with_similarities=with_similarities,
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


def clusters_of(
    problem: GradedProblem, settings: Sequence[Setting], *, with_similarities: bool = False
) -> list[Clusters]:
    """The clusters of a problem's correct completions under each of ``settings``, which have the same tokens.

    ``with_similarities`` adds to each member its nearest one.
    """
    unique = solutions(problem, settings[0].tokens)
    described = []
    for setting, labels in labels_by_setting(unique, settings).items():
        samples_of: dict[int, dict[int, list[int]]] = {}  # by cluster and text
        for label, place, index in zip(labels, unique.which_N.tolist(), problem.indices, strict=True):
            samples_of.setdefault(label, {}).setdefault(place, []).append(index)
        # Of all texts, since some measures weigh words by how many texts have them.
        is_wanted = with_similarities and setting.similarity != "exact"
        similarity_UU = similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens) if is_wanted else None
        clusters = []
        for samples in samples_of.values():
            members = _members(unique, samples, similarity_UU)
            size = sum(len(member.samples) for member in members)
            clusters.append(Cluster(size, len(members), len(members[0].samples), members[0].text, members))
        clusters.sort(key=lambda cluster: -cluster.size)
        head = (problem.benchmark, problem.id, problem.n, problem.correct)
        described.append(Clusters(*head, setting, clusters, problem.prompt, problem.answer))
    return described


def _members(unique: Distinct, samples: Mapping[int, list[int]], similarity_UU: Floats | None) -> list[Member]:
    """The texts of one cluster; ``samples`` has their indices by the place of the text in ``unique``."""
    places = sorted(samples, key=lambda place: -len(samples[place]))
    members = [Member(samples[place], unique.texts[place]) for place in places]
    if similarity_UU is None or len(places) < 2:
        return members
    near_MM = similarity_UU[np.ix_(places, places)]
    np.fill_diagonal(near_MM, -np.inf)
    return [
        member._replace(similarity=float(near_MM[i, j]), nearest=members[j].samples[0])
        for i, (member, j) in enumerate(zip(members, near_MM.argmax(axis=1).tolist(), strict=True))
    ]
