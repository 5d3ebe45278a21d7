"""Heatmaps: the similarities of all answers to one problem, with the answers of a cluster side by side."""

# Axes: C correct answers.
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from evals.clustering import by_first_appearance, cluster_distinct, cluster_sizes
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.files.strict_json import shown
from evals.metrics.counting import clustering_settings, solutions
from evals.samples.types import Samples
from evals.similarity.measures import similarity_of_distinct
from evals.similarity.setting import Setting
from evals.similarity.tokens import Integers


class Heatmap(NamedTuple):
    """``similarity_CC`` of the correct answers among n, largest cluster first, and the ``sizes`` of the clusters.

    ``order_C`` says which correct answer (by sample index) stands where.
    """

    benchmark: str
    id: str
    n: int
    setting: Setting
    similarity_CC: Floats
    order_C: Integers
    sizes: tuple[int, ...]


def heatmap_of(
    samples: Samples,
    id: str,
    *,
    similarity: str = "tfidf",
    threshold: float | None = None,
    linkage: str = "components",
    tokens: str | None = None,
) -> Heatmap:
    """The heatmap of the problem called ``id``.

    Raises:
        UsageError: no problem has that id, or several benchmarks have one; or `cluster` refuses the setting.
        DataError: the problem has no two correct answers, or a sample of it has no grade.
    """
    samples = samples.of_problem(id)
    benchmarks = list(dict.fromkeys(row.benchmark for row in samples.rows))
    if len(benchmarks) > 1:
        raise UsageError(f"{shown(benchmarks)} have a problem {shown(id)}; choose one with -b")
    thresholds = None if threshold is None else [threshold]
    setting = clustering_settings(benchmarks[0], [similarity], thresholds, linkage, tokens)[0]
    problem = samples.graded()[0]
    if problem.correct < 2:
        raise DataError(
            f"{shown(id)} of {problem.benchmark} has {problem.correct} correct of {problem.n} samples; a heatmap "
            "compares at least two: choose another --id"
        )
    unique = solutions(problem, setting.tokens)
    similarity_UU = similarity_of_distinct(similarity, unique, tokens=setting.tokens)
    if setting.threshold is None:
        labels = by_first_appearance(unique.which_N)
    else:
        labels = cluster_distinct(unique, similarity_UU, threshold=setting.threshold, linkage=linkage)
    order_C = _ordered(similarity_UU, unique.which_N, np.asarray(labels))
    place_C = unique.which_N[order_C]
    return Heatmap(
        problem.benchmark,
        problem.id,
        problem.n,
        setting,
        similarity_UU[np.ix_(place_C, place_C)],
        order_C,
        cluster_sizes(labels),
    )


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
