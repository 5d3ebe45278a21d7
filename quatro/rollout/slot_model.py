"""Next-token logits of many prefixes, each in a slot of the KV cache, for any decoder-only Hugging Face model."""

# Axes: L rows still drawing, S slots of the KV cache, V vocabulary.
from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evals.errors import UsageError
from quatro.policy.facts import has_plain_head
from quatro.rollout.attention import attending_up_to
from quatro.rollout.kv_cache import Ints, PreallocatedCache

# Prompts go through the model together if the longest has at most so many times the tokens of the shortest, or if they
# are padded with at most so many tokens, which cost less than another forward pass.
MAX_PREFILL_SPREAD = 1.25
MAX_PREFILL_PADDING = 512


class SlotModel:
    """``model`` as it is at the time of a call, on ``device``.

    Raises:
        UsageError: the model has layers that do not keep keys and values.
    """

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model = model
        self.device = device
        layer_types = set(getattr(model.config, "layer_types", None) or ())
        unknown = layer_types - {"full_attention", "sliding_attention", "chunked_attention"}
        if unknown:
            raise UsageError(
                f"model type {model.config.model_type!r} has layers of type {', '.join(sorted(unknown))}, "
                "for which the transformers engine has no cache; set rollout.engine=vllm"
            )
        accepted = inspect.signature(_unwrapped(model).forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keep_last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        # For a tiny model the outer forward is a tenth of a step: call what is inside it.
        self._has_plain_head = has_plain_head(model)

    def new_cache(self, max_slots: int, max_tokens: int) -> PreallocatedCache:
        """An empty cache for slots of at most ``max_tokens`` tokens."""
        return PreallocatedCache(self.model.config.get_text_config().num_hidden_layers, max_slots, max_tokens)

    def prefill(self, prompts: Sequence[Sequence[int]], first_slot: int, cache: PreallocatedCache) -> Tensor:
        """Next-token logits (S, V) after each prompt; slots ``first_slot``, ``first_slot`` + 1, ... then hold them.

        Prompts of similar length go through the model together, padded on the right, where no token sees the padding.
        """
        lengths = np.array([len(ids) for ids in prompts])
        # Without a plain head only the logits of the last position can be asked for: equal lengths only.
        spread, padding = (MAX_PREFILL_SPREAD, MAX_PREFILL_PADDING) if self._has_plain_head else (1.0, 0)
        logits = []
        first = 0
        while first < len(prompts):
            stop = first + 1
            longest = int(lengths[first])
            while stop < len(prompts):
                longer = max(longest, int(lengths[stop]))
                num_padded = longer * (stop + 1 - first) - int(lengths[first : stop + 1].sum())
                if num_padded > padding and longer > spread * lengths[first : stop + 1].min():
                    break
                longest, stop = longer, stop + 1
            input_ids = np.zeros((stop - first, longest), dtype=np.int64)
            for slot, ids in enumerate(prompts[first:stop]):
                input_ids[slot, : len(ids)] = ids
            cache.hold(first_slot + first, stop - first, longest)
            last_S = lengths[first:stop] - 1
            position = np.arange(longest)[None, :]
            logits.append(self._forward(input_ids, position, cache, None if (last_S == longest - 1).all() else last_S))
            first = stop
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def append(self, token_L: Ints, column_L: Ints, slot_L: Ints, num_slots: int, cache: PreallocatedCache) -> Tensor:
        """Next-token logits (S, V) after ``token_L`` of the live rows in columns ``column_L`` of their slots."""
        input_ids = np.zeros((num_slots, 1), dtype=np.int64)
        input_ids[slot_L, 0] = token_L
        column_S = np.full(num_slots, column_L[0])  # a slot without a row may hold anything, where others have room
        column_S[slot_L] = column_L
        columns = cache.append(column_S)
        with attending_up_to(columns):
            return self._forward(input_ids, column_S[:1, None] if columns is None else column_S[:, None], cache)

    def _forward(
        self, input_ids: Ints, position: Ints, cache: PreallocatedCache, last_S: NDArray[np.int64] | None = None
    ) -> Tensor:
        """Next-token logits (S, V) after feeding ``input_ids`` (S, n), or only its columns up to ``last_S``."""
        extra: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if self._takes_positions:
            extra["position_ids"] = torch.from_numpy(position).to(self.device)
        ids = torch.from_numpy(input_ids).to(self.device)
        if self._has_plain_head:
            hidden = self.model.base_model(input_ids=ids, **extra).last_hidden_state
            hidden = hidden[:, -1] if last_S is None else hidden[torch.arange(len(last_S)), torch.from_numpy(last_S)]
            logits_SV: Tensor = self.model.get_output_embeddings()(hidden)
        else:
            logits_SV = self.model(input_ids=ids, **extra, **self._keep_last).logits[:, -1]
        return logits_SV


def _unwrapped(model: Any) -> Any:
    """The Hugging Face model inside DeepSpeed's or DDP's engine and peft's adapter model."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model
