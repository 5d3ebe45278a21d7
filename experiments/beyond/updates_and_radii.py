"""As many updates as the realised KL allows (x), and radii that change over a run (y)."""

from __future__ import annotations

import math

from experiments.replication.cells import (
    DELTAS,
    ENTROPY,
    FACTOR,
    MIDDLE,
    NATS,
    REALISED,
    STEADY_PASS1,
    UCC,
    K,
    compare,
    judged,
    ours,
    within,
    within_factor,
)
from experiments.replication.delta_claims import relative_to
from experiments.replication.results import Group, Results, table
from experiments.replication.rules import GREATER, Finding

PLAIN, AUTO, SHRINKING, STEERED = "S0", "S11", "S12", "S13"
TARGET_ENTROPY, TARGET_KL = "0.95", "0.01"

_OURS = "not in the paper"


def budget(results: Results) -> list[Finding]:
    """(x) Whether `inner_updates: auto` holds the realised KL at delta, and what that costs beside five updates."""
    keeps = tuple(
        judged(f"δ {delta}", table(_auto(results, delta), relative_to(delta)), within_factor(0.5, 2.0), FACTOR)
        for delta in DELTAS
    )
    pairs = {delta: (_auto(results, delta), ours(results, PLAIN, delta)) for delta in DELTAS}
    beside = tuple(
        comparison
        for delta, pair in pairs.items()
        for comparison in (
            compare(f"Pass@1, δ {delta}", *pair, STEADY_PASS1, STEADY_PASS1.not_less),
            compare(f"UCC@{K}, δ {delta}", *pair, UCC, UCC.not_less),
        )
    )
    return [
        Finding(
            "x1", "`inner_updates: auto` brings the realised KL to δ, to a factor of 2", _OURS, keeps, is_ours=True
        ),
        Finding(
            "x2",
            f"`inner_updates: auto` loses neither Pass@1 (top_p 0.7) nor UCC@{K} (top_p 1) beside 5 updates",
            f"{_OURS}; so are the margins",
            beside,
            is_ours=True,
        ),
    ]


def _auto(results: Results, delta: str) -> Group:
    return results.group(AUTO, {"method.delta": delta})


def schedules(results: Results) -> list[Finding]:
    """(y) Radii that change over a run: whether they do what they promise.

    The runs of `SHRINKING` are those of 2026-11-23; the schedules `linear` and `cosine` were removed because of them.
    """
    constant = ours(results, PLAIN, MIDDLE)
    better = tuple(
        comparison
        for name in ("linear", "cosine")
        for group in (results.group(SHRINKING, {"method.delta_schedule": name}),)
        for comparison in (
            compare(f"{name}: Pass@1", group, constant, STEADY_PASS1, GREATER),
            compare(f"{name}: UCC@{K}", group, constant, UCC, UCC.not_less),
        )
    )
    entropy = results.group(STEERED, {"method.delta_schedule": "target-entropy"})
    target_kl = {"method.delta_schedule": "target-kl", "method.delta_target": TARGET_KL, "method.delta": "0.1"}
    realised = table(results.group(STEERED, target_kl), REALISED.measure)
    final = table(entropy, ENTROPY.measure)
    hits_entropy = judged(
        f"final entropy − {TARGET_ENTROPY}",
        None if final is None else final - float(TARGET_ENTROPY),
        within(0.05),
        NATS,
    )
    hits_kl = judged(
        f"realised KL / {TARGET_KL}",
        None if realised is None else realised - math.log(float(TARGET_KL)),
        within_factor(0.5, 2.0),
        FACTOR,
    )
    claim = f"A radius that shrinks from 0.1 to 0.001 has a higher Pass@1 than δ {MIDDLE} and no lower UCC@{K}"
    return [
        Finding("y1", claim, _OURS, better, is_ours=True),
        Finding("y2", "`target-entropy` ends within 0.05 nats of its target", _OURS, (hits_entropy,), is_ours=True),
        Finding(
            "y3", "`target-kl` holds the realised KL at its target, to a factor of 2", _OURS, (hits_kl,), is_ours=True
        ),
    ]
