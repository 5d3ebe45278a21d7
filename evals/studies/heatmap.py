"""Heatmaps: the similarities of the answers to one problem, with the answers of a cluster side by side."""

# Axes: C correct answers, W wrong ones, A answers shown (the correct ones, or all), U distinct texts.
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from evals.clustering import by_first_appearance, cluster_distinct, cluster_sizes
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.files.strict_json import shown
from evals.metrics.counting import Clustering, solutions
from evals.samples.types import GradedProblem, Samples
from evals.similarity.catalogue import DEFAULT, Setting
from evals.similarity.measures import Integers, similarity_of_distinct


class Heatmap(NamedTuple):
    """``similarity_AA`` of the answers shown, and the ``sizes`` of the clusters of correct ones, largest first.

    The first ``num_correct`` answers are correct, cluster after cluster; behind them the wrong ones, if they are shown.
    ``order_A`` says which answer stands where: its place among the answers shown, by sample index.
    """

    benchmark: str
    id: str
    n: int
    setting: Setting
    similarity_AA: Floats
    order_A: Integers
    sizes: tuple[int, ...]
    num_correct: int


def heatmap_of(
    samples: Samples,
    id: str,
    *,
    similarity: str | None = None,
    threshold: float | None = None,
    linkage: str = "components",
    tokens: str | None = None,
    with_wrong: bool = False,
) -> Heatmap:
    """The heatmap of the problem called ``id``, of its correct answers or ``with_wrong`` of all, by tfidf if not said.

    Clusters are those that UCC counts, of correct answers alone. The wrong ones are in order of clusters of their own.

    Raises:
        UsageError: no problem has that id, or several benchmarks have one; or `cluster` refuses the setting.
        DataError: there are no two answers to show, or a sample has no grade.
    """
    samples = samples.of_problem(id)
    benchmarks = list(dict.fromkeys(row.benchmark for row in samples.rows))
    if len(benchmarks) > 1:
        raise UsageError(f"{shown(benchmarks)} have a problem {shown(id)}; choose one with -b")
    thresholds = None if threshold is None else [threshold]
    problem = samples.graded()[0]
    (setting,) = Clustering([similarity or DEFAULT], thresholds, linkage, tokens).settings(
        problem.benchmark, problem.kind
    )
    if (problem.n if with_wrong else problem.correct) < 2:
        raise DataError(
            f"{shown(id)} of {problem.benchmark} has {problem.correct} correct of {problem.n} samples; a heatmap "
            f"compares at least two{'' if with_wrong else ' correct ones (--all: any)'}: choose another --id"
        )
    rows = samples.problems()[0].samples
    order_C, sizes = _clustered(problem, setting)
    if not with_wrong:
        return _heatmap(problem, setting, problem.completions, order_C, sizes)
    wrong = [row.completion for row in rows if not row.correct]
    order_W, _ = _clustered(problem._replace(completions=wrong), setting)
    place_C, place_W = (np.flatnonzero([bool(row.correct) is kind for row in rows]) for kind in (True, False))
    order_A = np.concatenate([place_C[order_C], place_W[order_W]])
    return _heatmap(problem, setting, [row.completion for row in rows], order_A, sizes)


def _heatmap(
    problem: GradedProblem, setting: Setting, texts: list[str], order_A: Integers, sizes: tuple[int, ...]
) -> Heatmap:
    unique = solutions(problem._replace(completions=texts), setting.tokens)
    place_A = unique.which_N[order_A]
    similarity_UU = similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens)
    similarity_AA = similarity_UU[np.ix_(place_A, place_A)]
    return Heatmap(
        problem.benchmark, problem.id, problem.n, setting, similarity_AA, order_A, sizes, len(problem.completions)
    )


def _clustered(problem: GradedProblem, setting: Setting) -> tuple[Integers, tuple[int, ...]]:
    """The order of ``problem``'s completions by cluster, and the sizes of the clusters."""
    if not problem.completions:
        return np.arange(0), ()
    unique = solutions(problem, setting.tokens)
    similarity_UU = similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens)
    if setting.threshold is None:
        labels = by_first_appearance(unique.which_N)
    else:
        labels = cluster_distinct(unique, similarity_UU, threshold=setting.threshold, linkage=setting.linkage)
    return _ordered(similarity_UU, unique.which_N, np.asarray(labels)), cluster_sizes(labels)


def _ordered(similarity_UU: Floats, which_C: Integers, label_C: Integers) -> Integers:
    """Answers by cluster, the largest first; inside a cluster in the order of the leaves of average linkage."""
    size = np.bincount(label_C)
    leaf_U = np.argsort(_leaves(similarity_UU))
    return np.lexsort((np.arange(len(which_C)), leaf_U[which_C], label_C, -size[label_C]))


def _leaves(similarity_UU: Floats) -> Integers:
    """Distinct texts in an order in which similar ones are neighbours."""
    if len(similarity_UU) < 3:
        return np.arange(len(similarity_UU))
    distance_UU = 1.0 - similarity_UU
    np.fill_diagonal(distance_UU, 0.0)
    tree = hierarchy.linkage(squareform(distance_UU, checks=False), method="average")
    return hierarchy.leaves_list(tree).astype(np.int64)
