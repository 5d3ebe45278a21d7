"""The engines that draw responses: ``ENGINES["vllm"]`` is an `EngineKind`, imported when it is asked for.

A new engine is a file with its class and its kind, and a line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quatro.lazy_table import LazyTable

if TYPE_CHECKING:
    from quatro.rollout.engine import EngineKind

ENGINES: LazyTable[type[EngineKind]] = LazyTable(
    {
        "transformers": "quatro.rollout.kinds:Transformers",
        "vllm": "quatro.rollout.kinds:Vllm",
        "replay": "quatro.rollout.kinds:Replay",
    }
)
