"""Engines, policies and rewards by name: what a configuration may say, and the class behind each name.

To add one, write its file and a line here; the class is imported when its name is looked up. A reward needs `check`
and `open`, and says which options and limits it takes (`quatro/rewards/base.py`; `countdown.py` is a short example).
Methods have a table of their own, `quatro/methods/__init__.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any


class LazyTable(Mapping[str, Any]):
    """A mapping from a name to a class, given as ``package.module:Class`` and imported when it is looked up."""

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
REWARDS = LazyTable(
    {
        "math": "quatro.rewards.math:MathReward",
        "countdown": "quatro.rewards.countdown:CountdownReward",
        "countdown-distance": "quatro.rewards.countdown:DistanceReward",
        "code": "quatro.rewards.code:CodeReward",
        "length": "quatro.rewards.shape:LengthReward",
        "format": "quatro.rewards.shape:FormatReward",
        "model": "quatro.policy.reward_model:ModelReward",
        "sum": "quatro.rewards.sum:SumReward",
    }
)
