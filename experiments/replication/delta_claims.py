"""What delta decides: (a) exploration against accuracy, (e) the dual's advantages and lambda, (i) where it acts."""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from evals.estimators import Floats
from experiments.replication.cells import (
    DELTAS,
    ENTROPY,
    FACTOR,
    NATS,
    NEIGHBOURS,
    PASS1,
    REALISED,
    SHARE,
    TAG_WORDS,
    UCC,
    K,
    Outcome,
    compare,
    factor_of,
    measured,
    ours,
    pass_at,
    ucc_at_k,
    within_factor,
)
from experiments.replication.results import ALL, NUCLEUS, Measure, Results, Run, mean_of
from experiments.replication.rules import GREATER, Comparison, Finding, exact, finding
from quatro.runs.views.series import positive_advantages
from quatro.sample.folder import Tag

NUM_ROLLOUTS = 8


class Trade(NamedTuple):
    """What delta decides: an outcome of which the smaller delta has more, or, where ``larger_wins``, the larger one."""

    claim: str
    outcome: Outcome
    larger_wins: bool = False


def entropy() -> Trade:
    return Trade("a smaller δ ends with a higher entropy", ENTROPY)


def pass_k(tag: Tag) -> Trade:
    return Trade(f"a smaller δ has a higher Pass@{K} ({TAG_WORDS[tag]})", pass_at(K, tag))


def ucc_k(tag: Tag) -> Trade:
    return Trade(f"a smaller δ has a higher UCC@{K} ({TAG_WORDS[tag]})", ucc_at_k(tag))


def pass_1(tag: Tag) -> Trade:
    return Trade(f"a larger δ has a higher Pass@1 ({TAG_WORDS[tag]})", pass_at(1, tag), larger_wins=True)


def trend(results: Results, cells: Sequence[str], trade: Trade) -> tuple[Comparison, ...]:
    """In each cell the smallest delta against the largest, and no step between neighbours that goes the other way.

    A step goes the other way if it does so by more than the margin.
    """
    largest, smallest = DELTAS[0], DELTAS[-1]
    found = []
    for cell in cells:
        for small, large in ((smallest, largest), *NEIGHBOURS):
            is_end = (small, large) == (smallest, largest)
            slack = 0.0 if is_end else trade.outcome.small
            region = (-math.inf, slack) if trade.larger_wins else (-slack, math.inf)
            pair = ours(results, cell, small), ours(results, cell, large)
            what = f"{cell}: {'' if is_end else 'step '}δ {small} − {large}"
            found.append(compare(what, *pair, trade.outcome, region))
    return tuple(found)


def trade_off(results: Results) -> list[Finding]:
    """(a) Smaller delta: more entropy, Pass@k and UCC@k at large k. Larger delta: more Pass@1."""
    by_tag = [trade(tag) for trade in (pass_k, ucc_k, pass_1) for tag in (NUCLEUS, ALL)]
    cells = ("S1", "S2", "S9")
    return [finding(f"a{n}", trend(results, cells, trade)) for n, trade in enumerate([entropy(), *by_tag], 1)]


def dual(results: Results) -> list[Finding]:
    """(e) The advantage of a correct rollout by how many are correct, and lambda over training."""
    advantage = {
        delta: np.array(positive_advantages(float(delta), NUM_ROLLOUTS, boundary_cap=0.95, advantage_floor=-20.0)[0])
        for delta in DELTAS
    }
    falls = tuple(
        Comparison(f"δ {delta}: smallest step down of A⁺ over c", exact(float(-np.diff(a).max())), GREATER, NATS)
        for delta, a in advantage.items()
    )
    ordered = tuple(
        Comparison(
            f"δ {large} − {small}: smallest difference of A⁺ over c",
            exact(float((advantage[large] - advantage[small]).min())),
            GREATER,
            NATS,
        )
        for small, large in NEIGHBOURS
    )
    lam = factor_of(mean_of("dual/lam_mean"))
    grows = tuple(
        compare(f"{cell}: mean λ, δ {small} / {large}", *pair, lam, GREATER)
        for cell in ("S1", "S2")
        for small, large in NEIGHBOURS
        for pair in [(ours(results, cell, small), ours(results, cell, large))]
    )
    calm = tuple(
        Comparison(f"{cell}: δ {delta}", measured(ours(results, cell, delta), _LATE_VARIATION), (0.0, 0.1), SHARE)
        for cell in ("S1", "S2")
        for delta in DELTAS
    )
    return [finding("e1", falls), finding("e2", ordered), finding("e3", grows), finding("e4", calm)]


def where_it_acts(results: Results) -> list[Finding]:
    """(i) Delta acts through the log-ratio, which is 0 on the first step after sampling."""
    smallest, largest = DELTAS[-1], DELTAS[0]

    def ends(cell: str, *, is_dead: bool) -> tuple[Comparison, ...]:
        loose, tight = ours(results, cell, largest), ours(results, cell, smallest)
        steps = f"{cell}: {{}}, δ {smallest} − {largest}".format

        def region(outcome: Outcome) -> tuple[float, float]:
            return outcome.alike if is_dead else GREATER

        unchanged = (("Pass@1 (top_p 0.7)", PASS1), ("final entropy", ENTROPY)) if is_dead else ()
        return (
            compare(f"{cell}: realised KL, δ {largest} / {smallest}", loose, tight, REALISED, region(REALISED)),
            *(
                compare(steps(what), tight, loose, outcome, region(outcome))
                for what, outcome in ((f"UCC@{K} (top_p 1)", UCC), *unchanged)
            ),
        )

    tracks = [
        Comparison(
            f"{cell}: realised KL / δ, δ {delta}",
            measured(ours(results, cell, delta), relative_to(delta)),
            within_factor(0.5, 2.0),
            FACTOR,
        )
        for cell in ("S1", "S2", "S9")
        for delta in DELTAS
    ]
    cells = {"i1": "S7", "i2": "S2", "i3": "S1"}
    return [*(finding(name, ends(cell, is_dead=cell == "S7")) for name, cell in cells.items()), finding("i4", tracks)]


def _late_variation(run: Run) -> Floats:
    """Standard deviation over mean of lambda in the second half of training (1,)."""
    lam = run.values("dual/lam_mean")
    late = lam[len(lam) // 2 :]
    return np.array([late.std(ddof=1) / late.mean()])


_LATE_VARIATION = Measure("late variation of dual/lam_mean", _late_variation)


@cache
def relative_to(delta: str) -> Measure:
    """The logarithm of the mean realised KL of an iteration over delta."""
    return Measure(f"{REALISED.measure.name} / {delta}", lambda run: REALISED.measure(run) - np.log(float(delta)))
