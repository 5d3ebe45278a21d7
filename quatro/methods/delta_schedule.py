"""The KL radius over a run: schedules over its iterations, and a controller that steers to a target. Experimental."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine"]

# Per iteration, in log delta: 1 % too much entropy is +0.2, twice the target's KL is -0.17. Entropy needs the strong
# gain: it falls slowly, hardly rises again, and its rate changes little with delta.
ENTROPY_GAIN = 20.0
KL_GAIN = 0.25
MAX_LOG_STEP = 0.5  # log delta moves no further in one iteration


def scheduled(schedule: Schedule, start: float, end: float, *, step: int, num_steps: int) -> float:
    """The radius of iteration ``step`` (1 .. ``num_steps``): ``start`` in the first, ``end`` in the last, exactly."""
    progress = (step - 1) / (num_steps - 1) if num_steps > 1 else 0.0
    weight = progress if schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * progress)
    return (1.0 - weight) * start + weight * end


def steered_to_entropy(delta: float, *, entropy: float, target: float, bounds: tuple[float, float]) -> float:
    """The next radius: a larger one while there is entropy to spend, a smaller one below the target."""
    return _moved(delta, ENTROPY_GAIN * (entropy - target) / target, bounds)


def steered_to_kl(delta: float, *, kl: float, target: float, bounds: tuple[float, float]) -> float:
    """The next radius: a smaller one after a realised KL above the target; delta and KL go roughly in step."""
    return _moved(delta, MAX_LOG_STEP if kl <= 0 else KL_GAIN * (math.log(target) - math.log(kl)), bounds)


def _moved(delta: float, log_step: float, bounds: tuple[float, float]) -> float:
    """``delta`` times e^``log_step`` within ``bounds``; as it is where nothing was observed (NaN)."""
    if math.isnan(log_step):
        return delta
    moved = delta * math.exp(min(max(log_step, -MAX_LOG_STEP), MAX_LOG_STEP))
    return min(max(moved, bounds[0]), bounds[1])
