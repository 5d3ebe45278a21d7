"""Which kernel of CUDA `scaled_dot_product_attention` takes, and what that one reads, keeps and computes."""

# Axes: B rows, H query heads, T queries, S keys.
from typing import Any

import torch
from torch import Tensor

from quatro.rehearse.device import Device

plain_attention: Any = torch._C._nn.scaled_dot_product_attention


def kernel_of(query: Tensor, key: Tensor, mask: Tensor | None, **options: Any) -> str:
    """The kernel on a Hopper card, by the conditions of PyTorch 2.13's sdp_utils.cpp (read there, not measured).

    Flash attention is for 16 bits, no mask and 256 numbers a head at most; the memory-efficient kernel takes no grouped
    queries. What neither takes falls to plain mathematics, which holds all B x H x T x S scores.
    """
    is_16_bit, is_square = query.dtype in (torch.bfloat16, torch.float16), query.shape[2] == key.shape[2]
    if is_16_bit and mask is None and query.shape[3] <= 256 and (is_square or not options.get("is_causal")):
        return "cudnn" if torch.backends.cuda.cudnn_sdp_enabled() else "flash"
    if options.get("enable_gqa") or query.shape[1] != key.shape[1] or query.dtype == torch.float64:
        return "math"
    return "math" if mask is not None and mask.requires_grad else "efficient"


def attend(
    device: Device, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any
) -> Tensor:
    """As PyTorch's function; its one launch stands for all kernels of the choice."""
    kernel = kernel_of(query, key, attn_mask, **options)
    inputs = [one for one in (query, key, value, attn_mask) if one is not None]
    num_scores = query.shape[:3].numel() * key.shape[2]
    # Plain mathematics writes the scores, masks them, takes the softmax in float32, casts and reads them.
    num_bytes = num_scores * (16 + 4 * query.element_size()) if kernel == "math" else 0
    num_bytes += sum(one.numel() * one.element_size() for one in [query, *inputs])
    flops = 4 * num_scores * query.shape[3] // (2 if options.get("is_causal") else 1)
    device.launch(num_bytes, flops, is_16_bit=query.element_size() == 2)
    with device.having(is_counting=False):
        if query.is_meta:
            return _Hollow.apply(query, key, value, device, kernel, flops)  # type: ignore[no-any-return, no-untyped-call]
        return plain_attention(query, key, value, attn_mask, **options)  # type: ignore[no-any-return]


class _Hollow(torch.autograd.Function):
    """Shapes and memory alone. A fused kernel keeps its inputs, its output and a number a query; mathematics scores."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, device: Device, kernel: str, flops: int) -> Tensor:
        out = torch.empty_like(query)
        kept_shape = (*query.shape[:3], key.shape[2]) if kernel == "math" else query.shape[:3]
        ctx.save_for_backward(query, key, value, out, query.new_empty(kept_shape, dtype=torch.float32))
        ctx.device, ctx.flops = device, flops
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, _, _ = ctx.saved_tensors
        num_bytes = 4 * sum(one.numel() * one.element_size() for one in (query, key))
        ctx.device.launch(num_bytes, 5 * ctx.flops // 2, is_16_bit=query.element_size() == 2)
        with ctx.device.having(is_counting=False):
            return *map(torch.empty_like, (query, key, value)), None, None, None
