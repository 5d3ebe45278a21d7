"""As many updates as the realised KL allows (x), and radii that change over a run (y)."""

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
from experiments.replication.rules import GREATER, Finding, finding

PLAIN, AUTO, SHRINKING, STEERED = "S0", "S11", "S12", "S13"
TARGET_ENTROPY, TARGET_KL = "0.95", "0.01"


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
    return [finding("x1", keeps), finding("x2", beside)]


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
    return [finding("y1", better), finding("y2", [hits_entropy]), finding("y3", [hits_kl])]
