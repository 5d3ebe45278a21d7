"""(f) flips by difficulty, (g) UCR against temperature: both from samples."""

# Axes: S seeds, P problems.
from dataclasses import replace
from functools import cache

import numpy as np

from evals.estimators import Floats
from evals.metrics.flips import BUCKETS
from experiments.counts import NEVER
from experiments.replication.cells import (
    DELTAS,
    POINTS,
    STEADY_PASS1,
    Outcome,
    compare,
    judged,
    ours,
    theirs,
)
from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, Run, difference, passed, unique_ratio
from experiments.replication.rules import GREATER, LESS, Comparison, Finding, Unit, finding
from quatro.runs.points import base_name
from quatro.sample.folder import Tag
from quatro.sweep.results import is_measured

HOT = {tag: replace(tag, temperature=1.5) for tag in (NUCLEUS, ALL)}
FLIP_K = 16
UCR = Unit(2, "points", scale=100.0)
# Ours: the paper has both in figures only.
SMALL_FLIP, SMALL_UCR = 0.05, 0.002


def flips(results: Results) -> list[Finding]:
    """(f) Problems that the harder base fails on and a tuned policy solves, QUATRO against GSPO."""
    gspo = theirs(results, "S6")

    def beside(name: str) -> tuple[Comparison, ...]:
        flipped = Outcome(flip_measure(results, name), POINTS, SMALL_FLIP)
        return tuple(
            compare(f"δ {delta} − GSPO", ours(results, "S6", delta), gspo, flipped, GREATER) for delta in DELTAS
        )

    names = (NEVER, *list(BUCKETS)[:2])
    return [finding(f"f{n}", beside(name)) for n, name in enumerate(names, 1)]


@cache
def flip_measure(results: Results, name: str) -> Measure:
    """Newly solved of the problems that a run's base never solved (`never`), or flip@16 of those of a bucket.

    It is the mean over these problems (1,): each base has its own, so that only seeds can be set side by side.
    """

    def flipped(run: Run) -> Floats:
        base = results.bases[base_name(run.model)]
        return np.array([run.counts(NUCLEUS).flips(base.counts(NUCLEUS), name, FLIP_K).mean()])

    return Measure(f"flips of {name} problems", flipped)


def temperature(results: Results) -> list[Finding]:
    """(g) GSPO sampled hotter against QUATRO sampled at 1."""

    gspo = {cell: theirs(results, cell) for cell in ("S1", "S2")}
    gain_of = "{}: GSPO at T 1.5 − T 1".format

    def gain(tag: Tag) -> tuple[Comparison, ...]:
        hot, cold = unique_ratio(HOT[tag]), unique_ratio(tag)
        return tuple(
            judged(gain_of(cell), difference(hot_runs(group, tag), group, hot, cold), GREATER, UCR, margin=SMALL_UCR)
            for cell, group in gspo.items()
        )

    def ahead(tag: Tag, delta: str, cell: str) -> Comparison:
        hot, cold = unique_ratio(HOT[tag]), unique_ratio(tag)
        value_SP = difference(ours(results, cell, delta), hot_runs(gspo[cell], tag), cold, hot)
        return judged(f"{cell}: δ {delta} at T 1 − GSPO at T 1.5", value_SP, GREATER, UCR, margin=SMALL_UCR)

    hot, cold = passed(1, HOT[NUCLEUS]), passed(1, NUCLEUS)
    quality = tuple(
        judged(
            gain_of(cell),
            difference(hot_runs(group, NUCLEUS), group, hot, cold),
            LESS,
            POINTS,
            margin=STEADY_PASS1.small,
        )
        for cell, group in gspo.items()
    )
    leads = {tag: [ahead(tag, delta, cell) for cell in gspo for delta in DELTAS] for tag in (NUCLEUS, ALL)}
    return [
        finding("g1", gain(NUCLEUS)),
        finding("g2", leads[NUCLEUS]),
        finding("g3", gain(ALL)),
        finding("g4", leads[ALL]),
        finding("g5", quality),
    ]


def hot_runs(group: Group, tag: Tag) -> Group:
    """Those that have been sampled at temperature 1.5."""
    return {seed: run for seed, run in group.items() if is_measured(run.folder, HOT[tag])}
