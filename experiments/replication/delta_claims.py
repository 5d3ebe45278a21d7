"""What delta decides: (a) exploration against accuracy, (e) the dual's advantages and lambda, (i) where it acts."""

from __future__ import annotations

import numpy as np

from experiments.replication.cells import (
    CELLS,
    COUNT,
    DELTAS,
    FACTOR,
    NATS,
    NEIGHBOURS,
    POINTS,
    REALISED_KL,
    SHARE,
    SMALL_ENTROPY,
    SMALL_PASS,
    SMALL_UCC,
    TAG_WORDS,
    K,
    compare,
    ours,
    within,
    within_factor,
)
from experiments.replication.results import (
    ALL,
    NUCLEUS,
    Measure,
    Results,
    Run,
    last,
    log_of,
    mean_of,
    passed,
    table,
    unique,
)
from experiments.replication.rules import GREATER, LESS, Comparison, Finding, Unit, estimate_of, exact
from quatro.runs.series import positive_advantages

_TRADE = "Sec. 4.2 “Overall performance”, Tab. avg_passk"
_REALISED = log_of(mean_of(REALISED_KL))
NUM_ROLLOUTS = 8


def trade_off(results: Results) -> list[Finding]:
    """(a) Smaller delta: more entropy, Pass@k and UCC@k at large k. Larger delta: more Pass@1."""

    def neighbours(measure: Measure, unit: Unit, negligible: float, *, larger_wins: bool = False) -> list[Comparison]:
        region = LESS if larger_wins else GREATER
        return [
            compare(
                f"{cell}: δ {small} − {large}",
                ours(results, cell, small),
                ours(results, cell, large),
                measure,
                region,
                unit,
                negligible=negligible,
            )
            for cell in ("S1", "S2")
            for small, large in NEIGHBOURS
        ]

    findings = [
        Finding(
            "a1",
            "A smaller δ ends with a higher entropy",
            "Sec. 4.2 “Entropy stability”, Fig. entropy, Tab. final_entropy",
            tuple(neighbours(last("entropy/token_mean"), NATS, SMALL_ENTROPY)),
        )
    ]
    number = 1
    for name, measure, unit, negligible, words in (
        ("pass", passed, POINTS, SMALL_PASS, f"A smaller δ has a higher Pass@{K}"),
        ("ucc", unique, COUNT, SMALL_UCC, f"A smaller δ has a higher UCC@{K}"),
        ("pass1", passed, POINTS, SMALL_PASS, "A larger δ has a higher Pass@1"),
    ):
        for tag in (NUCLEUS, ALL):
            number += 1
            k = 1 if name == "pass1" else K
            found = neighbours(measure(k, tag), unit, negligible, larger_wins=name == "pass1")
            where = "Sec. 4.2 “Diversity”, Tab. ucc_all" if name == "ucc" else _TRADE
            findings.append(Finding(f"a{number}", f"{words} ({TAG_WORDS[tag]})", where, tuple(found)))
    return findings


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
    grows = tuple(
        compare(
            f"{cell}: mean λ, δ {small} / {large}",
            ours(results, cell, small),
            ours(results, cell, large),
            log_of(mean_of("dual/lam_mean")),
            GREATER,
            FACTOR,
        )
        for cell in ("S1", "S2")
        for small, large in NEIGHBOURS
    )
    calm = tuple(
        Comparison(
            f"{cell}: δ {delta}",
            estimate_of(table(ours(results, cell, delta), _late_variation)),
            (0.0, 0.1),
            SHARE,
        )
        for cell in ("S1", "S2")
        for delta in DELTAS
    )
    where = "App. “Our method behavior”, Fig. method_behavior"
    return [
        Finding("e1", "The update grows weaker the more rollouts are correct", f"{where} left", falls),
        Finding("e2", "A smaller δ weakens the update for every number of correct rollouts", f"{where} left", ordered),
        Finding("e3", "A smaller δ leads to a larger λ throughout training", f"{where} right", grows),
        Finding(
            "e4",
            "λ settles without abrupt oscillations: its mean over prompts varies by less than 10 % (standard "
            "deviation over mean) in the second half of training",
            f"{where} right; the 10 % are ours",
            calm,
        ),
    ]


def where_it_acts(results: Results) -> list[Finding]:
    """(i) Delta acts through the log-ratio, which is 0 on the first step after sampling."""
    smallest, largest = DELTAS[-1], DELTAS[0]

    def ends(cell: str, *, is_dead: bool) -> tuple[Comparison, ...]:
        loose, tight = ours(results, cell, largest), ours(results, cell, smallest)
        return (
            compare(
                f"{cell}: realised KL, δ {largest} / {smallest}",
                loose,
                tight,
                _REALISED,
                within_factor(1 / 1.25, 1.25) if is_dead else GREATER,
                FACTOR,
            ),
            compare(
                f"{cell}: UCC@{K} (top_p 1), δ {smallest} − {largest}",
                tight,
                loose,
                unique(K, ALL),
                within(SMALL_UCC) if is_dead else GREATER,
                COUNT,
                negligible=0.0 if is_dead else SMALL_UCC,
            ),
        )

    tracks = [
        Comparison(
            f"{cell}: realised KL / δ, δ {delta}",
            estimate_of(table(ours(results, cell, delta), _relative_to(float(delta)))),
            within_factor(0.5, 2.0),
            FACTOR,
        )
        for cell in ("S1", "S2")
        for delta in DELTAS
    ]
    follows = "not stated; follows from Eq. exact_tr_update, where the log-ratio is 0 on the first step"
    return [
        Finding("i1", f"δ is a dead knob when strictly on-policy ({CELLS['S7']})", follows, ends("S7", is_dead=True)),
        Finding("i2", f"δ acts with minibatches ({CELLS['S2']})", follows, ends("S2", is_dead=False)),
        Finding("i3", f"δ acts with repeated updates ({CELLS['S1']})", follows, ends("S1", is_dead=False)),
        Finding(
            "i4",
            "The realised KL of an iteration is δ, to a factor of 2",
            "Sec. 3.1: the constraint; nothing enforces it",
            tuple(tracks),
        ),
    ]


def _late_variation(run: Run) -> np.ndarray:
    """Standard deviation over mean of lambda in the second half of training (1,)."""
    lam = run.values("dual/lam_mean")
    late = lam[len(lam) // 2 :]
    return np.array([late.std(ddof=1) / late.mean()])


def _relative_to(delta: float) -> Measure:
    return lambda run: _REALISED(run) - np.log(delta)
