"""(h) What few rollouts do to the dual: exactly, from the untrained models' samples, and in training (S10)."""

# Axes: P problems, C counts of correct rollouts among N.
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from evals.estimators import Floats
from experiments.replication.cells import DELTAS, PASS1, SHARE, compare, ours, quatro, within
from experiments.replication.markdown import csv_text, filled, grid, number
from experiments.replication.results import ALL, Group, Results
from experiments.replication.rules import Comparison, Estimate, Finding, Unit, finding, known, over_problems
from quatro.runs.views.series import dual_by_count

CELL, OF_TRAINING = "S10", 8
SIZES = (4, 8, 16, 32, 64)
BATCHES = {"4": "64", "16": "16", "32": "8"}  # N -> prompts of an iteration, 256 rollouts in all
_HEADS = [
    *("δ", "N", "λ*: bias by prompt, %", "λ*: by use, %", "λ*: spread, %", "A⁺: bias by prompt, %", "A⁺: by use, %"),
    *("groups with both outcomes, %", "update, %", "error, %", "error after the jackknife, %"),
]
_SHOWN = (0, 6, 7, 8)  # of `_HEADS`: what no claim has
CHANCES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95)
_WEIGHT_HEADS = ["method", "N", *(f"p = {chance:g}" for chance in CHANCES)]


@dataclass(frozen=True)
class DualError:
    """How lambda* and A from N rollouts differ from those of all 256, averaged over the prompts.

    ``bias`` and ``spread`` are of lambda* in relation to that of all rollouts; ``advantage`` is the bias of A of a
    correct rollout, in relation too. They are of groups with both outcomes, whose share is ``use``. ``bias_by_use`` and
    ``advantage_by_use`` weight each prompt by that share instead of equally. ``update`` is the expected weight of the
    gradient of a prompt's success rate in relation to that with all rollouts, groups of one outcome counted as 0.
    ``error`` and ``jackknife_error`` are root mean square errors of log lambda*, as it is and after the jackknife.
    """

    delta: str
    num_rollouts: int
    bias: Estimate
    bias_by_use: Estimate
    spread: Estimate
    advantage: Estimate
    advantage_by_use: Estimate
    use: Estimate
    update: Estimate
    error: float
    jackknife_error: float


def dual_errors(bases: Group) -> list[DualError]:
    """For every delta and N: exact means over all subsets of N of the 256 rollouts of a prompt of each base.

    Rewards are 0 or 1, so a subset's lambda* and A depend on its number of correct ones alone, which is
    hypergeometric. Prompts that all 256 rollouts solve or fail have no lambda* and are left out.
    """
    counts = [base.counts(ALL) for base in bases.values()]
    if not counts:
        return []
    n = counts[0].n
    correct_P = np.concatenate([one.correct for one in counts]).astype(int)
    problem_P = np.concatenate([np.arange(len(one.correct)) for one in counts])
    is_mixed_P = (correct_P > 0) & (correct_P < n)
    mixed_P, problem_P = correct_P[is_mixed_P], problem_P[is_mixed_P]
    chance_of = {size: np.array([_hypergeometric(n, int(correct), size) for correct in mixed_P]) for size in SIZES}
    return [_dual_error(delta, n, mixed_P, problem_P, chance_of[size]) for delta in DELTAS for size in SIZES]


def _dual_error(delta: str, n: int, correct_P: Floats, problem_P: Floats, chance_PC: Floats) -> DualError:
    """The errors over pairs of a base and a problem; a problem that several bases solve sometimes counts once."""
    size = chance_PC.shape[1] + 1
    full, few = dual_by_count(float(delta), n), dual_by_count(float(delta), size)
    use_P = chance_PC.sum(axis=1)
    given_PC = chance_PC / use_P[:, None]
    lam_P = full.lam[correct_P - 1]
    ratio_PC = few.lam[None, :] / lam_P[:, None]
    mean_P = (given_PC * ratio_PC).sum(axis=1)
    spread_P = np.sqrt((given_PC * (ratio_PC - mean_P[:, None]) ** 2).sum(axis=1))
    positive_P, negative_P = full.advantage[correct_P - 1, 0], full.advantage[correct_P - 1, -1]
    advantage_P = given_PC @ few.advantage[:, 0] / positive_P
    # A group's gradient of the success rate p, in expectation over which answers are right and which are wrong.
    share_C, p_P = np.arange(1, size) / size, correct_P / n
    weight_PC = (share_C * few.advantage[:, 0])[None, :] / p_P[:, None]
    weight_PC = weight_PC - ((1 - share_C) * few.advantage[:, -1])[None, :] / (1 - p_P)[:, None]
    update_P = (chance_PC * weight_PC).sum(axis=1) / (positive_P - negative_P)

    def mean(value_P: Floats) -> Estimate:
        return _weighted(value_P, np.ones(len(value_P)), problem_P)

    def rms(lam_C: Floats) -> float:
        error_PC = np.log(lam_C)[None, :] - np.log(lam_P)[:, None]
        return math.sqrt(float((chance_PC * error_PC**2).sum() / use_P.sum()))

    return DualError(
        delta,
        size,
        bias=mean(mean_P - 1),
        bias_by_use=_weighted(mean_P - 1, use_P, problem_P),
        spread=mean(spread_P),
        advantage=mean(advantage_P - 1),
        advantage_by_use=_weighted(advantage_P - 1, use_P, problem_P),
        use=mean(use_P),
        update=mean(update_P),
        error=rms(few.lam),
        jackknife_error=rms(jackknifed(delta, size)),
    )


def jackknifed(delta: str, size: int) -> Floats:
    """The jackknife's lambda* of N rollouts, c = 1, ..., N - 1 of which are correct (C,).

    A group that leaving one rollout out has made one-sided has no lambda*; it counts as 0.
    """
    lam_C = dual_by_count(float(delta), size).lam
    fewer = np.concatenate([[0.0], dual_by_count(float(delta), size - 1).lam, [0.0]])  # by the number of correct ones
    count_C = np.arange(1, size)
    left_out_C = (count_C * fewer[count_C - 1] + (size - count_C) * fewer[count_C]) / size
    jackknifed_C: Floats = size * lam_C - (size - 1) * left_out_C
    return jackknifed_C


def _weighted(value_P: Floats, weight_P: Floats, problem_P: Floats) -> Estimate:
    """The weighted mean with an interval over problems, of which several entries may be: its linear approximation."""
    mean = float((weight_P * value_P).sum() / weight_P.sum())
    deviation = np.bincount(problem_P, weight_P * (value_P - mean))[np.unique(problem_P)]
    return known(over_problems(mean + deviation * len(deviation) / weight_P.sum()))


def weights(delta: str | None, num_rollouts: int, chance: float, *, is_fixed: bool = False) -> float:
    """The expected weight of the gradient of a success rate ``chance``, exactly, on the first step after sampling.

    ``delta`` None is a z-score (with the standard deviation over N). With ``is_fixed`` every prompt has the lambda* of
    one of which half of the rollouts are correct. The unit is that of A.
    """
    count_C = np.arange(1, num_rollouts)
    share_C = count_C / num_rollouts
    if delta is None:
        positive_C, negative_C = np.sqrt((1 - share_C) / share_C), -np.sqrt(share_C / (1 - share_C))
    else:
        dual = dual_by_count(float(delta), num_rollouts)
        positive_C, negative_C = dual.advantage[:, 0], dual.advantage[:, -1]
        if is_fixed:
            lam = dual.lam[num_rollouts // 2 - 1]
            negative_C = -np.log1p(share_C * np.expm1(1 / lam))
            positive_C = 1 / lam + negative_C
    chance_C = np.array(
        [math.comb(num_rollouts, int(c)) * chance**c * (1 - chance) ** (num_rollouts - c) for c in count_C]
    )
    weight_C = share_C * positive_C / chance - (1 - share_C) * negative_C / (1 - chance)
    return float((chance_C * weight_C).sum())


def rollouts(results: Results, errors: Sequence[DualError]) -> list[Finding]:
    """(h) N = 8 suffices for the dual, and in training."""
    eight = [error for error in errors if error.num_rollouts == OF_TRAINING]
    percent, near = Unit(1, "%", 100.0), within(0.1)
    bias = tuple(Comparison(f"δ {e.delta}", e.bias, near, percent) for e in eight)
    spread = tuple(Comparison(f"δ {e.delta}", e.spread, (-math.inf, 0.25), SHARE) for e in eight)
    advantage = tuple(Comparison(f"δ {e.delta}", e.advantage, near, percent) for e in eight)
    by_use = tuple(Comparison(f"δ {e.delta}", e.bias_by_use, near, percent) for e in eight)
    trained = tuple(
        compare(
            f"δ {delta}: N {OF_TRAINING} − {num_rollouts}",
            ours(results, "S1", delta),
            with_rollouts(results, delta, num_rollouts),
            PASS1,
            PASS1.not_less,
        )
        for delta in DELTAS[:2]
        for num_rollouts in BATCHES
    )
    found = (bias, spread, advantage, by_use, trained)
    return [finding(f"h{n}", comparisons) for n, comparisons in enumerate(found, 1)]


def with_rollouts(results: Results, delta: str, num_rollouts: str) -> Group:
    """The runs of S10 with so many rollouts of a prompt."""
    settings = {**quatro(delta), "rollouts_per_prompt": num_rollouts}
    del settings["method.name"]
    if num_rollouts != next(iter(BATCHES)):  # the first is the cell's grid, which says the number of prompts itself
        settings |= dict.fromkeys(("prompts_per_step", "minibatch_prompts"), BATCHES[num_rollouts])
    return results.group(CELL, settings)


def section(errors: Sequence[DualError]) -> str:
    """The text of this section of the page, with the rows for as many rollouts as the claims are of."""
    shown = [error for error in errors if error.num_rollouts == OF_TRAINING]
    return filled(
        Path(__file__).with_suffix(".md"),
        errors=grid([_HEADS[at] for at in _SHOWN], ([row[at] for at in _SHOWN] for row in _rows(shown))),
        weights=grid(["method", *_WEIGHT_HEADS[2:]], ([row[0], *row[2:]] for row in _weight_rows((OF_TRAINING,)))),
    )


def tables_csv(errors: Sequence[DualError]) -> dict[str, str]:
    """The table of errors and that of weights for every N, by name."""
    weighted = csv_text(_WEIGHT_HEADS, _weight_rows(SIZES))
    return {"replication-dual": csv_text(_HEADS, _rows(errors)), "replication-weights": weighted}


def _weight_rows(sizes: Sequence[int]) -> list[list[str]]:
    methods: list[tuple[str, str | None, bool]] = [(f"dual, δ {delta}", delta, False) for delta in DELTAS]
    methods += [("z-score", None, False), (f"one λ, δ {DELTAS[0]}", DELTAS[0], True)]
    rows = []
    for size, (name, delta, is_fixed) in product(sizes, methods):
        half = weights(delta, size, 0.5, is_fixed=is_fixed)
        values = (f"{weights(delta, size, chance, is_fixed=is_fixed) / half:.2f}" for chance in CHANCES)
        rows.append([name, str(size), *values])
    return rows


def _rows(errors: Sequence[DualError]) -> list[list[str]]:
    percent, share = Unit(1, "", 100.0), Unit(1, "", 100.0, is_signed=False)
    return [
        [
            *(error.delta, str(error.num_rollouts)),
            *(number(one, percent) for one in (error.bias, error.bias_by_use)),
            number(error.spread, share),
            *(number(one, percent) for one in (error.advantage, error.advantage_by_use)),
            *(number(one, share) for one in (error.use, error.update)),
            *(f"{100 * one:.0f}" for one in (error.error, error.jackknife_error)),
        ]
        for error in errors
    ]


def _hypergeometric(n: int, correct: int, size: int) -> Floats:
    """The chance that ``size`` of n rollouts, ``correct`` of which are, hold 1, 2, ..., size - 1 correct ones."""

    def log_choose(a: int, b: int) -> float:
        return math.lgamma(a + 1) - math.lgamma(b + 1) - math.lgamma(a - b + 1)

    return np.array(
        [
            math.exp(log_choose(correct, c) + log_choose(n - correct, size - c) - log_choose(n, size))
            if c <= correct and size - c <= n - correct
            else 0.0
            for c in range(1, size)
        ]
    )
