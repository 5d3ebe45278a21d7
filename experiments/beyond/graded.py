"""(l) Continuous rewards, which the paper's limitations leave open: S14 beside S0, which has rewards of 0 and 1.

Measured is in both the same verdict, right or wrong.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.replication.cells import (
    DELTAS,
    MIDDLE,
    PASS1,
    TAG_WORDS,
    UCC,
    K,
    Outcome,
    baseline,
    compare,
    judged,
    ours,
    pass_at,
    quatro,
)
from experiments.replication.delta_claims import entropy, pass_1, trend, ucc_k
from experiments.replication.results import ALL, NUCLEUS, Results, difference
from experiments.replication.rules import GREATER, Comparison, Finding

BINARY, GRADED = "S0", "S14"

_LIMIT = "Sec. Limitation: “may be beneficial in settings with continuous or fine-grained rewards”"
_TRADE = "Sec. 4.2, which has rewards of 0 and 1 only"


def graded_rewards(results: Results) -> list[Finding]:
    """(l) Whether delta trades accuracy against diversity here too, and whether QUATRO gains from graded rewards."""

    def gains(outcome: Outcome) -> tuple[Comparison, ...]:
        pairs = {delta: (ours(results, GRADED, delta), ours(results, BINARY, delta)) for delta in DELTAS}
        return tuple(compare(f"δ {delta}: graded − 0/1", *pair, outcome, GREATER) for delta, pair in pairs.items())

    def beside_gspo(outcome: Outcome) -> tuple[Comparison, ...]:
        settings = quatro(MIDDLE), baseline("gspo")
        mine, gspo = (
            difference(results.group(GRADED, key), results.group(BINARY, key), outcome.measure) for key in settings
        )
        # Both tables have the same seeds, or one of them is not whole yet.
        both = None if mine is None or gspo is None or mine.shape != gspo.shape else mine - gspo
        what = f"(graded − 0/1), QUATRO δ {MIDDLE} − GSPO"
        return (judged(what, both, GREATER, outcome.unit, margin=outcome.small),)

    on, off = TAG_WORDS[ALL], TAG_WORDS[NUCLEUS]
    trades = (entropy(), ucc_k(ALL), pass_1(NUCLEUS))
    findings = [
        *(
            Finding(f"l{n}", f"With graded rewards too, {trade.claim}", _TRADE, trend(results, (GRADED,), trade))
            for n, trade in enumerate(trades, 1)
        ),
        Finding("l4", f"Graded rewards give QUATRO a higher Pass@1 ({off})", _LIMIT, gains(PASS1)),
        Finding("l5", f"Graded rewards give QUATRO a higher Pass@{K} ({off})", _LIMIT, gains(pass_at(K, NUCLEUS))),
        Finding("l6", f"Graded rewards give QUATRO a higher UCC@{K} ({on})", _LIMIT, gains(UCC)),
        Finding("l7", f"Graded rewards raise QUATRO's Pass@1 ({off}) by more than GSPO's", _LIMIT, beside_gspo(PASS1)),
        Finding("l8", f"Graded rewards raise QUATRO's UCC@{K} ({on}) by more than GSPO's", _LIMIT, beside_gspo(UCC)),
    ]
    return [replace(finding, is_ours=True) for finding in findings]
