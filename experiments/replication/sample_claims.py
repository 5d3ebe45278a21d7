"""(f) flips by difficulty, (g) UCR against temperature, (h) how many rollouts the dual needs: all from samples."""

# Axes: S seeds, P problems, C counts of correct rollouts.
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evals.estimators import Floats
from evals.metrics.flips import BUCKETS
from experiments.replication.cells import DELTAS, HARD_BASE, POINTS, SHARE, TAG_WORDS, ours, theirs, within
from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, Run, difference, passed, unique_ratio
from experiments.replication.rules import (
    GREATER,
    LESS,
    Comparison,
    Estimate,
    Finding,
    Unit,
    estimate_of,
    known,
    over_problems,
)
from quatro.runs.series import dual_by_count
from quatro.runs.tag import Tag
from quatro.sweep.counts import NEVER, is_measured

HOT = {tag: replace(tag, temperature=1.5) for tag in (NUCLEUS, ALL)}
FLIP_K = 16
SIZES = (4, 8, 16, 32, 64)
UCR = Unit(2, "points", scale=100.0)


def flips(results: Results) -> list[Finding]:
    """(f) Problems that the harder base fails on and a tuned policy solves, QUATRO against GSPO."""
    gspo, base = theirs(results, "S6"), results.bases.get(HARD_BASE)

    def beside(name: str) -> tuple[Comparison, ...]:
        found = []
        for delta in DELTAS:
            group = ours(results, "S6", delta)
            value_SP = None if base is None else difference(group, gspo, flip_measure(base, name))
            found.append(Comparison(f"δ {delta} − GSPO", estimate_of(value_SP), GREATER, POINTS))
        return tuple(found)

    where = "App. “Flip rate”, Fig. flip_rate"
    rates = f"chance that {FLIP_K} base samples all fail and {FLIP_K} tuned ones hold a success"
    findings = [
        Finding(
            "f1",
            "QUATRO solves more of the problems that the base never solved (newly solved)",
            where,
            beside(NEVER),
        )
    ]
    findings += [
        Finding(
            f"f{number}",
            f"QUATRO flips more of the {bucket.name} problems (flip@{FLIP_K}: {rates})",
            where,
            beside(bucket.name),
        )
        for number, bucket in enumerate(BUCKETS[:2], start=2)
    ]
    return findings


def flip_measure(base: Run, name: str) -> Measure:
    """Over the problems that the base never solved (`never`), or those of a bucket: newly solved, or flip@16 (P,)."""
    return lambda run: run.counts(NUCLEUS).flips(base.counts(NUCLEUS), name, FLIP_K)


def temperature(results: Results) -> list[Finding]:
    """(g) GSPO sampled hotter against QUATRO sampled at 1."""

    def gain(tag: Tag) -> tuple[Comparison, ...]:
        return tuple(
            Comparison(
                f"{cell}: GSPO at T 1.5 − T 1",
                estimate_of(_hot_difference(theirs(results, cell), theirs(results, cell), tag, is_first_hot=True)),
                GREATER,
                UCR,
            )
            for cell in ("S1", "S2")
        )

    def ahead(tag: Tag) -> tuple[Comparison, ...]:
        return tuple(
            Comparison(
                f"{cell}: δ {delta} at T 1 − GSPO at T 1.5",
                estimate_of(
                    _hot_difference(ours(results, cell, delta), theirs(results, cell), tag, is_first_hot=False)
                ),
                GREATER,
                UCR,
            )
            for cell in ("S1", "S2")
            for delta in DELTAS
        )

    quality = tuple(
        Comparison(
            f"{cell}: GSPO at T 1.5 − T 1",
            estimate_of(
                difference(
                    hot_runs(theirs(results, cell), NUCLEUS),
                    theirs(results, cell),
                    passed(1, HOT[NUCLEUS]),
                    passed(1, NUCLEUS),
                )
            ),
            LESS,
            POINTS,
        )
        for cell in ("S1", "S2")
    )
    where = "App. “Temperature variation”, Fig. temperature"
    findings = []
    for number, tag in enumerate((NUCLEUS, ALL)):
        words = TAG_WORDS[tag]
        findings.append(Finding(f"g{2 * number + 1}", f"Temperature 1.5 raises GSPO's UCR ({words})", where, gain(tag)))
        findings.append(
            Finding(f"g{2 * number + 2}", f"QUATRO at 1 has a higher UCR than GSPO at 1.5 ({words})", where, ahead(tag))
        )
    findings.append(Finding("g5", "Temperature 1.5 lowers GSPO's Pass@1 (top_p 0.7)", where, quality))
    return findings


def hot_runs(group: Group, tag: Tag) -> Group:
    """Those that have been sampled at temperature 1.5."""
    return {seed: run for seed, run in group.items() if is_measured(run.folder, HOT[tag])}


def _hot_difference(group: Group, gspo: Group, tag: Tag, *, is_first_hot: bool) -> Floats | None:
    hot, cold = unique_ratio(HOT[tag]), unique_ratio(tag)
    if is_first_hot:
        return difference(hot_runs(group, tag), gspo, hot, cold)
    return difference(group, hot_runs(gspo, tag), cold, hot)


@dataclass(frozen=True)
class DualError:
    """How lambda* and A from N rollouts differ from those of all 256, averaged over the prompts.

    ``bias`` and ``spread`` are of lambda* in relation to that of all rollouts; ``advantage`` is the bias of A of a
    correct rollout, in relation too. They are of groups with both outcomes; ``degenerate`` is the share of the others.
    """

    delta: str
    num_rollouts: int
    bias: Estimate
    spread: Estimate
    advantage: Estimate
    degenerate: Estimate


def dual_errors(base: Run) -> list[DualError]:
    """For every delta and N: exact means over all subsets of N of the 256 rollouts of a prompt.

    Rewards are 0 or 1, so a subset's lambda* and A depend on its number of correct ones alone, which is
    hypergeometric. Prompts that all 256 rollouts solve or fail have no lambda* and are left out.
    """
    counts = base.counts(ALL)
    n = counts.n
    mixed_P = counts.correct[(counts.correct > 0) & (counts.correct < n)].astype(int)
    found = []
    for delta in DELTAS:
        full = dual_by_count(float(delta), n)
        for num_rollouts in SIZES:
            few = dual_by_count(float(delta), num_rollouts)
            chance_PC = np.array([_hypergeometric(n, int(correct), num_rollouts) for correct in mixed_P])
            is_mixed_P = chance_PC.sum(axis=1)
            chance_PC = chance_PC / is_mixed_P[:, None]
            ratio_PC = few.lam[None, :] / full.lam[mixed_P - 1][:, None]
            mean_P = (chance_PC * ratio_PC).sum(axis=1)
            spread_P = np.sqrt((chance_PC * (ratio_PC - mean_P[:, None]) ** 2).sum(axis=1))
            advantage_P = chance_PC @ few.advantage[:, 0] / full.advantage[mixed_P - 1, 0]
            found.append(
                DualError(
                    delta,
                    num_rollouts,
                    *(
                        known(over_problems(values))
                        for values in (mean_P - 1, spread_P, advantage_P - 1, 1 - is_mixed_P)
                    ),
                )
            )
    return found


def rollouts(errors: Sequence[DualError]) -> list[Finding]:
    """(h) N = 8 suffices for the dual."""
    eight = [error for error in errors if error.num_rollouts == 8]
    where = "Sec. 3.2, “N = 8 is sufficient”; the bounds are ours"
    bias = tuple(Comparison(f"δ {e.delta}", e.bias, within(0.1), Unit(1, "%", 100.0)) for e in eight)
    spread = tuple(Comparison(f"δ {e.delta}", e.spread, (-math.inf, 0.25), SHARE) for e in eight)
    advantage = tuple(Comparison(f"δ {e.delta}", e.advantage, within(0.1), Unit(1, "%", 100.0)) for e in eight)
    return [
        Finding("h1", "λ* from 8 rollouts is that of 256 on average, to 10 %", where, bias),
        Finding("h2", "λ* from 8 rollouts scatters by less than 25 % around its mean", where, spread),
        Finding("h3", "A of a correct rollout from 8 is that of 256 on average, to 10 %", where, advantage),
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
