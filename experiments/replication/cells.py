"""The settings of paper-small.yaml by short names, and the units in which claims are shown."""

from __future__ import annotations

import math

from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, difference
from experiments.replication.rules import Comparison, Unit, estimate_of

DELTAS = ("0.1", "0.01", "0.001")
NEIGHBOURS = tuple(zip(DELTAS[1:], DELTAS, strict=False))  # (smaller, larger)
MIDDLE = "0.01"
BASELINES = ("grpo", "gspo", "gmpo", "gpg", "dapo", "cispo")
BASE, HARD_BASE = "base-embedded-countdown", "base-embedded-countdown-hard"

TAG_WORDS = {ALL: "top_p 1", NUCLEUS: "top_p 0.7"}
K = 256

CELLS = {
    "S1": "K = 5 full batches",
    "S2": "K = 1, 4 minibatches",
    "S3": "K = 1 and 2, 4 minibatches",
    "S4": "K = 5 full batches, learning rates 1e-4 and 1e-3",
    "S5": "K = 2 full batches, δ 0.1, with and without the log-ratio",
    "S6": "as S1, harder base",
    "S7": "K = 1, one full batch",
    "S8": "as S1, loss summed over rollouts",
}

# The direction that the paper's constraint bounds by delta.
REALISED_KL = "kl/new_old"

NATS = Unit(3, "nats")
POINTS = Unit(1, "points", scale=100.0)
COUNT = Unit(2, "solutions")
FACTOR = Unit(2, "times", is_ratio=True)
SHARE = Unit(1, "%", scale=100.0, is_signed=False)

# Below these a difference is none worth the name.
SMALL_PASS, SMALL_UCC, SMALL_ENTROPY = 0.02, 0.5, 0.02

# A pass@1 that has fallen by less than this counts as unchanged: a tenth of the base's, and its own standard error.
PASS1_MARGIN = 0.02


def quatro(delta: str, **more: str) -> dict[str, str]:
    """Settings of QUATRO; ``more`` are further keys of its block."""
    return {"method.name": "quatro", "method.delta": delta, **{f"method.{key}": text for key, text in more.items()}}


def baseline(name: str, preset: str = "paper") -> dict[str, str]:
    return {"method.name": name, "method.preset": preset}


def at_lr(settings: dict[str, str], lr: str) -> dict[str, str]:
    return {**settings, "optimizer.lr": lr}


def at_inner_updates(settings: dict[str, str], num_updates: str) -> dict[str, str]:
    return {**settings, "inner_updates": num_updates}


def ours(results: Results, cell: str, delta: str) -> Group:
    return results.group(cell, quatro(delta))


def theirs(results: Results, cell: str, name: str = "gspo") -> Group:
    return results.group(cell, baseline(name))


def compare(
    what: str,
    group: Group,
    other: Group,
    measure: Measure,
    region: tuple[float, float],
    unit: Unit,
    *,
    negligible: float = 0.0,
) -> Comparison:
    """``group`` minus ``other``, paired by seed and problem, claimed to lie in ``region``."""
    return Comparison(what, estimate_of(difference(group, other, measure)), region, unit, negligible)


def within(margin: float) -> tuple[float, float]:
    return (-margin, margin)


def within_factor(low: float, high: float) -> tuple[float, float]:
    """The region of a logarithm."""
    return (math.log(low), math.log(high))
