"""How a model is held and updated: ``POLICIES["local"]`` is a `PolicyKind`, imported when it is asked for."""

from __future__ import annotations

from typing import Any

from quatro.lazy_table import LazyTable

POLICIES: LazyTable[Any] = LazyTable(
    {"local": "quatro.policy.kinds:Local", "deepspeed": "quatro.policy.kinds:DeepSpeed"}
)
