"""QUATRO with a KL radius that is steered, from iteration to iteration, towards a target. Not in the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from quatro.methods.temperature import TemperedQuatro
from quatro.types import Needs

# How far log delta moves in an iteration: +0.2 for 1 % too much entropy, -0.17 for twice the target's KL. Entropy
# needs the strong gain: it falls slowly, hardly rises again, and its rate changes little with delta.
ENTROPY_GAIN = 20.0
KL_GAIN = 0.25
MAX_LOG_STEP = 0.5  # log delta moves no further in one iteration
MAX_SHRINKAGE = 10_000.0  # without `delta_bounds`, steering may divide the configured delta by this

Positive = Annotated[float, Field(gt=0, le=1e6)]


class ScheduledQuatro(TemperedQuatro):
    """QUATRO with a KL radius that may change over the run; ``constant``, the default, is the paper's method."""

    model_config = ConfigDict(title="Quatro")

    delta_schedule: Literal["constant", "target-entropy", "target-kl"] = Field(
        default="constant",
        description="not in the paper: target-entropy and target-kl begin at delta, and change it so that the token "
        "entropy, or the realised KL(new || old) of an iteration, comes to delta_target",
    )
    delta_target: float | None = Field(
        default=None,
        gt=0,
        description="the target: nats of entropy per token, or nats of KL per iteration (null: those of delta)",
    )
    delta_bounds: Annotated[tuple[Positive, Positive], Field(strict=False)] | None = Field(
        default=None,
        description="smallest and largest delta that steering may choose; null: delta / 10,000 and delta",
    )

    @model_validator(mode="after")
    def _schedule_has_what_it_reads(self) -> ScheduledQuatro:
        for key in ("delta_target", "delta_bounds") if self.delta_schedule == "constant" else ():
            if getattr(self, key) is not None:
                raise ValueError(f"delta_schedule constant does not read {key}: leave it out, or set delta_schedule")
        if self.delta_schedule == "target-entropy" and self.delta_target is None:
            raise ValueError("delta_schedule target-entropy needs delta_target: set method.delta_target")
        if self.temperature == "fixed" and self.delta_schedule != "constant":
            raise ValueError(f"temperature fixed does not read delta: leave delta_schedule {self.delta_schedule} out")
        low, high = self._bounds
        if not low <= self.delta <= high:
            raise ValueError(f"delta_bounds must enclose delta: found [{low:g}, {high:g}] and delta {self.delta:g}")
        return self

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.delta_bounds or (self.delta / MAX_SHRINKAGE, self.delta)

    @property
    def min_kl_radius(self) -> float:
        return self.delta if self.delta_schedule == "constant" else self._bounds[0]

    @property
    def needs(self) -> Needs:
        return Needs(realised_kl=self.delta_schedule == "target-kl")

    def at(self, carried: Mapping[str, float]) -> ScheduledQuatro:
        """The same method with the delta that was carried here."""
        delta = carried.get("delta", self.delta)
        return self if delta == self.delta else self.model_copy(update={"delta": delta})

    def carry(self, carried: Mapping[str, float], metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The next delta of a steered schedule; delta stays if the metric is NaN."""
        if self.delta_schedule == "constant":
            return {}
        delta, target = carried.get("delta", self.delta), self.delta_target or self.delta
        if self.delta_schedule == "target-entropy":
            entropy = metrics["entropy/token_mean"]
            return {"delta": steered_to_entropy(delta, entropy=entropy, target=target, bounds=self._bounds)}
        return {"delta": steered_to_kl(delta, kl=metrics["kl/new_old"], target=target, bounds=self._bounds)}


def steered_to_entropy(delta: float, *, entropy: float, target: float, bounds: tuple[float, float]) -> float:
    """The next radius: larger while the entropy is above the target, smaller below it."""
    return _moved(delta, ENTROPY_GAIN * (entropy - target) / target, bounds)


def steered_to_kl(delta: float, *, kl: float, target: float, bounds: tuple[float, float]) -> float:
    """The next radius: smaller after a realised KL above the target, larger after one below it."""
    return _moved(delta, MAX_LOG_STEP if kl <= 0 else KL_GAIN * (math.log(target) - math.log(kl)), bounds)


def _moved(delta: float, log_step: float, bounds: tuple[float, float]) -> float:
    """``delta`` times e^``log_step`` within ``bounds``; as it is where nothing was observed (NaN)."""
    if math.isnan(log_step):
        return delta
    moved = delta * math.exp(min(max(log_step, -MAX_LOG_STEP), MAX_LOG_STEP))
    return min(max(moved, bounds[0]), bounds[1])
