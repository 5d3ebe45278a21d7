"""Attention of one new token in each of many slots that hold different numbers of tokens.

transformers asks two tables for the mask of a layer and for its attention. Inside `attending_up_to` both hold what is
right for such slots: a model's own kinds of layers (full, sliding, chunked) are masked at the position of each slot's
token, and grouped queries meet keys and values as they lie in the cache. With a mask, transformers' own function would
first repeat keys and values for every query head, which costs more than the rest of a decoding step.
"""

# Axes: S slots, H query heads, K key and value heads, G = H / K query heads that share one, T tokens, D numbers a head.
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from evals.errors import UsageError

# On a CPU, which has no other use for a large call, neighbouring slots are attended to up to the longest of them: as
# many slots at least, and as many columns must be saved to be worth a call.
SLOTS_OF_PART = 32
MIN_COLUMNS_SAVED = 32


@contextmanager
def attending_up_to(column_S: Tensor | None) -> Iterator[None]:
    """Inside, a forward pass of one token a slot attends to columns 0 .. ``column_S[s]`` of slot s, its own being last.

    None means that it is the same column in every slot, and then the model makes its own masks. The tables are put back
    afterwards, whatever happens.

    Raises:
        UsageError: the slots differ, and the model made no mask by the tables.
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
