"""What samples can decide. The difference of two models, on P problems with n samples and S seeds, has the error

    SE^2 = (T^2 + 2 V / S) / P + 2 D^2 / S.

V is the variance of a problem's estimate from other samples, in proportion to 1 / n; D is the standard deviation of a
model's mean from seed to seed. T is that of the true difference from problem to problem: of two files what the paired
differences have beyond V; of one 2 B^2 (1 - r) = T^2, where B^2 is what problems have beyond V, and r is given.
"""

import math
from collections.abc import Sequence
from itertools import count

import numpy as np

from evals.errors import DataError
from evals.estimators import ucc_at_k
from evals.files.frames import grouped
from evals.intervals import half_width
from evals.results.document import ProblemEntry, Row


def sampling_variance(n: int, sizes: Sequence[int], k: int) -> float:
    """The variance of UCC@k (Pass@k: of one size, c) from other samples, k < n, by the delete-one jackknife."""
    times = np.array([*sizes, n - sum(sizes)])
    without = [[size - (at == place) for place, size in enumerate(sizes)] for at in range(len(times))]
    value = np.array([ucc_at_k(n - 1, some, k) if time else 0.0 for some, time in zip(without, times, strict=True)])
    return float(times @ (value - times @ value / n) ** 2) * (n - 1) / n


def errors_shown(num_problems: int) -> float:
    """How many standard errors a difference must have, so that p < 0.05 has a chance of 0.8."""
    from scipy.special import nctdtrinc

    return float(nctdtrinc(num_problems - 1, 0.2, half_width(1.0, num_problems - 1)))


def power_rows(
    metric: str, k: int, *sides: Sequence[ProblemEntry], effect: float | None, correlation: float, seed_spread: float
) -> list[Row]:
    """Of each benchmark the smallest difference that one or two ``sides`` show, and T as ``spread``.

    For an ``effect`` also how many problems, samples of each or seeds, each alone, show it; 0: no number does. Raises
    DataError for other problems on one side, and fewer than two with more than k samples (distinct@k: correct ones).
    """
    if len({tuple((one.benchmark, one.id) for one in side) for side in sides}) > 1:
        raise DataError("the two files hold other problems; name two with the same ones, or one alone")
    rows, seeds = [], 2 * seed_spread**2
    for name, pairs in grouped(zip(*sides, strict=True), lambda pair: pair[0].benchmark).items():
        told = [[(p.correct if metric == "distinct@k" else p.n, p.clusters or [p.correct]) for p in ps] for ps in pairs]
        drawn = [pair for pair in told if min(n for n, _ in pair) > k]
        if (num := len(drawn)) < 2:
            raise DataError(f"{name}: {num} problems have more than k = {k} samples to draw from; ask for a smaller k")
        value_PS = np.array([[ucc_at_k(n, sizes, k) for n, sizes in pair] for pair in drawn])
        sampling = sum(sampling_variance(n, sizes, k) for pair in drawn for n, sizes in pair) / num
        beyond = max(float(np.var(value_PS[:, -1] - (len(sides) - 1) * value_PS[:, 0], ddof=1)) - sampling, 0.0)
        if len(sides) == 1:
            sampling, beyond = 2 * sampling, 2 * (1 - correlation) * beyond
        n, smallest = min(n for pair in drawn for n, _ in pair), errors_shown(num)
        extra = {"spread": beyond**0.5, "sampling": sampling**0.5}
        if effect is not None:
            square, least = (effect / smallest) ** 2, effect**2 / 7.8 - seeds  # 7.85: `errors_shown` squared, of many
            enough = count(max(2, int((beyond + sampling) / least))) if least > 0.01 * seeds else iter([0])
            needed = (p for p in enough if not p or (beyond + sampling) / p + seeds <= (effect / errors_shown(p)) ** 2)
            extra["problems_needed"] = next(needed)
            extra["samples_needed"] = _least(n * sampling, num * (square - seeds) - beyond)
            extra["seeds_needed"] = _least(sampling / num + seeds, square - beyond / num)
        smallest *= math.sqrt((beyond + sampling) / num + seeds)
        rows.append(Row(metric=metric, benchmark=name, k=k, value=smallest, num_problems=num, n=n, **dict(extra)))
    return rows


def _least(amount: float, room: float) -> int:
    return max(1, math.ceil(amount / room)) if room > 0 else 0
