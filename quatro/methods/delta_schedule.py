"""QUATRO with a KL radius that changes from iteration to iteration, by plan or towards a target. Not in the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from quatro.methods.scheduled import Scheduled
from quatro.methods.temperature import TemperedQuatro

Schedule = Literal["linear", "cosine"]

# How far log delta moves in an iteration: +0.2 for 1 % too much entropy, -0.17 for twice the target's KL. Entropy
# needs the strong gain: it falls slowly, hardly rises again, and its rate changes little with delta.
ENTROPY_GAIN = 20.0
KL_GAIN = 0.25
MAX_LOG_STEP = 0.5  # log delta moves no further in one iteration
MAX_SHRINKAGE = 10_000.0  # without `delta_bounds`, steering may divide the configured delta by this

Positive = Annotated[float, Field(gt=0)]


class ScheduledQuatro(TemperedQuatro, Scheduled):
    """QUATRO with a KL radius that may change over the run; ``constant``, the default, is the paper's method."""

    model_config = ConfigDict(title="Quatro")

    delta_schedule: Literal["constant", "linear", "cosine", "target-entropy", "target-kl"] = Field(
        default="constant",
        description="experimental, not in the paper: linear and cosine change delta to delta_end over the iterations "
        "of the run; target-entropy and target-kl begin at delta, and change it so that the token entropy, "
        "or the realised KL(new || old) of an iteration, comes to delta_target",
    )
    delta_end: float | None = Field(
        default=None, gt=0, description="delta of the last iteration, in nats; for linear and cosine"
    )
    delta_target: float | None = Field(
        default=None, gt=0, description="the target: nats of entropy per token, or nats of KL per iteration"
    )
    delta_bounds: Annotated[tuple[Positive, Positive], Field(strict=False)] | None = Field(
        default=None,
        description="smallest and largest delta that steering may choose; null: delta / 10,000 and delta",
    )

    @model_validator(mode="after")
    def _schedule_has_what_it_reads(self) -> ScheduledQuatro:
        schedule = self.delta_schedule
        is_steered = schedule in ("target-entropy", "target-kl")
        for key, is_read in {"delta_end": schedule in ("linear", "cosine"), "delta_target": is_steered}.items():
            if is_read and getattr(self, key) is None:
                raise ValueError(f"delta_schedule {schedule} needs {key}: set method.{key}")
            if not is_read and getattr(self, key) is not None:
                raise ValueError(f"delta_schedule {schedule} does not read {key}: leave it out, or set delta_schedule")
        if self.temperature == "fixed" and schedule != "constant":
            raise ValueError(f"temperature fixed does not read delta: leave delta_schedule {schedule} out")
        if self.delta_bounds is not None and not is_steered:
            raise ValueError(f"delta_schedule {schedule} does not read delta_bounds: leave it out")
        low, high = self._bounds
        if not low <= self.delta <= high:
            raise ValueError(f"delta_bounds must enclose delta: found [{low:g}, {high:g}] and delta {self.delta:g}")
        return self

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.delta_bounds or (self.delta / MAX_SHRINKAGE, self.delta)

    @property
    def min_kl_radius(self) -> float:
        if self.delta_target is not None:
            return self._bounds[0]
        return min(self.delta, self.delta_end or self.delta)

    @property
    def needs_audit(self) -> bool:
        return self.delta_schedule == "target-kl"

    @property
    def needs_fixed_steps(self) -> bool:
        return self.delta_schedule in ("linear", "cosine")

    def at(self, step: int, *, num_steps: int, carried: Mapping[str, float]) -> ScheduledQuatro:
        """The same method with the delta of iteration ``step``."""
        delta = carried.get("delta", self.delta)
        if self.delta_schedule in ("linear", "cosine"):
            assert self.delta_end is not None
            delta = scheduled(self.delta_schedule, self.delta, self.delta_end, step=step, num_steps=num_steps)
        return self if delta == self.delta else self.model_copy(update={"delta": delta})

    def carry(self, carried: Mapping[str, float], metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The next delta of a steered schedule; delta stays if the metric is NaN."""
        delta, target = carried.get("delta", self.delta), self.delta_target
        if target is None:
            return {}
        if self.delta_schedule == "target-entropy":
            entropy = metrics["entropy/token_mean"]
            return {"delta": steered_to_entropy(delta, entropy=entropy, target=target, bounds=self._bounds)}
        return {"delta": steered_to_kl(delta, kl=metrics["kl/new_old"], target=target, bounds=self._bounds)}


def scheduled(schedule: Schedule, start: float, end: float, *, step: int, num_steps: int) -> float:
    """The radius of iteration ``step`` (1 .. ``num_steps``): ``start`` in the first, ``end`` in the last, exactly."""
    progress = (step - 1) / (num_steps - 1) if num_steps > 1 else 0.0
    weight = progress if schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * progress)
    return (1.0 - weight) * start + weight * end


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
