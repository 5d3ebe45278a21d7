"""Keys and values of a batch of prefixes, and the book of which row holds which prefix.

Rows (rollouts) that have drawn the same tokens so far share one slot of the cache and one row of the forward pass;
they part when they draw different tokens. A slot is copied only then, or to fill the hole left by finished rows, so
all copies together are about one per rollout, which is what expanding the prompt to its rollouts costs anyway.
"""

# Axes: L live rows, S slots.
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

# Below this share of slots in use the holes are filled; above it a move costs more than the dead slot's next forward.
MIN_SHARE_IN_USE = 0.8

Ints = NDArray[np.int64]


class Branching(NamedTuple):
    """``slot_L`` where each live row continues, after copying slots ``source`` to ``target`` (disjoint sets)."""

    slot_L: Ints
    num_slots: int
    source: Ints
    target: Ints


def branch(slot_L: Ints, token_L: Ints, num_slots: int) -> Branching:
    """Gives every distinct (slot, token) its own slot, with few copies, and closes holes when they are many."""
    child_L = (slot_L << 32) | token_L
    order_L = np.argsort(child_L)
    sorted_L = child_L[order_L]
    is_new_L = np.ones(len(child_L), dtype=bool)
    is_new_L[1:] = sorted_L[1:] != sorted_L[:-1]
    child_of_L = np.empty(len(child_L), dtype=np.int64)
    child_of_L[order_L] = np.cumsum(is_new_L) - 1
    parent = sorted_L[is_new_L] >> 32  # ascending, so siblings are neighbours
    is_first = np.ones(len(parent), dtype=bool)
    is_first[1:] = parent[1:] != parent[:-1]
    if is_first.all() and len(parent) >= MIN_SHARE_IN_USE * num_slots:
        return Branching(parent[child_of_L], num_slots, source=parent[:0], target=parent[:0])
    # The result is exactly the slots 0 .. len(parent) - 1. The first child of a parent inside that range stays; all
    # others move to what is free. A free slot has no child at all, so no copy overwrites the source of another.
    stays = is_first & (parent < len(parent))
    is_free = np.ones(len(parent), dtype=bool)
    is_free[parent[stays]] = False
    slot = parent.copy()
    slot[~stays] = np.flatnonzero(is_free)
    return Branching(slot[child_of_L], len(parent), source=parent[~stays], target=slot[~stays])


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values of one attention layer in buffers (max_slots, heads, max_tokens, head_dim), written in place."""

    is_sliding = False

    def __init__(self, max_slots: int, max_tokens: int) -> None:
        super().__init__()
        self.max_slots, self.max_tokens, self.length = max_slots, max_tokens, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            torch.empty((self.max_slots, s.shape[1], self.max_tokens, s.shape[3]), dtype=s.dtype, device=s.device)
            for s in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        num_slots, start = key_states.shape[0], self.length
        self.length += key_states.shape[2]
        self.keys[:num_slots, :, start : self.length] = key_states
        self.values[:num_slots, :, start : self.length] = value_states
        if start == 0:
            return key_states, value_states
        return self.keys[:num_slots, :, : self.length], self.values[:num_slots, :, : self.length]

    def copy_slots(self, source: Tensor, target: Tensor) -> None:
        assert self.keys is not None and self.values is not None
        for buffer in (self.keys, self.values):
            used = buffer[:, :, : self.length]
            used.index_copy_(0, target, used.index_select(0, source))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.max_tokens


class PreallocatedCache(Cache):
    """A layer per attention layer of the model, made when the first forward pass asks for it."""

    def __init__(self, max_slots: int, max_tokens: int) -> None:
        super().__init__(layer_class_to_replicate=lambda: PreallocatedLayer(max_slots, max_tokens))

    def copy_slots(self, source: Ints, target: Ints) -> None:
        if len(source) == 0:
            return
        device = self.layers[0].keys.device
        source_ids, target_ids = torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)
        for layer in self.layers:
            layer.copy_slots(source_ids, target_ids)
