"""(l) Continuous rewards, which the paper's limitations leave open: S14 beside S0, which has rewards of 0 and 1.

Measured is in both the same verdict, right or wrong.
"""

from experiments.replication.cells import (
    DELTAS,
    MIDDLE,
    PASS1,
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
from experiments.replication.rules import GREATER, Comparison, Finding, finding

BINARY, GRADED = "S0", "S14"


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

    trades = (entropy(), ucc_k(ALL), pass_1(NUCLEUS))
    return [
        *(finding(f"l{n}", trend(results, (GRADED,), trade)) for n, trade in enumerate(trades, 1)),
        finding("l4", gains(PASS1)),
        finding("l5", gains(pass_at(K, NUCLEUS))),
        finding("l6", gains(UCC)),
        finding("l7", beside_gspo(PASS1)),
        finding("l8", beside_gspo(UCC)),
    ]
