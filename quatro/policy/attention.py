"""Attention in float32 on a GPU, where queries that share keys have them repeated."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    """As transformers' sdpa, for whose grouped queries CUDA in float32 only has the kernel that holds all scores."""
    num_sharing = query.shape[1] // key.shape[1]
    is_float32 = key.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")
    if num_sharing > 1 and key.is_cuda and is_float32 and options.get("cache") is None:
        key, value = (repeat_kv(one, num_sharing) for one in (key, value))
        module = SimpleNamespace(is_causal=getattr(module, "is_causal", True))  # which shares no keys
    return sdpa_attention_forward(module, query, key, value, mask, **options)
