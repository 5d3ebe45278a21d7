"""How sure a mean is: `mean_intervals` makes the 95 % interval that tables, figures, files and reports show."""

# Axes: S seeds, P problems, K values of k.

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evals.estimators import Floats

Families = Sequence[NDArray[np.int64]]  # for each benchmark the (P,) number of each problem's family, 0, 1, ...
FEWEST_MOVED = 6  # of the problems that a difference rests on: with fewer, Student's interval of it is too narrow
FEWEST_SEEDS = 3  # of an interval over seeds alone: the one of two seeds is 13 times as wide as they are apart
SEEDS_AND_PROBLEMS, PROBLEMS, SEEDS = "seeds and problems", "problems only", "seeds only"  # what an interval is over


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


def kinds_text(over_of: Mapping[str, Iterable[str | None]]) -> str:
    """`95 %, over seeds and problems (Base: over problems only)` of what each label's intervals are over."""
    known = {label: " or ".join(dict.fromkeys(filter(None, found))) for label, found in over_of.items()}
    kinds = list(filter(None, known.values()))
    usual = max(kinds, key=lambda over: (kinds.count(over), over == SEEDS_AND_PROBLEMS), default="")
    others = [f"{label}: over {over}" for label, over in known.items() if over not in ("", usual)]
    return (f"95 %, over {usual}" if usual else "") + (f" ({'; '.join(others)})" if others else "")


def mean_intervals(
    value_by_benchmark: Sequence[Floats], largest_K: Sequence[float], *, families: Families = ()
) -> list[Estimate]:
    """The mean of each of K columns and its 95 % interval; over several benchmarks the unweighted mean of theirs.

    Each benchmark has a (S, P, K) array of what every seed has on every problem, in [0, ``largest_K``]: the same seeds
    in the same order in all of them, and the same problems for all seeds. The interval, for other problems and (of
    several seeds) other seeds than these, is Student's on the logit scale of the share of ``largest_K``, with the
    standard error of `mean_over_seeds_and_problems`; problems of one of the ``families`` are drawn together. P draws
    miss a share q of all problems with the probability (1 - q)^P: there is room for the largest q with which this is
    0.025, of unsolved problems or of such as the best ones; where all values are equal, of any value. At 0 and
    ``largest`` that is Clopper and Pearson's interval.
    """
    estimates = []
    for at, largest in enumerate(largest_K):
        tables = [value_SPK[:, :, at] for value_SPK in value_by_benchmark]
        found = _crossed(tables, families=families)
        is_flat = all(np.ptp(value_SP) <= 1e-9 * largest for value_SP in tables)
        # Draws from all benchmarks count together, unless what is unseen may lie where it matters most.
        together = 1 if is_flat and len({float(one.flat[0]) for one in tables}) > 1 else len(tables)
        seen = 0.025 ** (1 / together / min(_sizes(tables, families)))
        best = largest if is_flat else sum(float(one.mean(axis=0).max()) for one in tables) / len(tables)
        low, high = (found.mean, found.mean) if is_flat else _on_scale(found, largest)
        low, high = min(low, seen * found.mean), max(high, seen * found.mean + (1 - seen) * best)
        estimates.append(found._replace(low=low, high=high, over=_over(found, families)))
    return estimates


def _over(found: Estimate, families: Families) -> str:
    return found.over.replace("problems", "families of problems") if families else found.over


def _sizes(tables: Sequence[Floats], families: Families) -> list[int]:
    """How many problems, or families of problems, each of the (S, P) tables has."""
    return [1 + int(one.max()) for one in families] or [one.shape[-1] for one in tables]


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


def _on_scale(found: Estimate, largest: float | None) -> tuple[float, float]:
    """The ends of the interval of Student's t made on the logit scale of [0, ``largest``], which it cannot leave."""
    from scipy.special import expit, logit

    assert found.high is not None
    half = found.high - found.mean
    if largest is None or not 0 < found.mean < largest:
        return found.mean - half, found.high
    share = found.mean / largest
    half /= largest * share * (1 - share)  # the slope of the logit is 1 / (p (1 - p))
    low, high = expit([logit(share) - half, logit(share) + half])
    return largest * float(low), largest * float(high)


def average_paired_differences(
    a_by_benchmark: Sequence[Floats],
    b_by_benchmark: Sequence[Floats],
    largest_K: Sequence[float],
    *,
    families: Families = (),
) -> list[PairedDifference]:
    """b - a of each column on the same problems, as unweighted means over benchmarks; arguments as in `mean_intervals`.

    Student's t, with the standard error of `mean_over_seeds_and_problems`, of the differences, seed by seed. Where a
    difference rests on few problems the interval is at least as wide as those of both sides put together.
    """
    sides = [mean_intervals(values, largest_K, families=families) for values in (a_by_benchmark, b_by_benchmark)]
    differences = [b_SPK - a_SPK for a_SPK, b_SPK in zip(a_by_benchmark, b_by_benchmark, strict=True)]
    return [
        _difference([one[:, :, at] for one in differences], a, b, largest, families)
        for at, (a, b, largest) in enumerate(zip(*sides, largest_K, strict=True))
    ]


def _difference(
    tables: Sequence[Floats], a: Estimate, b: Estimate, largest: float, families: Families
) -> PairedDifference:
    """Of (S, P) tables of differences; the interval ends where differences do, and leaves 0 out where p < 0.05."""
    from scipy.special import stdtr

    found = _crossed(tables, families=families)
    error, freedom = found.error or 0.0, found.freedom or 1.0
    t = half_width(1.0, freedom)
    down = up = t * error
    part_P = np.concatenate([one.mean(axis=0) / one.shape[1] for one in tables])
    # As many equal parts would have this ratio of squares: a difference in one problem alone has 1.
    num_moved = (part_P @ part_P) ** 2 / ((part_P**4).sum() or math.inf)
    if num_moved and (num_moved < FEWEST_MOVED or not error):
        below, above = _put_together(a, b, error)
        down, up = max(down, below), max(up, above)
    arm = down if found.mean > 0 else up
    p = 2 * float(stdtr(freedom, -t * abs(found.mean) / arm)) if arm else 2.0 ** (1 - len(part_P))
    ends = max(found.mean - down, -largest), min(found.mean + up, largest)
    return PairedDifference(found.mean, *ends, p if found.mean else 1.0, _over(found, families))


def _put_together(a: Estimate, b: Estimate, error: float) -> tuple[float, float]:
    """How far below and above b - a its interval reaches, from those of both: Zou and Donner, doi:10.1002/sim.3095.

    sqrt(d^2 + u^2 - 2 r d u) of the distances d and u to one end of each; the correlation r of the two means is the one
    with which the difference has this standard ``error``.
    """
    known = np.array([(one.mean - (one.low or 0), (one.high or 0) - one.mean, one.error) for one in (a, b)], np.float64)
    (down_a, up_a, error_a), (down_b, up_b, error_b) = known.tolist()
    twice = 2 * error_a * error_b
    r = min(max((error_a**2 + error_b**2 - error**2) / twice, -1), 1) if twice else 0.0
    below, above = (math.sqrt(max(d**2 + u**2 - 2 * r * d * u, 0)) for d, u in ((down_b, up_a), (up_b, down_a)))
    return below, above


def holm(ps: Sequence[float]) -> list[float]:
    """The p-values, each adjusted for all of them: below 0.05, one false difference at most in 20 such families.

    Holm 1979, as `statsmodels.stats.multitest.multipletests(ps, method="holm")`, which is 67 MB more to install.
    """
    order, factor = np.argsort(ps), np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(factor * np.asarray(ps)[order]), 1.0)
    found: list[float] = adjusted.tolist()
    return found


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
    found = _crossed([value_SP], prior)
    return found if found.num_seeds > 1 else Estimate(found.mean, None, None, 1, over=PROBLEMS)


def _crossed(tables: Sequence[Floats], prior: SeedSpread | None = None, *, families: Families = ()) -> Estimate:
    """`mean_over_seeds_and_problems` of the unweighted mean over benchmarks, each a (S, P) table of the same S seeds.

    What a seed has in common on all benchmarks is in the spread of its mean; the problems of each are drawn apart. One
    seed: Student's t over the problems, which is Welch's of several benchmarks.
    """
    num_seeds, weight = len(tables[0]), 1 / len(tables) ** 2
    mean = float(np.mean([value_SP.mean() for value_SP in tables]))
    sizes = _sizes(tables, families)
    df_P = [max(num - 1, 1) for num in sizes]
    problems = [weight * one for one in _variances(tables, families)]
    if num_seeds == 1:
        total = sum(problems)
        freedom = total**2 / sum(part**2 / df for part, df in zip(problems, df_P, strict=True)) if total else min(df_P)
        return _seed_mean(mean, total, freedom, 1)._replace(over=PROBLEMS)
    mean_S = np.mean([value_SP.mean(axis=1) for value_SP in tables], axis=0)
    spread = SeedSpread(float(np.var(mean_S, ddof=1)), num_seeds - 1.0)
    if prior is not None:
        freedom = prior.freedom + spread.freedom
        spread = SeedSpread((prior.freedom * prior.variance + spread.freedom * spread.variance) / freedom, freedom)
    if min(sizes) == 1:
        return _seed_mean(mean, spread.variance / num_seeds, spread.freedom, num_seeds)._replace(over=SEEDS)
    seeds = spread.variance / num_seeds
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


def _variances(tables: Sequence[Floats], families: Families) -> list[float]:
    """Of each (S, P) table the variance of its mean from drawing other problems, or families of them.

    The problems of a family deviate together: F / (F - 1) times the sum over F families of their squared sums of
    deviations, over P^2 (Liang and Zeger, doi:10.1093/biomet/73.1.13; Miller, arXiv:2411.00640).
    """
    means = [one.mean(axis=0) for one in tables]
    if not families:
        return [float(np.var(value_P, ddof=1)) / len(value_P) if len(value_P) > 1 else 0.0 for value_P in means]
    sums = [np.bincount(one, value_P - value_P.mean()) for one, value_P in zip(families, means, strict=True)]
    return [
        float(sum_F @ sum_F) * len(sum_F) / max(len(sum_F) - 1, 1) / len(value_P) ** 2
        for sum_F, value_P in zip(sums, means, strict=True)
    ]


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
