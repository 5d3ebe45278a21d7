"""One number from several seeds: their mean and how sure it is."""

# Axes: S seeds, P problems.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evals.estimators import Floats


class SeedMean(NamedTuple):
    """``low`` and ``high`` are None for a single seed, which says nothing about the spread."""

    mean: float
    low: float | None
    high: float | None
    num_seeds: int


def mean_over_seeds(values: Sequence[float]) -> SeedMean:
    """The mean with its 95 % Student t interval, mean +- t(.975, S - 1) std / sqrt(S) with ddof = 1.

    It holds the spread between seeds, not between problems: that is `evals.bootstrap`, and both is
    `mean_over_seeds_and_problems`.

    Raises:
        ValueError: there is no value, or one is not finite.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"expected finite numbers, at least one, found {list(values)[:8]}")
    mean = float(np.mean(values))
    if len(values) == 1:
        return SeedMean(mean, None, None, 1)
    half = _student_t(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return SeedMean(mean, mean - half, mean + half, len(values))


def mean_over_seeds_and_problems(value_SP: Floats) -> SeedMean:
    """The mean of a (S, P) table with a 95 % interval for other seeds and other problems than these.

    Seeds and problems are crossed random effects: with the mean squares of rows, columns and the rest,

        SE^2 = (MS_S + MS_P - MS_E) / (S P),        degrees of freedom by Satterthwaite.

    A bootstrap that draws two or three seeds again finds their spread a half or a third too small; this does not.
    With one problem it is `mean_over_seeds`. With one seed ``low`` and ``high`` are None.

    Raises:
        ValueError: the table is not two-dimensional, is empty, or holds what is not finite.
    """
    value_SP = np.asarray(value_SP, dtype=np.float64)
    if value_SP.ndim != 2 or not value_SP.size or not np.isfinite(value_SP).all():
        raise ValueError(f"expected finite numbers by seed and problem, found shape {value_SP.shape}")
    num_seeds, num_problems = value_SP.shape
    if num_seeds == 1 or num_problems == 1:
        return mean_over_seeds(value_SP.mean(axis=1).tolist())
    mean = float(value_SP.mean())
    seed_S1, problem_1P = value_SP.mean(axis=1, keepdims=True), value_SP.mean(axis=0, keepdims=True)
    df_S, df_P = num_seeds - 1, num_problems - 1
    ms_S = num_problems * float(np.var(seed_S1, ddof=1))
    ms_P = num_seeds * float(np.var(problem_1P, ddof=1))
    ms_E = float(((value_SP - seed_S1 - problem_1P + mean) ** 2).sum()) / (df_S * df_P)
    # In expectation the sum exceeds both of its parts; with few seeds chance may say otherwise.
    total = max(ms_S + ms_P - ms_E, ms_S, ms_P)
    if total <= 0:
        return SeedMean(mean, mean, mean, num_seeds)
    freedom = total**2 / (ms_S**2 / df_S + ms_P**2 / df_P + ms_E**2 / (df_S * df_P))
    freedom = min(max(freedom, min(df_S, df_P)), num_seeds * num_problems - 1)
    half = _student_t(freedom) * math.sqrt(total / (num_seeds * num_problems))
    return SeedMean(mean, mean - half, mean + half, num_seeds)


def _student_t(freedom: float) -> float:
    """The .975 quantile."""
    from scipy.special import stdtrit  # scipy.stats, the usual place, takes half a second to import

    return float(stdtrit(freedom, 0.975))
