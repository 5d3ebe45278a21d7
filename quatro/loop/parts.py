"""The objects that an iteration works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quatro.config import Config
from quatro.loop.timing import Stopwatch
from quatro.policy.base import Policy
from quatro.processes.stop import StopCheck
from quatro.rewards import Reward
from quatro.rollout.engine import Engine
from quatro.rollout.prompts import PromptSet, PromptStream
from quatro.types import Sampling


@dataclass
class Parts:
    """Everything the loop works with; `quatro/launch/assemble.py` makes it."""

    config: Config
    policy: Policy
    tokenizer: Any
    engine: Engine
    stream: PromptStream
    evaluation_prompts: PromptSet | None
    reward: Reward
    sampling: Sampling
    fingerprints: dict[str, str]
    stop: StopCheck
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def perf(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Fields under perf/ of the iteration with these ``metrics``: its times, and the most memory of any rank."""
        perf = self.stopwatch.take(num_tokens=int(metrics["tokens"]), num_passes=int(metrics["inner/passes"]))
        return perf | {"perf/peak_memory_gib": self.policy.world.largest(self.policy.peak_memory_bytes()) / 2**30}

    def close(self) -> None:
        self.reward.close()
        self.engine.close()
