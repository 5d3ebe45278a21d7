"""Sizes that depend on the machine. In a configuration each is a number, or `auto` until a run is made."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """Numbers for `SIZE_KEYS`, in their order."""

    microbatch_tokens: int
    rows_at_once: int
    cache_tokens: int


SIZE_KEYS = ("microbatch_tokens", "rollout.rows_at_once", "rollout.cache_tokens")
# A KV cache of 2^17 tokens takes 3.8 GB for Qwen2.5-1.5B in bfloat16 (28 KiB a token).
CPU_SIZES = Sizes(microbatch_tokens=16384, rows_at_once=2048, cache_tokens=1 << 17)
