"""How sure a mean is: bootstrap intervals over problems, and intervals over seeds."""

# Axes: B resamples, S seeds, P problems, K values of k.
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from evals.estimators import Floats

NUM_RESAMPLES = 10_000
PERCENTILES = (2.5, 97.5)
_CHUNK = 500
_LEAST_POOLED = 10  # degrees of freedom, below which no common spread is told


class Interval(NamedTuple):
    """The two ends of a 95 % interval."""

    low: float
    high: float


class PairedDifference(NamedTuple):
    """Mean of b - a over problems with its 95 % interval; ``p`` is two-sided."""

    mean: float
    low: float
    high: float
    p: float


def resampled_means(value_PK: Floats, rng: np.random.Generator, num_resamples: int = NUM_RESAMPLES) -> Floats:
    """Means over resampled problems, shape (B, K); draws what one `rng.integers(0, P, size=(B, P))` would."""
    num_problems = len(value_PK)
    mean_BK = np.empty((num_resamples, value_PK.shape[1]))
    for start in range(0, num_resamples, _CHUNK):  # (B, P, K) at once would take gigabytes
        stop = min(start + _CHUNK, num_resamples)
        chosen_BP = rng.integers(0, num_problems, size=(stop - start, num_problems))
        times_BP = np.zeros((stop - start, num_problems))
        np.add.at(times_BP, (np.arange(stop - start)[:, None], chosen_BP), 1.0)
        mean_BK[start:stop] = times_BP @ value_PK / num_problems
    return mean_BK


def intervals(mean_BK: Floats) -> list[Interval]:
    """The 95 % percentile interval of each column."""
    low_K, high_K = np.percentile(mean_BK, PERCENTILES, axis=0)
    return [Interval(float(low), float(high)) for low, high in zip(low_K, high_K, strict=True)]


def average_intervals(value_by_benchmark: Sequence[Floats], *, seed: int) -> list[Interval]:
    """Intervals of each column's unweighted mean over benchmarks, whose problems are resampled independently."""
    rng = np.random.default_rng(seed)
    mean_BK = np.mean([resampled_means(value_PK, rng) for value_PK in value_by_benchmark], axis=0)
    return intervals(mean_BK)


def interval_without_spread(value_by_benchmark: Sequence[Floats], largest: float) -> Interval | None:
    """The 95 % interval of a mean over benchmarks, each with one value in all of its problems; None where they differ.

    ``value_by_benchmark`` has a (P,) array of values in [0, ``largest``] for each. A bootstrap would have no width. If
    a share q of all problems has another value, P draws miss it with the probability (1 - q)^P; q is the largest for
    which this is 0.025, and those problems may have any value. At 0 and ``largest`` that is Clopper and Pearson's.
    """
    if any(np.ptp(value_P) > 1e-9 * largest for value_P in value_by_benchmark):
        return None
    values = [float(value_P[0]) for value_P in value_by_benchmark]
    # Draws from all benchmarks count together, unless what is unseen may lie where it matters most.
    num_draws = min(map(len, value_by_benchmark)) * (len(values) if len(set(values)) == 1 else 1)
    seen, mean = 0.025 ** (1 / num_draws), sum(values) / len(values)
    return Interval(seen * mean, seen * mean + (1 - seen) * largest)


def average_paired_differences(
    a_by_benchmark: Sequence[Floats], b_by_benchmark: Sequence[Floats], *, seed: int
) -> list[PairedDifference]:
    """b - a of each column on the same problems, as unweighted means over benchmarks, resampled independently.

    There is a (P, K) array for each benchmark. p = 2 min((#{<= 0} + 1), (#{>= 0} + 1)) / (B + 1) over the resampled
    means.
    """
    rng = np.random.default_rng(seed)
    differences = [b_PK - a_PK for a_PK, b_PK in zip(a_by_benchmark, b_by_benchmark, strict=True)]
    mean_BK = np.mean([resampled_means(difference_PK, rng) for difference_PK in differences], axis=0)
    mean_K = np.mean([difference_PK.mean(axis=0) for difference_PK in differences], axis=0)
    smaller_side_K = np.minimum((mean_BK <= 0).sum(axis=0), (mean_BK >= 0).sum(axis=0))
    p_K = np.minimum(1.0, 2 * (smaller_side_K + 1) / (len(mean_BK) + 1))
    return [
        PairedDifference(float(mean), interval.low, interval.high, float(p))
        for mean, interval, p in zip(mean_K, intervals(mean_BK), p_K, strict=True)
    ]


class SeedMean(NamedTuple):
    """``low`` and ``high`` are None for a single seed, which says nothing about the spread.

    ``error`` is the standard error and ``freedom`` the degrees of freedom that the interval was made of.
    """

    mean: float
    low: float | None
    high: float | None
    num_seeds: int
    error: float | None = None
    freedom: float | None = None


class SeedSpread(NamedTuple):
    """The variance of the mean over problems from seed to seed, and the degrees of freedom that it is worth."""

    variance: float
    freedom: float


def mean_over_seeds(values: Sequence[float]) -> SeedMean:
    """The mean with its 95 % Student t interval, mean +- t(0.975, S - 1) std / sqrt(S) with ddof = 1.

    It holds the spread between seeds only. `average_intervals` are over problems, and
    `mean_over_seeds_and_problems` are over both.

    Raises:
        ValueError: there is no value, or one is not finite.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"expected finite numbers, at least one, found {list(values)[:8]}")
    mean = float(np.mean(values))
    if len(values) == 1:
        return SeedMean(mean, None, None, 1)
    return _seed_mean(mean, float(np.var(values, ddof=1)) / len(values), len(values) - 1, len(values))


def mean_over_seeds_and_problems(value_SP: Floats, *, prior: SeedSpread | None = None) -> SeedMean:
    """The mean of a (S, P) table with a 95 % interval for other seeds and other problems than these.

    Seeds and problems are crossed random effects: with the mean squares of rows, columns and the rest,

        SE^2 = (MS_S + MS_P - MS_E) / (S P),        degrees of freedom by Satterthwaite.

    A bootstrap over two or three seeds would find their spread a half or a third too small. With one problem this is
    `mean_over_seeds`. With one seed ``low`` and ``high`` are None.

    Where two or three seeds happen to agree, the interval is too narrow. ``prior`` is what sister tables say of the
    spread over seeds (`pooled_spread`); it is averaged with the table's own, each weighted by its degrees of freedom.

    Raises:
        ValueError: the table is not two-dimensional, is empty, or holds what is not finite.
    """
    value_SP = np.asarray(value_SP, dtype=np.float64)
    if value_SP.ndim != 2 or not value_SP.size or not np.isfinite(value_SP).all():
        raise ValueError(f"expected finite numbers by seed and problem, found shape {value_SP.shape}")
    num_seeds, num_problems = value_SP.shape
    mean = float(value_SP.mean())
    if num_seeds == 1:
        return SeedMean(mean, None, None, 1)
    spread = SeedSpread(float(np.var(value_SP.mean(axis=1), ddof=1)), num_seeds - 1.0)
    if prior is not None:
        freedom = prior.freedom + spread.freedom
        spread = SeedSpread((prior.freedom * prior.variance + spread.freedom * spread.variance) / freedom, freedom)
    if num_problems == 1:
        return _seed_mean(mean, spread.variance / num_seeds, spread.freedom, num_seeds)
    df_S, df_P = spread.freedom, num_problems - 1
    ms_S = num_problems * spread.variance
    ms_P = num_seeds * float(np.var(value_SP.mean(axis=0), ddof=1))
    df_E = (num_seeds - 1) * df_P
    ms_E = residual_mean_square(value_SP)
    # In expectation the sum exceeds both of its parts; with few seeds chance may say otherwise.
    total = max(ms_S + ms_P - ms_E, ms_S, ms_P)
    if total <= 0:
        return SeedMean(mean, mean, mean, num_seeds, 0.0, df_S)
    freedom = total**2 / (ms_S**2 / df_S + ms_P**2 / df_P + ms_E**2 / df_E)
    freedom = min(max(freedom, min(df_S, df_P)), num_seeds * num_problems - 1)
    return _seed_mean(mean, total / (num_seeds * num_problems), freedom, num_seeds)


def residual_mean_square(value_SP: Floats) -> float:
    """What neither the seed nor the problem explains of a (S, P) table, S and P at least 2: MS_E of its two factors."""
    seed_S1, problem_1P = value_SP.mean(axis=1, keepdims=True), value_SP.mean(axis=0, keepdims=True)
    rest_SP = value_SP - seed_S1 - problem_1P + value_SP.mean()
    return float((rest_SP**2).sum()) / ((len(value_SP) - 1) * (value_SP.shape[1] - 1))


def pooled_spread(tables: Iterable[Floats], *, freedom: float = 4.0, least: int = _LEAST_POOLED) -> SeedSpread | None:
    """The spread over seeds that (S, P) tables of one measure have in common, as a prior worth ``freedom`` degrees.

    None if the tables have fewer than ``least`` degrees of freedom together: each would mostly be averaged with itself.
    """
    spreads = [
        (float(np.var(value_SP.mean(axis=1), ddof=1)), len(value_SP) - 1) for value_SP in tables if len(value_SP) > 1
    ]
    known = sum(df for _, df in spreads)
    if known < least:
        return None
    return SeedSpread(sum(df * variance for variance, df in spreads) / known, freedom)


def _seed_mean(mean: float, variance: float, freedom: float, num_seeds: int) -> SeedMean:
    error = math.sqrt(variance)
    half = half_width(error, freedom)
    return SeedMean(mean, mean - half, mean + half, num_seeds, error, freedom)


def half_width(error: float, freedom: float) -> float:
    """Half of the 95 % interval of a number with this standard error: Student's t with ``freedom`` degrees."""
    from scipy.special import stdtrit  # scipy.stats, the usual place, takes half a second to import

    return error * float(stdtrit(freedom, 0.975))
