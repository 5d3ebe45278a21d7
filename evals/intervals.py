"""How sure a mean is: `mean_intervals` makes the 95 % interval that tables, figures, files and reports show."""

# Axes: B resamples, S seeds, P problems, K values of k.

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evals.estimators import Floats

NUM_RESAMPLES = 10_000
PERCENTILES = (2.5, 97.5)
_CHUNK = 500
FEWEST_SEEDS = 3  # of an interval over seeds alone: the one of two seeds is 13 times as wide as they are apart
SEEDS_AND_PROBLEMS, PROBLEMS, SEEDS = "seeds and problems", "problems only", "seeds only"  # what an interval is over


class Interval(NamedTuple):
    """The two ends of a 95 % interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A mean with its 95 % interval and what that is ``over``; ``low`` and ``high`` are None where seeds are too few.

    ``error`` is the standard error and ``freedom`` the degrees of freedom that an interval over seeds was made of.
    """

    mean: float
    low: float | None
    high: float | None
    num_seeds: int
    error: float | None = None
    freedom: float | None = None
    over: str = SEEDS_AND_PROBLEMS


class PairedDifference(NamedTuple):
    """Mean of b - a with its 95 % interval; ``p`` is two-sided."""

    mean: float
    low: float
    high: float
    p: float
    over: str = PROBLEMS


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


def kinds_text(over_of: Mapping[str, Iterable[str | None]]) -> str:
    """`95 %, over seeds and problems (Base: over problems only)` of what each label's intervals are over."""
    known = {label: " or ".join(dict.fromkeys(filter(None, found))) for label, found in over_of.items()}
    kinds = list(filter(None, known.values()))
    usual = max(kinds, key=lambda over: (kinds.count(over), over == SEEDS_AND_PROBLEMS), default="")
    others = [f"{label}: over {over}" for label, over in known.items() if over not in ("", usual)]
    return (f"95 %, over {usual}" if usual else "") + (f" ({'; '.join(others)})" if others else "")


def mean_intervals(
    value_by_benchmark: Sequence[Floats], largest_K: Sequence[float], *, seed: int = 0
) -> list[Estimate]:
    """The mean of each of K columns and its 95 % interval; over several benchmarks the unweighted mean of theirs.

    Each benchmark has a (S, P, K) array of what every seed has on every problem, in [0, ``largest_K``]: the same seeds
    in the same order in all of them, and the same problems for all seeds. The interval of several seeds is for other
    seeds and other problems than these: that of `mean_over_seeds_and_problems`, on the logit scale of the share of
    ``largest_K``. That of one seed is by a bootstrap over problems with ``seed``. Where all values are the same it is
    `interval_without_spread`.
    """
    num_seeds = len(value_by_benchmark[0])
    drawn_K: list[Interval] = []
    if num_seeds == 1:
        rng = np.random.default_rng(seed)
        drawn_K = intervals(np.mean([resampled_means(one[0], rng) for one in value_by_benchmark], axis=0))
    estimates = []
    for at, largest in enumerate(largest_K):
        tables = [value_SPK[:, :, at] for value_SPK in value_by_benchmark]
        found, ends = _crossed(tables), interval_without_spread(tables, largest)
        ends = ends or (drawn_K[at] if num_seeds == 1 else _on_scale(found, largest))
        estimates.append(found._replace(low=ends.low, high=ends.high))
    return estimates


def mean_of_seeds(
    values: Sequence[float], by_problem: Sequence[Sequence[Mapping[str, float]]], largest: float | None
) -> Estimate:
    """`mean_intervals` of one number; over seeds alone where it is not known of the same problems for all seeds.

    ``values`` are those of the seeds, and ``by_problem`` has for each benchmark what every seed has on each problem, by
    id, or nothing. Over seeds alone the interval is Student's on the same scale (``largest`` None: as it is), and fewer
    than `FEWEST_SEEDS`, or equal values, have none. Raises ValueError if there is no value, or one is not finite.
    """
    tables = [
        np.array([[[own[id]] for id in seeds[0]] for own in seeds])
        for seeds in by_problem
        if seeds[0] and all(own.keys() == seeds[0].keys() for own in seeds)
    ]
    if largest is not None and 0 < len(tables) == len(by_problem):
        return mean_intervals(tables, [largest])[0]
    found = mean_over_seeds_and_problems(np.array(values, dtype=np.float64)[:, None])
    few = len(values) < FEWEST_SEEDS or len(set(values)) == 1
    low, high = (None, None) if few else _on_scale(found, largest)
    return found._replace(low=low, high=high, over=SEEDS)


def _on_scale(found: Estimate, largest: float | None) -> Interval:
    """The interval of Student's t made on the logit scale of [0, ``largest``], which it cannot leave."""
    from scipy.special import expit, logit

    assert found.high is not None
    half = found.high - found.mean
    if largest is None or not 0 < found.mean < largest:
        return Interval(found.mean - half, found.high)
    share = found.mean / largest
    half /= largest * share * (1 - share)  # the slope of the logit is 1 / (p (1 - p))
    low, high = expit([logit(share) - half, logit(share) + half])
    return Interval(largest * float(low), largest * float(high))


def interval_without_spread(value_by_benchmark: Sequence[Floats], largest: float) -> Interval | None:
    """The 95 % interval of a mean over benchmarks, each with one value in all of its problems; None where they differ.

    ``value_by_benchmark`` has a (P,) or (S, P) array of values in [0, ``largest``] for each. A bootstrap would have no
    width. If a share q of all problems has another value, P draws miss it with the probability (1 - q)^P; q is the
    largest for which this is 0.025, and those problems may have any value. At 0 and ``largest`` that is Clopper and
    Pearson's.
    """
    if any(np.ptp(value) > 1e-9 * largest for value in value_by_benchmark):
        return None
    values = [float(value.flat[0]) for value in value_by_benchmark]
    # Draws from all benchmarks count together, unless what is unseen may lie where it matters most.
    num_draws = min(value.shape[-1] for value in value_by_benchmark) * (len(values) if len(set(values)) == 1 else 1)
    seen, mean = 0.025 ** (1 / num_draws), sum(values) / len(values)
    return Interval(seen * mean, seen * mean + (1 - seen) * largest)


def average_paired_differences(
    a_by_benchmark: Sequence[Floats], b_by_benchmark: Sequence[Floats], largest_K: Sequence[float], *, seed: int
) -> list[PairedDifference]:
    """b - a of each column on the same problems, as unweighted means over benchmarks; arrays as in `mean_intervals`.

    One seed: problems are resampled, p = 2 min((#{<= 0} + 1), (#{>= 0} + 1)) / (B + 1) over the resampled means. Of
    several seeds, the first of a with the first of b and so on: crossed random effects and Student's t.
    """
    differences = [b_SPK - a_SPK for a_SPK, b_SPK in zip(a_by_benchmark, b_by_benchmark, strict=True)]
    if len(differences[0]) > 1:
        return [_difference([one[:, :, at] for one in differences], largest) for at, largest in enumerate(largest_K)]
    rng = np.random.default_rng(seed)
    mean_BK = np.mean([resampled_means(difference_PK, rng) for (difference_PK,) in differences], axis=0)
    mean_K = np.mean([difference_PK.mean(axis=0) for (difference_PK,) in differences], axis=0)
    smaller_side_K = np.minimum((mean_BK <= 0).sum(axis=0), (mean_BK >= 0).sum(axis=0))
    p_K = np.minimum(1.0, 2 * (smaller_side_K + 1) / (len(mean_BK) + 1))
    return [
        PairedDifference(float(mean), interval.low, interval.high, float(p))
        for mean, interval, p in zip(mean_K, intervals(mean_BK), p_K, strict=True)
    ]


def _difference(tables: Sequence[Floats], largest: float) -> PairedDifference:
    """Of (S, P) tables of differences; the interval ends where differences do."""
    from scipy.special import stdtr

    found = _crossed(tables)
    low, high = np.clip(np.array([found.low, found.high], dtype=np.float64), -largest, largest).tolist()
    p = 2 * float(stdtr(found.freedom, -abs(found.mean) / found.error)) if found.error else float(found.mean == 0)
    return PairedDifference(found.mean, low, high, p, found.over)


class SeedSpread(NamedTuple):
    """The variance of the mean over problems from seed to seed, and the degrees of freedom that it is worth."""

    variance: float
    freedom: float


def mean_over_seeds_and_problems(value_SP: Floats, *, prior: SeedSpread | None = None) -> Estimate:
    """The mean of a (S, P) table with a 95 % interval for other seeds and other problems than these.

    Seeds and problems are crossed random effects: with the mean squares of rows, columns and the rest,

        SE^2 = (MS_S + MS_P - MS_E) / (S P),        degrees of freedom by Satterthwaite.

    A bootstrap over two or three seeds would find their spread a half or a third too small. With one problem this is
    Student's t over the seeds. With one seed ``low`` and ``high`` are None.

    Where two or three seeds happen to agree, the interval is too narrow. ``prior`` is what sister tables say of the
    spread over seeds; it is averaged with the table's own, each weighted by its degrees of freedom.

    Raises ValueError if the table is not two-dimensional, is empty, or holds what is not finite.
    """
    value_SP = np.asarray(value_SP, dtype=np.float64)
    if value_SP.ndim != 2 or not value_SP.size or not np.isfinite(value_SP).all():
        raise ValueError(f"expected finite numbers by seed and problem, found shape {value_SP.shape}")
    return _crossed([value_SP], prior)


def _crossed(tables: Sequence[Floats], prior: SeedSpread | None = None) -> Estimate:
    """`mean_over_seeds_and_problems` of the unweighted mean over benchmarks, each a (S, P) table of the same S seeds.

    What a seed has in common on all benchmarks is in the spread of its mean; the problems of each are drawn apart.
    """
    num_seeds, weight = len(tables[0]), 1 / len(tables) ** 2
    mean = float(np.mean([value_SP.mean() for value_SP in tables]))
    if num_seeds == 1:
        return Estimate(mean, None, None, 1, over=PROBLEMS)
    mean_S = np.mean([value_SP.mean(axis=1) for value_SP in tables], axis=0)
    spread = SeedSpread(float(np.var(mean_S, ddof=1)), num_seeds - 1.0)
    if prior is not None:
        freedom = prior.freedom + spread.freedom
        spread = SeedSpread((prior.freedom * prior.variance + spread.freedom * spread.variance) / freedom, freedom)
    sizes = [value_SP.shape[1] for value_SP in tables]
    if min(sizes) == 1:
        return _seed_mean(mean, spread.variance / num_seeds, spread.freedom, num_seeds)._replace(over=SEEDS)
    seeds, df_P = spread.variance / num_seeds, [num - 1 for num in sizes]
    problems = [weight * float(np.var(one.mean(axis=0), ddof=1)) / one.shape[1] for one in tables]
    rest = [weight * residual_mean_square(one) / one.size for one in tables]
    # In expectation the sum exceeds each of its parts; with few seeds chance may say otherwise.
    total = max(seeds + sum(problems) - sum(rest), seeds, sum(problems)) or sum(rest)
    if total <= 0:
        return Estimate(mean, mean, mean, num_seeds, 0.0, spread.freedom)
    parts = [(seeds, spread.freedom), *zip(problems, df_P, strict=True)]
    parts += [(one, (num_seeds - 1) * df) for one, df in zip(rest, df_P, strict=True)]
    freedom = total**2 / sum(part**2 / df for part, df in parts)
    freedom = min(max(freedom, min(spread.freedom, *df_P)), num_seeds * sum(sizes) - 1)
    return _seed_mean(mean, total, freedom, num_seeds)


def residual_mean_square(value_SP: Floats) -> float:
    """What neither the seed nor the problem explains of a (S, P) table, S and P at least 2: MS_E of its two factors."""
    seed_S1, problem_1P = value_SP.mean(axis=1, keepdims=True), value_SP.mean(axis=0, keepdims=True)
    rest_SP = value_SP - seed_S1 - problem_1P + value_SP.mean()
    return float((rest_SP**2).sum()) / ((len(value_SP) - 1) * (value_SP.shape[1] - 1))


def _seed_mean(mean: float, variance: float, freedom: float, num_seeds: int) -> Estimate:
    error = math.sqrt(variance)
    half = half_width(error, freedom)
    return Estimate(mean, mean - half, mean + half, num_seeds, error, freedom)


def half_width(error: float, freedom: float) -> float:
    """Half of the 95 % interval of a number with this standard error: Student's t with ``freedom`` degrees."""
    from scipy.special import stdtrit  # scipy.stats, the usual place, takes half a second to import

    return error * float(stdtrit(freedom, 0.975))
