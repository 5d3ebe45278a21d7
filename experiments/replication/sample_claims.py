"""(f) flips by difficulty, (g) UCR against temperature: both from samples."""

# Axes: S seeds, P problems.
from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from evals.estimators import Floats
from evals.metrics.flips import BUCKETS
from experiments.replication.cells import DELTAS, PASS1_MARGIN, POINTS, TAG_WORDS, compare, judged, ours, theirs
from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, Run, difference, passed, unique_ratio
from experiments.replication.rules import GREATER, LESS, Comparison, Finding, Unit
from quatro.runs.points import base_name
from quatro.sample.folder import Tag
from quatro.sweep.results import NEVER, is_measured

HOT = {tag: replace(tag, temperature=1.5) for tag in (NUCLEUS, ALL)}
FLIP_K = 16
SIZES = (4, 8, 16, 32, 64)
UCR = Unit(2, "points", scale=100.0)
# Ours: the paper has both in figures only.
SMALL_FLIP, SMALL_UCR = 0.05, 0.002


def flips(results: Results) -> list[Finding]:
    """(f) Problems that the harder base fails on and a tuned policy solves, QUATRO against GSPO."""
    gspo = theirs(results, "S6")

    def beside(name: str) -> tuple[Comparison, ...]:
        return tuple(
            compare(
                f"δ {delta} − GSPO",
                ours(results, "S6", delta),
                gspo,
                flip_measure(results, name),
                GREATER,
                POINTS,
                margin=SMALL_FLIP,
            )
            for delta in DELTAS
        )

    where = "App. “Flip rate”, Fig. flip_rate; the margin is ours"
    rates = f"chance that {FLIP_K} base samples all fail and {FLIP_K} tuned ones hold a success"
    findings = [
        Finding(
            "f1", "QUATRO solves more of the problems that the base never solved (newly solved)", where, beside(NEVER)
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

    def gain(tag: Tag) -> tuple[Comparison, ...]:
        return tuple(
            judged(
                f"{cell}: GSPO at T 1.5 − T 1",
                _hot_difference(theirs(results, cell), theirs(results, cell), tag, is_first_hot=True),
                GREATER,
                UCR,
                margin=SMALL_UCR,
            )
            for cell in ("S1", "S2")
        )

    def ahead(tag: Tag) -> tuple[Comparison, ...]:
        return tuple(
            judged(
                f"{cell}: δ {delta} at T 1 − GSPO at T 1.5",
                _hot_difference(ours(results, cell, delta), theirs(results, cell), tag, is_first_hot=False),
                GREATER,
                UCR,
                margin=SMALL_UCR,
            )
            for cell in ("S1", "S2")
            for delta in DELTAS
        )

    quality = tuple(
        judged(
            f"{cell}: GSPO at T 1.5 − T 1",
            difference(
                hot_runs(theirs(results, cell), NUCLEUS),
                theirs(results, cell),
                passed(1, HOT[NUCLEUS]),
                passed(1, NUCLEUS),
            ),
            LESS,
            POINTS,
            margin=PASS1_MARGIN,
        )
        for cell in ("S1", "S2")
    )
    where = "App. “Temperature variation”, Fig. temperature"
    findings = []
    for number, tag in enumerate((NUCLEUS, ALL)):
        words = TAG_WORDS[tag]
        findings += [
            Finding(name, f"{claim} ({words})", where, comparisons, is_ours=tag == ALL)
            for name, claim, comparisons in (
                (f"g{2 * number + 1}", "Temperature 1.5 raises GSPO's UCR", gain(tag)),
                (f"g{2 * number + 2}", "QUATRO at 1 has a higher UCR than GSPO at 1.5", ahead(tag)),
            )
        ]
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
