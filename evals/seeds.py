"""One number from several seeds: their mean and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SeedMean(NamedTuple):
    """``low`` and ``high`` are None for a single seed, which says nothing about the spread."""

    mean: float
    low: float | None
    high: float | None
    num_seeds: int


def mean_over_seeds(values: Sequence[float]) -> SeedMean:
    """The mean with its 95 % Student t interval, mean +- t(.975, S - 1) std / sqrt(S) with ddof = 1.

    It holds the spread between seeds, not between problems: that is `evals.bootstrap`.

    Raises:
        ValueError: there is no value, or one is not finite.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"expected finite numbers, at least one, found {list(values)[:8]}")
    mean = float(np.mean(values))
    if len(values) == 1:
        return SeedMean(mean, None, None, 1)
    from scipy.special import stdtrit  # scipy.stats, the usual place, takes half a second to import

    half = float(stdtrit(len(values) - 1, 0.975)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return SeedMean(mean, mean - half, mean + half, len(values))
