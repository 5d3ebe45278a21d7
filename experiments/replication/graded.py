"""Continuous rewards, which the paper's limitations leave open: (l) the embedded task with graded and with 0/1 rewards.

Measured is in both the same verdict, right or wrong.
"""

from __future__ import annotations

from experiments.replication.cells import (
    COUNT,
    DELTAS,
    MIDDLE,
    NATS,
    NEIGHBOURS,
    POINTS,
    SMALL_ENTROPY,
    SMALL_PASS,
    SMALL_UCC,
    TAG_WORDS,
    K,
    baseline,
    compare,
    quatro,
)
from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, difference, last, passed, unique
from experiments.replication.rules import GREATER, LESS, Comparison, Finding, Unit, estimate_of

BINARY, GRADED = "G1", "G2"
CELLS = {BINARY: "rewards 0 and 1", GRADED: "rewards 1 / (1 + distance from the target)"}

_LIMIT = "Sec. Limitation: “may be beneficial in settings with continuous or fine-grained rewards”"
_TRADE = "Sec. 4.2, which has rewards of 0 and 1 only"


def graded_rewards(results: Results) -> list[Finding]:
    """(l) Whether delta trades accuracy against diversity here too, and whether QUATRO gains from graded rewards."""

    def group(cell: str, delta: str) -> Group:
        return results.group(cell, quatro(delta))

    def neighbours(measure: Measure, region: tuple[float, float], unit: Unit, small: float) -> tuple[Comparison, ...]:
        return tuple(
            compare(
                f"δ {low} − {high}", group(GRADED, low), group(GRADED, high), measure, region, unit, negligible=small
            )
            for low, high in NEIGHBOURS
        )

    def gains(measure: Measure, unit: Unit, small: float) -> tuple[Comparison, ...]:
        return tuple(
            compare(
                f"δ {delta}: graded − 0/1",
                group(GRADED, delta),
                group(BINARY, delta),
                measure,
                GREATER,
                unit,
                negligible=small,
            )
            for delta in DELTAS
        )

    def beside_gspo(measure: Measure, unit: Unit, small: float) -> tuple[Comparison, ...]:
        settings = quatro(MIDDLE), baseline("gspo")
        ours, theirs = (difference(results.group(GRADED, key), results.group(BINARY, key), measure) for key in settings)
        # Both tables have the same seeds, or one of them is not whole yet.
        both = None if ours is None or theirs is None or ours.shape != theirs.shape else ours - theirs
        what = f"(graded − 0/1), QUATRO δ {MIDDLE} − GSPO"
        return (Comparison(what, estimate_of(both), GREATER, unit, small),)

    pass1, unique_all = passed(1, ALL), unique(K, ALL)
    on, off = TAG_WORDS[ALL], TAG_WORDS[NUCLEUS]
    return [
        Finding(
            "l1",
            "With graded rewards too, a smaller δ ends with a higher entropy",
            _TRADE,
            neighbours(last("entropy/token_mean"), GREATER, NATS, SMALL_ENTROPY),
        ),
        Finding(
            "l2",
            f"With graded rewards too, a smaller δ has a higher UCC@{K} ({on})",
            _TRADE,
            neighbours(unique_all, GREATER, COUNT, SMALL_UCC),
        ),
        Finding(
            "l3",
            f"With graded rewards too, a larger δ has a higher Pass@1 ({on})",
            _TRADE,
            neighbours(pass1, LESS, POINTS, SMALL_PASS),
        ),
        Finding("l4", f"Graded rewards give QUATRO a higher Pass@1 ({on})", _LIMIT, gains(pass1, POINTS, SMALL_PASS)),
        Finding(
            "l5",
            f"Graded rewards give QUATRO a higher Pass@{K} ({off})",
            _LIMIT,
            gains(passed(K, NUCLEUS), POINTS, SMALL_PASS),
        ),
        Finding(
            "l6", f"Graded rewards give QUATRO a higher UCC@{K} ({on})", _LIMIT, gains(unique_all, COUNT, SMALL_UCC)
        ),
        Finding(
            "l7",
            f"Graded rewards raise QUATRO's Pass@1 ({on}) by more than GSPO's",
            _LIMIT,
            beside_gspo(pass1, POINTS, SMALL_PASS),
        ),
        Finding(
            "l8",
            f"Graded rewards raise QUATRO's UCC@{K} ({on}) by more than GSPO's",
            _LIMIT,
            beside_gspo(unique_all, COUNT, SMALL_UCC),
        ),
    ]
