"""How far UCC@k depends on clustering n answers rather than k.

UCC@k is unbiased given the partition, but the partition is made from all n answers: more answers bridge more gaps
(components chain), and TF-IDF weighs words by all texts. Clustering k drawn answers afresh shows the size of this.
"""

# Axes: P problems, D draws, K values of k, U distinct texts.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

import numpy as np

from evals.clustering import check_linkage, cluster_distinct
from evals.estimators import Floats
from evals.metrics.counting import count_clusters, resolve_ks, solutions
from evals.metrics.passk_ucc import rows_of, ucc_estimates
from evals.results.document import AVERAGE, About, Result, Row
from evals.samples.about import head_of, warnings_of
from evals.samples.types import GradedProblem, Samples
from evals.similarity.catalogue import Setting
from evals.similarity.measures import Distinct, Integers, similarity_of_distinct, tfidf_of_counts
from evals.studies.similarity import problem_key

RECLUSTERED = "ucc@k reclustered"


def reclustered_result(
    samples: Samples,
    *,
    setting: Setting,
    seed: int,
    ks: Sequence[int] | None = None,
    num_draws: int = 20,
    on_progress: Callable[[int, int], None] | None = None,
    **about: Unpack[About],
) -> Result:
    """UCC@k by the estimator (metric `ucc@k`) and by clustering k drawn samples afresh (`ucc@k reclustered`).

    The latter draws k of a problem's n samples without replacement and counts the clusters of the correct ones, with
    TF-IDF fitted on those alone. The row holds the mean over ``num_draws`` draws, which depend on ``seed``, the problem
    and k only, and as ``draws_se`` its standard error over them, None for one draw. At k = n the two agree.
    ``on_progress(done, total)`` counts problems.

    Raises:
        UsageError: a k is larger than some problem's n, or ``setting`` holds an unknown name.
        DataError: a sample has no grade.
    """
    graded = samples.graded()
    ks = resolve_ks(graded, ks)
    settings_of = {problem.benchmark: [setting] for problem in graded}
    estimated = ucc_estimates(count_clusters(graded, settings_of), ks)[0]
    drawn: dict[str, list[Floats]] = {}
    for done, problem in enumerate(graded, start=1):
        drawn.setdefault(problem.benchmark, []).append(reclustered_ucc(problem, setting, ks, num_draws, seed))
        if on_progress is not None:
            on_progress(done, len(graded))
    reclustered = estimated._replace(
        metric=RECLUSTERED, values={name: np.array(value_PDK).mean(axis=1) for name, value_PDK in drawn.items()}
    )
    rows = rows_of(reclustered, ci_seed=None)
    if num_draws > 1:
        error_K = {name: _draws_se(np.array(value_PDK)) for name, value_PDK in drawn.items()}
        rows = [row.model_copy(update={"draws_se": _row_error(row, error_K, ks)}) for row in rows]
    rows = [*rows_of(estimated, ci_seed=None), *rows]
    warnings = warnings_of(samples.warnings, graded)
    return Result(metric="ucc@k", rows=rows, warnings=warnings, **head_of(about, graded))


def reclustered_ucc(problem: GradedProblem, setting: Setting, ks: Sequence[int], num_draws: int, seed: int) -> Floats:
    """(D, K): the number of clusters among the correct ones of k drawn samples, for each draw and each k."""
    unique = solutions(problem, setting.tokens)
    num_clusters = _subset_clusters(unique, setting)
    value_DK = np.zeros((num_draws, len(ks)))
    for position, k in enumerate(ks):
        rng = np.random.default_rng([seed, problem_key(problem), k])
        for value_K in value_DK:
            # The samples that are wrong count as those numbered from `correct` on: only how many are drawn matters.
            drawn = np.sort(rng.choice(problem.n, size=k, replace=False))
            value_K[position] = num_clusters(unique.which_N[drawn[drawn < problem.correct]])
    return value_DK


def _draws_se(value_PDK: Floats) -> Floats:
    """The standard error, over the draws, of the mean over problems at each k."""
    num_problems, num_draws, _ = value_PDK.shape
    variance_PK = value_PDK.var(axis=1, ddof=1) / num_draws
    error_K: Floats = np.sqrt(variance_PK.sum(axis=0)) / num_problems
    return error_K


def _row_error(row: Row, error_K: Mapping[str, Floats], ks: Sequence[int]) -> float:
    """The standard error of a row, which may be the mean over benchmarks, from that of each benchmark."""
    assert row.k is not None
    parts = error_K.values() if row.benchmark == AVERAGE else [error_K[row.benchmark]]
    return float(np.linalg.norm([part_K[ks.index(row.k)] for part_K in parts]) / len(parts))


def _subset_clusters(unique: Distinct, setting: Setting) -> Callable[[Integers], int]:
    """A function from drawn texts (their places among the distinct ones, repeated and in order) to their clusters."""
    if setting.threshold is None:
        return lambda drawn: len(np.unique(drawn))
    threshold = setting.threshold
    check_linkage(setting.linkage)
    is_fitted = setting.similarity == "tfidf"
    counts_UV = unique.token_counts(setting.tokens) if is_fitted else None
    similarity_UU = None if is_fitted else similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens)

    def num_clusters(drawn: Integers) -> int:
        if not len(drawn):
            return 0
        places, which, count = np.unique(drawn, return_inverse=True, return_counts=True)
        subset = Distinct([unique.texts[place] for place in places], which, count)
        if similarity_UU is not None:
            similarity = similarity_UU[np.ix_(places, places)]
        else:
            assert counts_UV is not None
            similarity = tfidf_of_counts(counts_UV[places], count)
            np.fill_diagonal(similarity, 1.0)
        return max(cluster_distinct(subset, similarity, threshold=threshold, linkage=setting.linkage)) + 1

    return num_clusters
