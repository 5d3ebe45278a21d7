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
        if torch.is_autocast_enabled(self.device.type):
            # Attention would cast the whole cache at every step; casting what enters it gives the same numbers.
            self.dtype = torch.get_autocast_dtype(self.device.type)
        self.keys, self.values = self._buffer(key_states), self._buffer(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.buffers()
        num_slots, start = key_states.shape[0], self.length
        self.length += key_states.shape[2]
        keys[:num_slots, :, start : self.length] = key_states
        values[:num_slots, :, start : self.length] = value_states
        if start == 0:
            return key_states, value_states
        return keys[:num_slots, :, : self.length], values[:num_slots, :, : self.length]

    def buffers(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def copy_slots(self, source: Tensor, target: Tensor | slice) -> None:
        for buffer in self.buffers():
            used = buffer[:, :, : self.length]
            moved = used.index_select(0, source)
            if isinstance(target, slice):
                used[target] = moved
            else:
                used.index_copy_(0, target, moved)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.max_tokens

    def _buffer(self, states: Tensor) -> Tensor:
        shape = (self.max_slots, states.shape[1], self.max_tokens, states.shape[3])
        return torch.empty(shape, dtype=self.dtype, device=self.device)


class PreallocatedCache(Cache):
    """A `PreallocatedLayer` for each of the model's ``num_layers`` attention layers."""

    def __init__(self, num_layers: int, max_slots: int, max_tokens: int) -> None:
        self.slot_layers = [PreallocatedLayer(max_slots, max_tokens) for _ in range(num_layers)]
        super().__init__(layers=[*self.slot_layers])

    def copy_slots(self, source: Ints, target: Ints) -> None:
        """Slot ``target[i]`` becomes a copy of slot ``source[i]``; no slot is in both, and ``target`` ascends."""
        if len(source) == 0:
            return
        device = self.slot_layers[0].device
        source_ids = torch.from_numpy(source).to(device)
        first, last = int(target[0]), int(target[-1])
        # Targets ascend; those of a growing batch have no gaps, and a block is written twice as fast as single slots.
        is_block = last - first + 1 == len(target)
        where = slice(first, last + 1) if is_block else torch.from_numpy(target).to(device)
        for layer in self.slot_layers:
            layer.copy_slots(source_ids, where)
