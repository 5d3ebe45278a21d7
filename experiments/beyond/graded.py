"""(l) Continuous rewards, which the paper's limitations leave open: S14 beside S0, which has rewards of 0 and 1.

Measured is in both the same verdict, right or wrong.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.replication.cells import (
    COUNT,
    DELTAS,
    MIDDLE,
    POINTS,
    SMALL_PASS,
    SMALL_PASS1,
    SMALL_UCC,
    TAG_WORDS,
    K,
    baseline,
    compare,
    judged,
    ours,
    quatro,
)
from experiments.replication.delta_claims import entropy, pass_1, trend, ucc_k
from experiments.replication.results import ALL, NUCLEUS, Measure, Results, difference, passed, unique
from experiments.replication.rules import GREATER, Comparison, Finding, Unit

BINARY, GRADED = "S0", "S14"

_LIMIT = "Sec. Limitation: “may be beneficial in settings with continuous or fine-grained rewards”"
_TRADE = "Sec. 4.2, which has rewards of 0 and 1 only"


def graded_rewards(results: Results) -> list[Finding]:
    """(l) Whether delta trades accuracy against diversity here too, and whether QUATRO gains from graded rewards."""

    def gains(measure: Measure, unit: Unit, small: float) -> tuple[Comparison, ...]:
        return tuple(
            compare(
                f"δ {delta}: graded − 0/1",
                ours(results, GRADED, delta),
                ours(results, BINARY, delta),
                measure,
                GREATER,
                unit,
                margin=small,
            )
            for delta in DELTAS
        )

    def beside_gspo(measure: Measure, unit: Unit, small: float) -> tuple[Comparison, ...]:
        settings = quatro(MIDDLE), baseline("gspo")
        mine, gspo = (difference(results.group(GRADED, key), results.group(BINARY, key), measure) for key in settings)
        # Both tables have the same seeds, or one of them is not whole yet.
        both = None if mine is None or gspo is None or mine.shape != gspo.shape else mine - gspo
        what = f"(graded − 0/1), QUATRO δ {MIDDLE} − GSPO"
        return (judged(what, both, GREATER, unit, margin=small),)

    pass1, unique_all = passed(1, NUCLEUS), unique(K, ALL)
    on, off = TAG_WORDS[ALL], TAG_WORDS[NUCLEUS]
    trades = (entropy(), ucc_k(ALL), pass_1(NUCLEUS))
    findings = [
        *(
            Finding(f"l{n}", f"With graded rewards too, {trade.claim}", _TRADE, trend(results, (GRADED,), trade))
            for n, trade in enumerate(trades, 1)
        ),
        Finding("l4", f"Graded rewards give QUATRO a higher Pass@1 ({off})", _LIMIT, gains(pass1, POINTS, SMALL_PASS1)),
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
            f"Graded rewards raise QUATRO's Pass@1 ({off}) by more than GSPO's",
            _LIMIT,
            beside_gspo(pass1, POINTS, SMALL_PASS1),
        ),
        Finding(
            "l8",
            f"Graded rewards raise QUATRO's UCC@{K} ({on}) by more than GSPO's",
            _LIMIT,
            beside_gspo(unique_all, COUNT, SMALL_UCC),
        ),
    ]
    return [replace(finding, is_ours=True) for finding in findings]
