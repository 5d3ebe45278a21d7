"""Log-probabilities from hidden states in chunks: never [tokens, vocabulary] as a whole.

A chunk's logits live only while the chunk is worked on. The backward pass computes them again: one more matrix
product, and memory that depends on neither the micro-batch nor the length of the responses.
"""

# Axes: C response tokens, D hidden units, V vocabulary.
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from quatro import ops

# float32 logits of one chunk. A CPU gains nothing from more than 64 rows of 151,936 entries; a GPU wants matrices
# large enough that reading the head and adding to its gradient do not take longer than the products.
CHUNK_BYTES = {"cpu": 64 * 151_936 * 4, "cuda": 1 << 29}


def chunk_rows(vocabulary: int, device: torch.device | str) -> int:
    """Response tokens whose logits are held at once on ``device``."""
    return max(1, CHUNK_BYTES.get(torch.device(device).type, CHUNK_BYTES["cuda"]) // (4 * vocabulary))


def response_logp(
    head: torch.nn.Module,
    hidden_CD: Tensor,
    target_C: Tensor,
    *,
    vocabulary: int,
    temperature: float,
    need_entropy: bool,
    entropy_grad: bool = False,
    max_rows: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`ops.logp_and_entropy` of ``head(hidden_CD)``, at most ``max_rows`` rows (default `chunk_rows`) at a time.

    Values and gradients are those of the whole matrix; up to ``max_rows`` tokens it is the whole matrix. Under
    autocast a chunk computes in its format, and the head's gradient adds up in that of the weights.
    """
    options: dict[str, Any] = {"temperature": temperature, "need_entropy": need_entropy, "entropy_grad": entropy_grad}
    max_rows = chunk_rows(vocabulary, hidden_CD.device) if max_rows is None else max_rows
    if len(target_C) <= max_rows:
        return ops.logp_and_entropy(head(hidden_CD), target_C, **options)
    # A module that is more than a matrix (an adapter, a shard gathered by hooks) is called as it is.
    run = _by_linear if type(head) is torch.nn.Linear and not hasattr(head.weight, "ds_id") else _by_module
    return run(head, hidden_CD, target_C, max_rows, options)


def _by_module(
    head: torch.nn.Module, hidden_CD: Tensor, target_C: Tensor, max_rows: int, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    def chunk(hidden_CD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor | None]:
        return ops.logp_and_entropy(head(hidden_CD), target_C, **options)

    pairs = zip(hidden_CD.split(max_rows), target_C.split(max_rows), strict=True)
    # Without a gradient there is nothing to compute again, and `checkpoint` only calls the function.
    parts = [checkpoint(chunk, *pair, use_reentrant=False, preserve_rng_state=False) for pair in pairs]
    entropies = [entropy for _, entropy in parts if entropy is not None]
    return torch.cat([logp for logp, _ in parts]), torch.cat(entropies) if entropies else None


def _by_linear(
    head: torch.nn.Module, hidden_CD: Tensor, target_C: Tensor, max_rows: int, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    logp_C, entropy_C = _ChunkedLinear.apply(hidden_CD, head.weight, head.bias, target_C, max_rows, options)
    return logp_C, entropy_C


class _ChunkedLinear(torch.autograd.Function):
    """logp_c = z_t / T - logsumexp(z / T) and entropy_c = -sum p log p (T = 1), z = W h + b, chunk by chunk.

    d logp_c / d z = (1[t] - softmax(z / T)) / T and d entropy_c / d z = -p (log p + entropy_c).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_CD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_C: Tensor,
        max_rows: int,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor | None]:
        device = hidden_CD.device.type
        is_autocast = torch.is_autocast_enabled(device)
        ctx.dtype = torch.get_autocast_dtype(device) if is_autocast else hidden_CD.dtype
        ctx.max_rows, ctx.temperature, ctx.hidden_dtype = max_rows, options["temperature"], hidden_CD.dtype
        need_entropy, entropy_grad = options["need_entropy"], options["entropy_grad"]
        ctx.entropy_grad = entropy_grad and need_entropy
        with torch.autocast(device, enabled=False):
            hidden, weight, bias = (_cast(one, ctx.dtype) for one in (hidden_CD, weight_VD, bias_V))
            parts = [
                ops.logp_and_entropy(
                    F.linear(hidden[rows], weight, bias), target_C[rows], **options | {"entropy_grad": False}
                )
                for rows in _slices(len(target_C), max_rows)
            ]
        entropy_C = torch.cat([entropy for _, entropy in parts if entropy is not None]) if need_entropy else None
        ctx.save_for_backward(hidden, weight_VD, bias_V, target_C, entropy_C if ctx.entropy_grad else None)
        if entropy_C is not None and not entropy_grad:
            ctx.mark_non_differentiable(entropy_C)
        return torch.cat([logp for logp, _ in parts]), entropy_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp_C: Tensor, grad_entropy_C: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_CD, weight_VD, bias_V, target_C, entropy_C = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        grad_hidden_CD = torch.empty_like(hidden_CD, dtype=ctx.hidden_dtype) if needs_hidden else None
        summed = torch.promote_types(weight_VD.dtype, torch.float32)  # where gradients of many chunks add up
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=summed) if needs_weight else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=summed) if needs_bias else None
        with torch.autocast(hidden_CD.device.type, enabled=False):
            weight, bias = _cast(weight_VD, ctx.dtype), _cast(bias_V, ctx.dtype)
            for rows in _slices(len(target_C), ctx.max_rows):
                hidden = hidden_CD[rows]
                logits_CV = ops.at_least_float32(F.linear(hidden, weight, bias))
                grad_CV = _logp_gradient(
                    logits_CV, target_C[rows], grad_logp_C[rows] / ctx.temperature, ctx.temperature
                )
                if entropy_C is not None and grad_entropy_C is not None:
                    _add_entropy_gradient(grad_CV, logits_CV, entropy_C[rows], grad_entropy_C[rows])
                grad_CV = grad_CV.to(ctx.dtype)
                if grad_hidden_CD is not None:
                    grad_hidden_CD[rows] = grad_CV @ weight
                if grad_weight_VD is not None and grad_weight_VD.dtype == ctx.dtype:
                    grad_weight_VD.addmm_(grad_CV.T, hidden)
                elif grad_weight_VD is not None:
                    grad_weight_VD += grad_CV.T @ hidden
                if grad_bias_V is not None:
                    grad_bias_V += grad_CV.sum(0, dtype=grad_bias_V.dtype)
        grad_weight_VD, grad_bias_V = _cast(grad_weight_VD, weight_VD.dtype), _cast(grad_bias_V, weight_VD.dtype)
        return grad_hidden_CD, grad_weight_VD, grad_bias_V, None, None, None


def _logp_gradient(logits_CV: Tensor, target_C: Tensor, scale_C: Tensor, temperature: float) -> Tensor:
    """scale * (1[target] - softmax(logits / temperature)), a new matrix."""
    scaled_CV = logits_CV if temperature == 1.0 else logits_CV / temperature
    grad_CV = scaled_CV.softmax(-1).mul_(-scale_C[:, None])
    grad_CV[torch.arange(len(target_C), device=target_C.device), target_C] += scale_C
    return grad_CV


def _add_entropy_gradient(grad_CV: Tensor, logits_CV: Tensor, entropy_C: Tensor, scale_C: Tensor) -> None:
    all_logp_CV = logits_CV.log_softmax(-1)
    grad_CV.addcmul_(all_logp_CV.exp().mul_(scale_C[:, None]), all_logp_CV.add_(entropy_C[:, None]), value=-1.0)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return None if value is None else value.to(dtype)


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, length, step)]
