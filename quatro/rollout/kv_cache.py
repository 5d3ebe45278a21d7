"""Keys and values of a batch of prefixes: which row holds which prefix, and attention of one new token in each.

Rows (rollouts) that have drawn the same tokens so far share one slot of the cache and one row of the forward pass;
they part when they draw different tokens. A slot is copied only then, or to fill the hole left by finished rows, so
all copies together are about one per rollout, which is what expanding the prompt to its rollouts costs anyway.

The slots hold different numbers of tokens. transformers asks two tables for the mask of a layer and for its attention.
Inside `attending_up_to` both hold what is right for such slots: a model's own kinds of layers (full, sliding, chunked)
are masked at the position of each slot's token, and grouped queries meet keys and values as they lie in the cache. With
a mask, transformers' own function would first repeat keys and values for every query head, which costs more than the
rest of a decoding step.
"""

# Axes: L live rows, S slots, H query heads, K key and value heads, G = H / K query heads that share one, T tokens,
# D numbers a head.
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from evals.errors import UsageError
from quatro.policy.device import upload

# Below this share of slots in use the holes are filled; above it a move costs more than the dead slot's next forward.
MIN_SHARE_IN_USE = 0.8
# On a CPU, which has no other use for a large call, neighbouring slots are attended to up to the longest of them: as
# many slots at least, and as many columns must be saved to be worth a call.
SLOTS_OF_PART = 32
MIN_COLUMNS_SAVED = 32

Ints = NDArray[np.int64]


def branch(slot_L: Ints, token_L: Ints, num_slots: int, *, is_dense: bool = False) -> tuple[Ints, int, Ints, Ints]:
    """Gives every distinct (slot, token) its own slot, with few copies, and closes holes when they are many.

    ``(slot_L, num_slots, source, target)``: where each live row continues among ``num_slots``, after copying slots
    ``source`` to ``target`` (disjoint sets). ``is_dense`` asks for no holes at all.
    """
    is_filled = len(slot_L) >= (1.0 if is_dense else MIN_SHARE_IN_USE) * num_slots
    if is_filled and np.bincount(slot_L, minlength=1).max() <= 1:  # each row has a slot of its own already
        return slot_L, num_slots, slot_L[:0], slot_L[:0]
    child, child_of_L = np.unique((slot_L << 32) | token_L, return_inverse=True)
    parent = child >> 32  # ascending, so siblings are neighbours
    is_first = np.ones(len(parent), dtype=bool)
    is_first[1:] = parent[1:] != parent[:-1]
    if is_first.all() and len(parent) >= (1.0 if is_dense else MIN_SHARE_IN_USE) * num_slots:
        return parent[child_of_L], num_slots, parent[:0], parent[:0]
    # The result is exactly the slots 0 .. len(parent) - 1. The first child of a parent inside that range stays; all
    # others move to what is free. A free slot has no child at all, so no copy overwrites the source of another.
    stays = is_first & (parent < len(parent))
    is_free = np.ones(len(parent), dtype=bool)
    is_free[parent[stays]] = False
    slot = parent.copy()
    slot[~stays] = np.flatnonzero(is_free)
    return slot[child_of_L], len(parent), parent[~stays], slot[~stays]


@dataclass(frozen=True)
class _Place:
    """Where the next forward pass writes: slots ``first`` up to ``stop``, columns ``start`` up to ``end``.

    ``column_S`` is where the one token of each of ``slot_S`` goes, if not all go to column ``start``.
    """

    first: int
    stop: int
    start: int
    end: int
    slot_S: Tensor | None = None
    column_S: Tensor | None = None


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values of one attention layer in buffers (max_slots, heads, max_tokens, head_dim), written in place."""

    is_sliding = False

    def __init__(self, max_slots: int, max_tokens: int) -> None:
        super().__init__()
        self.max_slots, self.max_tokens = max_slots, max_tokens
        self.place = _Place(0, 0, 0, 0)

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
        place = self.place
        seen = []
        for buffer, states in zip(self.buffers(), (key_states, value_states), strict=True):
            slots = buffer[place.first : place.stop, :, : place.end]
            if place.column_S is None:
                slots[:, :, place.start :] = states
            else:
                slots[place.slot_S, :, place.column_S] = states[:, :, 0].to(self.dtype)
            seen.append(slots)
        # A prompt attends to itself as the model computed it, before any cast.
        return (key_states, value_states) if place.start == 0 else (seen[0], seen[1])

    def buffers(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def copy_slots(self, source: Tensor, target: Tensor | slice, num_tokens: int) -> None:
        for buffer in self.buffers():
            used = buffer[:, :, :num_tokens]
            moved = used.index_select(0, source)
            if isinstance(target, slice):
                used[target] = moved
            else:
                used.index_copy_(0, target, moved)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.place.end, 0

    def get_seq_length(self) -> int:
        return self.place.start

    def get_max_length(self) -> int:
        return self.max_tokens

    def _buffer(self, states: Tensor) -> Tensor:
        shape = (self.max_slots, states.shape[1], self.max_tokens, states.shape[3])
        if self.device.type != "cpu":
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        # Zeros, because a masked NaN is still one. Those of numpy take no memory until something is written there.
        num_bytes = math.prod(shape) * self.dtype.itemsize
        return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(self.dtype).view(shape)


class PreallocatedCache(Cache):
    """A `PreallocatedLayer` for each of the model's ``num_layers`` attention layers.

    Each slot begins in column 0 and has its own length. Before a forward pass `hold` or `append` says what it adds.
    """

    def __init__(self, num_layers: int, max_slots: int, max_tokens: int) -> None:
        self.slot_layers = [PreallocatedLayer(max_slots, max_tokens) for _ in range(num_layers)]
        super().__init__(layers=[*self.slot_layers])

    def hold(self, first: int, num_slots: int, num_tokens: int) -> None:
        """The next forward pass begins slots ``first``, ``first`` + 1, ... with ``num_tokens`` tokens each."""
        self._put(_Place(first, first + num_slots, 0, num_tokens))

    def append(self, column_S: Ints) -> Tensor | None:
        """The next forward pass adds a token to each slot 0, 1, ..., in column ``column_S[slot]``.

        Returns ``column_S`` on the device of the keys, or None if all columns are the same.
        """
        end = int(column_S.max()) + 1
        if (column_S == end - 1).all():
            self._put(_Place(0, len(column_S), end - 1, end))
            return None
        columns = upload(column_S, self.slot_layers[0].device)
        self._put(_Place(0, len(column_S), end - 1, end, torch.arange(len(columns), device=columns.device), columns))
        return columns

    def copy_slots(self, source: Ints, target: Ints, num_tokens: int) -> None:
        """Slot ``target[i]`` becomes a copy of the first ``num_tokens`` columns of slot ``source[i]``.

        No slot is in both, and ``target`` ascends.
        """
        if len(source) == 0:
            return
        device = self.slot_layers[0].device
        source_ids = upload(source, device)
        first, last = int(target[0]), int(target[-1])
        # Targets ascend; those of a growing batch have no gaps, and a block is written twice as fast as single slots.
        is_block = last - first + 1 == len(target)
        where = slice(first, last + 1) if is_block else upload(target, device)
        for layer in self.slot_layers:
            layer.copy_slots(source_ids, where, num_tokens)

    def _put(self, place: _Place) -> None:
        for layer in self.slot_layers:
            layer.place = place


@contextmanager
def attending_up_to(column_S: Tensor | None) -> Iterator[None]:
    """Inside, a forward pass of one token a slot attends to columns 0 .. ``column_S[s]`` of slot s, its own being last.

    None means that it is the same column in every slot, and then the model makes its own masks. The tables are put back
    afterwards, whatever happens.

    Raises UsageError if the slots differ, and the model made no mask by the tables.
    """
    slots = _Slots(column_S)
    entries: list[tuple[Any, str, Callable[..., Any]]] = [(ALL_ATTENTION_FUNCTIONS, "sdpa", slots.attend)]
    if column_S is not None:
        entries += [
            (ALL_MASK_ATTENTION_FUNCTIONS, "sdpa", slots.bool_mask),
            (ALL_MASK_ATTENTION_FUNCTIONS, "eager", slots.added_mask),
        ]
    before = [table[name] for table, name, _ in entries]
    try:
        for table, name, function in entries:
            table[name] = function
        yield
    finally:
        for (table, name, _), function in zip(entries, before, strict=True):
            table[name] = function
    if column_S is not None and not slots.were_masked:
        raise UsageError(
            "the model makes attention masks in a way of its own, so the transformers engine cannot decode prompts of "
            "different lengths together; set rollout.engine=vllm"
        )


class _Slots:
    """What the layers of one forward pass ask for; layers of one kind share a mask."""

    def __init__(self, column_S: Tensor | None) -> None:
        self.column_S = column_S
        self.were_masked = False
        self._bias: tuple[Tensor, Tensor] | None = None
        self._plain = ALL_ATTENTION_FUNCTIONS["sdpa"]
        self._parts = [] if column_S is None or column_S.device.type != "cpu" else _parts(column_S.numpy())

    def bool_mask(self, *, kv_length: int, mask_function: Callable[..., Tensor], **kwargs: Any) -> Tensor:
        """True (S, 1, 1, T) where the layers of ``mask_function``, a function of positions, look."""
        assert self.column_S is not None
        self.were_masked = True
        device = self.column_S.device
        slot = torch.arange(len(self.column_S), device=device)[:, None, None, None]
        head, key = torch.zeros(1, dtype=torch.int64, device=device), torch.arange(kv_length, device=device)
        return mask_function(slot, head, self.column_S[:, None, None, None], key)

    def added_mask(self, *, dtype: torch.dtype, **kwargs: Any) -> Tensor:
        """0 where the layers look, the lowest number elsewhere."""
        return _as_bias(self.bool_mask(**kwargs), dtype, torch.finfo(dtype).min)

    def attend(
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attention (S, 1, H, D) of ``query`` (S, H, 1, D) as transformers' sdpa has it, without repeated keys."""
        num_slots, num_heads, num_tokens, size = query.shape
        is_of_slots = num_tokens == 1 and (attention_mask is None or attention_mask.shape[1:3] == (1, 1))
        if not is_of_slots or kwargs.get("position_bias") is not None:
            attended: tuple[Tensor, None] = self._plain(module, query, key, value, attention_mask, **kwargs)
            return attended
        grouped_SKGD = query.reshape(num_slots, key.shape[1], num_heads // key.shape[1], size)
        bias = None if attention_mask is None else self._bias_of(attention_mask, query.dtype)
        attention = partial(scaled_dot_product_attention, scale=kwargs.get("scaling"))
        if bias is None or len(self._parts) < 2:
            out_SKGD = attention(grouped_SKGD, key, value, attn_mask=bias)
        else:
            out_SKGD = torch.cat(
                [
                    attention(grouped_SKGD[at], key[at, :, :end], value[at, :, :end], attn_mask=bias[at, :, :, :end])
                    for at, end in self._parts
                ]
            )
        return out_SKGD.reshape(num_slots, 1, num_heads, value.shape[-1]), None

    def _bias_of(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """The numbers that torch would make of a bool mask again in every layer."""
        if mask.dtype != torch.bool:
            return mask
        if self._bias is None or self._bias[0] is not mask:
            self._bias = (mask, _as_bias(mask, dtype, -torch.inf))
        return self._bias[1]


def _parts(column_S: NDArray[np.int64]) -> list[tuple[slice, int]]:
    """Runs of slots, and the end of the columns that each run looks at."""
    parts: list[tuple[slice, int]] = []
    for first in range(0, len(column_S), SLOTS_OF_PART):
        part = slice(first, min(first + SLOTS_OF_PART, len(column_S)))
        end = int(column_S[part].max()) + 1
        if parts and abs(end - parts[-1][1]) < MIN_COLUMNS_SAVED:
            before, other = parts.pop()
            part, end = slice(before.start, part.stop), max(end, other)
        parts.append((part, end))
    return parts


def _as_bias(mask: Tensor, dtype: torch.dtype, hidden: float) -> Tensor:
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, hidden)
