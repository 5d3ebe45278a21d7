"""The settings of paper-small.yaml and of its relatives by short names, and the units in which claims are shown."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evals.estimators import Floats
from evals.intervals import mean_intervals, mean_of_seeds
from experiments.replication.results import (
    ALL,
    NUCLEUS,
    Group,
    Measure,
    Results,
    difference,
    last,
    log_of,
    mean_of,
    passed,
    table,
    unique,
)
from experiments.replication.rules import GREATER, LESS, Comparison, Estimate, Sisters, Unit, estimate_of, known
from quatro.sample.folder import Tag

DELTAS = ("0.1", "0.01", "0.001")
NEIGHBOURS = tuple(zip(DELTAS[1:], DELTAS, strict=False))  # (smaller, larger)
MIDDLE = "0.01"
BASELINES = ("grpo", "gspo", "gmpo", "gpg", "dapo", "cispo")

TAG_WORDS = {ALL: "top_p 1", NUCLEUS: "top_p 0.7"}
K = 256

CELLS = {
    "S1": "K = 5 full batches",
    "S2": "K = 1, 4 minibatches",
    "S3": "K = 2, 4 minibatches",
    "S4": "K = 5 full batches, learning rates 1e-4 and 1e-3",
    "S5": "K = 2 full batches, δ 0.1, with and without the log-ratio",
    "S6": "as S1, from weaker base models (countdown-hard)",
    "S7": "K = 1, one full batch",
    "S8": "as S1, loss summed over rollouts",
    "S9": "K = 5 full batches of 128 prompts, learning rate 3e-5",
    "S10": "as S1, but 4, 16 or 32 rollouts per prompt and 256 per iteration",
}

# The direction that the paper's constraint bounds by delta.
REALISED_KL = "kl/new_old"

NATS = Unit(3, "nats")
POINTS = Unit(1, "points", scale=100.0)
COUNT = Unit(2, "solutions")
FACTOR = Unit(2, "times", is_ratio=True)
SHARE = Unit(1, "%", scale=100.0, is_signed=False)


class Outcome(NamedTuple):
    """A measure with its unit, and its margin: the smallest difference that matters."""

    measure: Measure
    unit: Unit
    small: float

    @property
    def alike(self) -> tuple[float, float]:
        """The region of no difference."""
        return within(self.small)

    @property
    def not_less(self) -> tuple[float, float]:
        return (-self.small, math.inf)


# The sizes are half of the smallest that the paper has between neighbouring deltas: 1.29 points of Pass@1 and 2.14 of
# Pass@256 (Tab. avg_passk), and 0.03 nats (Tab. final_entropy). The paper has no UCC by delta: half a solution is ours,
# and so is the factor of KLs, temperatures and gradient norms.
def pass_at(k: int, tag: Tag) -> Outcome:
    return Outcome(passed(k, tag), POINTS, 0.006 if k == 1 else 0.01)


def ucc_at_k(tag: Tag) -> Outcome:
    return Outcome(unique(K, tag), COUNT, 0.5)


def factor_of(measure: Measure) -> Outcome:
    return Outcome(log_of(measure), FACTOR, math.log(1.25))


PASS1, UCC = pass_at(1, NUCLEUS), ucc_at_k(ALL)
ENTROPY = Outcome(last("entropy/token_mean"), NATS, 0.015)
REALISED = factor_of(mean_of(REALISED_KL))

# A Pass@1 that has fallen by less than this counts as unchanged; ours, for the paper shows it in a figure only.
STEADY_PASS1 = PASS1._replace(small=0.012)

# Kinds of comparisons whose seeds may lie further apart than those of others.
OTHERS, UNBOUNDED, UNSTABILISED, HOT = "", "GSPO or GPG", "without the log-ratio", "learning rate 1e-3"
KINDS = (OTHERS, UNBOUNDED, UNSTABILISED, HOT)


def quatro(delta: str, **more: str) -> dict[str, str]:
    """Settings of QUATRO; ``more`` are further keys of its block."""
    return {"method.name": "quatro", "method.delta": delta, **{f"method.{key}": text for key, text in more.items()}}


def baseline(name: str, preset: str = "paper") -> dict[str, str]:
    return {"method.name": name, "method.preset": preset}


def at_lr(settings: dict[str, str], lr: str) -> dict[str, str]:
    return {**settings, "optimizer.lr": lr}


def ours(results: Results, cell: str, delta: str) -> Group:
    return results.group(cell, quatro(delta))


def theirs(results: Results, cell: str, name: str = "gspo") -> Group:
    return results.group(cell, baseline(name))


def measured(group: Group, measure: Measure) -> Estimate | None:
    """The mean over the runs and their problems with its interval; None where no run is done, or one lacks the number.

    The interval of a share, and of a count among samples, is made on the logit scale.
    """
    value_SP = table(group, measure)
    if value_SP is None or np.isnan(value_SP).any():
        return None
    found = known(estimate_of(value_SP))
    is_one_number = value_SP.shape[1] == 1
    if measure.largest is None or found.low is None or (is_one_number and not np.ptp(value_SP)):
        return found
    (one,) = (
        [mean_of_seeds(value_SP[:, 0].tolist(), [], measure.largest)]
        if is_one_number
        else mean_intervals([value_SP[:, :, None]], [measure.largest])
    )
    return replace(found, low=one.low, high=one.high)


def compare(what: str, group: Group, other: Group, outcome: Outcome, region: tuple[float, float]) -> Comparison:
    """``group`` minus ``other``, paired by seed and problem, claimed to lie in ``region``.

    A claim of more or of less has the margin ``outcome.small``; any other region has its margin in its ends.
    """
    value_SP = difference(group, other, outcome.measure)
    task = next((run.model.partition("@")[0] for run in group.values()), "")
    sisters = Sisters(task, outcome.measure.name, _kind(group, other))
    margin = outcome.small if region in (GREATER, LESS) else 0.0
    return Comparison(what, estimate_of(value_SP), region, outcome.unit, margin, value_SP, sisters)


def judged(
    what: str, value_SP: Floats | None, region: tuple[float, float], unit: Unit, *, margin: float = 0.0
) -> Comparison:
    """A (S, P) table whose spread over seeds no other comparison shares."""
    return Comparison(what, estimate_of(value_SP), region, unit, margin, value_SP)


def _kind(*groups: Group) -> str:
    """Which of `KINDS` a comparison of ``groups`` is of: that of the group whose seeds are expected furthest apart."""
    settings = [next((run.settings for run in group.values()), {}) for group in groups]
    found = {
        HOT: any(one.get("optimizer.lr") == "0.001" for one in settings),
        UNSTABILISED: any(one.get("method.log_ratio") == "none" for one in settings),
        UNBOUNDED: any(one.get("method.name") in ("gspo", "gpg") for one in settings),
    }
    return next((kind for kind, applies in found.items() if applies), OTHERS)


def within(margin: float) -> tuple[float, float]:
    return (-margin, margin)


def within_factor(low: float, high: float) -> tuple[float, float]:
    """The region of a logarithm."""
    return (math.log(low), math.log(high))
