"""Engines, policies and rewards by name: what a configuration may say, and the class that answers to it.

A new one is a file and a line here. A class is imported when it is looked up. Methods are in `quatro.methods`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any


class LazyTable(Mapping[str, Any]):
    """``locations[name]`` is ``package.module:Class``; one line more is one name more."""

    def __init__(self, locations: dict[str, str]) -> None:
        self.locations = locations

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self.locations[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    def __contains__(self, name: object) -> bool:
        return name in self.locations


# Each is an `EngineKind` of quatro/rollout/engine.py.
ENGINES = LazyTable(
    {
        "transformers": "quatro.rollout.kinds:Transformers",
        "vllm": "quatro.rollout.kinds:Vllm",
        "replay": "quatro.rollout.kinds:Replay",
    }
)
# Each is a `PolicyKind` of quatro/policy/kinds.py.
POLICIES = LazyTable({"local": "quatro.policy.kinds:Local", "deepspeed": "quatro.policy.kinds:DeepSpeed"})
# Each is a `RegisteredReward` of quatro/rewards/base.py.
REWARDS = LazyTable({"math": "quatro.rewards.math:MathReward", "countdown": "quatro.rewards.countdown:CountdownReward"})
