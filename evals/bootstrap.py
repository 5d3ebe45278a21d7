"""How sure a mean over problems is: percentile bootstrap, resampling problems with replacement."""

# Axes: B resamples, P problems, K values of k.
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evals.estimators import Floats

NUM_RESAMPLES = 10_000
PERCENTILES = (2.5, 97.5)
_CHUNK = 500


class Interval(NamedTuple):
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


def benchmark_intervals(value_PK: Floats, *, seed: int) -> list[Interval]:
    return intervals(resampled_means(value_PK, np.random.default_rng(seed)))


def average_intervals(value_by_benchmark: Sequence[Floats], *, seed: int) -> list[Interval]:
    """Intervals of the unweighted mean over benchmarks, each resampled independently."""
    rng = np.random.default_rng(seed)
    mean_BK = np.mean([resampled_means(value_PK, rng) for value_PK in value_by_benchmark], axis=0)
    return intervals(mean_BK)


def paired_difference(a_P: Sequence[float], b_P: Sequence[float], *, seed: int) -> PairedDifference:
    """b - a on the same problems: p = 2 min((#{<= 0} + 1), (#{>= 0} + 1)) / (B + 1) over the resampled means."""
    a_P1, b_P1 = (np.asarray(values, dtype=np.float64)[:, None] for values in (a_P, b_P))
    return average_paired_differences([a_P1], [b_P1], seed=seed)[0]


def average_paired_differences(
    a_by_benchmark: Sequence[Floats], b_by_benchmark: Sequence[Floats], *, seed: int
) -> list[PairedDifference]:
    """`paired_difference` of each of K columns for the unweighted mean over benchmarks, each resampled independently.

    The arrays are (P, K), with P of each benchmark.
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
