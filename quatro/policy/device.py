"""The device to compute on, its memory, and what a micro-batch takes of it. Imports no torch at the top."""

from __future__ import annotations

import ctypes
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import MissingError, UsageError
from quatro.config import Config
from quatro.policy.facts import LOGIT_SCALES

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

FLOAT32_BYTES = 4
QK_NORMED = ("qwen3", "qwen3_moe")  # models with a norm of queries and of keys
# Of a GPU's memory the estimate may use this share; the rest is for CUDA, fragmentation and what the estimate leaves
# out.
USED_SHARE = Fraction(9, 10)
LOGITS_SHARE = Fraction(1, 16)  # of the memory may be logits of the rows that are drawn at once
# Tokens of prompts that go through the model at once: there a token takes several times what the cache keeps of it, and
# a GPU is as fast with fewer.
PREFILL_TOKENS = {"cpu": 1 << 15, "cuda": 1 << 13}
LOGIT_BYTES = 18  # per logit, measured over forward and backward: itself, its float32 copy, log-softmax, gradients


def find_device(name: str, local_rank: int | None = None) -> torch.device:
    """`auto` is CUDA if there is a device; of several ranks on a machine each takes the one of its number.

    On CUDA, PyTorch leaves out cuDNN's attention from then on, and in float32 `attention.py` repeats keys.

    Raises MissingError if `cuda` was asked for and there is none.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingError(
            "device is cuda, and PyTorch sees no CUDA device here; use -s device=cpu, or see `quatro doctor`"
        )
    if name == "cuda":
        # cuDNN plans its attention anew for each length, 1.2 ms a layer: decoding took 2 to 4 times as long, and an
        # update 1.3 times (H100, torch 2.11). The other kernels take any length.
        torch.backends.cuda.enable_cudnn_sdp(False)
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        from quatro.policy.attention import attend

        ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
    if name == "cpu" or local_rank is None:
        return torch.device(name)
    if local_rank >= torch.cuda.device_count():
        raise MissingError(
            f"{local_rank + 1} processes or more were started on this machine, and PyTorch sees "
            f"{torch.cuda.device_count()} CUDA devices: start one for each device, or use -s device=cpu"
        )
    return torch.device(name, local_rank)


@contextmanager
def in_fixed_order(config: Config) -> Iterator[None]:
    """Inside, CUDA computes in a fixed order if `deterministic` asks for it; UsageError if PyTorch has none."""
    import torch

    before = torch.get_deterministic_debug_mode()
    if config.deterministic and config.device != "cpu" and torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # it is read at the first product
        torch.set_deterministic_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "eterministic" not in str(error):
            raise
        raise UsageError(f"deterministic: found true, which PyTorch cannot keep here: {error}") from error
    finally:
        torch.set_deterministic_debug_mode(before)


def free_bytes(device: torch.device) -> int | None:
    """Memory that this process can still take on ``device``; of a CPU, that of the machine. None where none tells."""
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return None
    kilobytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kilobytes is None else int(kilobytes) * 1024


def upload(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``. The host does not wait until a GPU has it: it comes from pinned memory."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def total_bytes(device: torch.device) -> int | None:
    """Memory of a GPU, used or free; None for a CPU."""
    import torch

    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def machine_bytes() -> int | None:
    """Memory of this machine, used or free; None where nothing tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def release_freed() -> None:
    """Gives back to the system what the C library keeps of freed memory; only glibc's keeps much, and can."""
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)


@dataclass(frozen=True)
class Footprint:
    """Bytes of a pass: ``per_token`` of activations, ``per_logit_row`` of logits, ``head_gradient`` once.

    Logits are held of ``chunk`` response tokens at once (None: of all).

    D hidden, Q query and K key widths, M of the MLP, V vocabulary, L layers, b bytes a number of the computation:

        per_token       L a + 8 D, a = 24 D + (2 Q + 2 K + 4 M) b, and 2 D more for an input that is cast;
                        and (4 + b) (Q + K) more for norms of queries and keys, 2 (Q - K) b for repeated ones;
                        with gradient checkpointing L 4 D + a + 8 D
        per_logit_row   18 V
        head_gradient   4 V D

    The coefficients of activations were measured on what autograd keeps for Qwen2; other families differ a little.
    """

    per_token: int
    per_logit_row: int
    chunk: int | None
    head_gradient: int

    def activations(self, tokens: int) -> int:
        return tokens * self.per_token

    def logits(self, response_tokens: int) -> int:
        """Of a micro-batch with so many response tokens."""
        rows = response_tokens if self.chunk is None else min(response_tokens, self.chunk)
        return rows * self.per_logit_row + self.head_gradient

    def fitting_tokens(self, num_bytes: int, response_share: Fraction = Fraction(1)) -> int:
        """The largest micro-batch for which ``num_bytes`` suffice; 0 if none."""

        def needed(tokens: int) -> int:
            return self.activations(tokens) + self.logits(int(tokens * response_share))

        most = max(0, num_bytes // self.per_token)
        return max(0, bisect_right(range(most + 1), num_bytes, key=needed) - 1)


def footprint(config: Config, shape: Any, device: torch.device) -> Footprint:
    """What learning as ``config`` says takes on ``device``, for a model of ``shape`` (its configuration)."""
    from quatro.policy.head import chunk_rows

    number = number_bytes(config)
    layers, hidden, vocabulary = shape.num_hidden_layers, shape.hidden_size, shape.vocab_size
    mlp = getattr(shape, "intermediate_size", None) or 4 * hidden
    queries, keys = attention_widths(shape)
    cast_input = 0 if number == FLOAT32_BYTES else number * hidden
    norms = (FLOAT32_BYTES + number) * (queries + keys) * (getattr(shape, "model_type", None) in QK_NORMED)
    kept_keys = queries if device.type == "cuda" and number == FLOAT32_BYTES else keys
    layer = 6 * FLOAT32_BYTES * hidden + cast_input + norms + number * (2 * queries + 2 * kept_keys + 4 * mlp)
    kept = FLOAT32_BYTES * hidden * layers + layer if config.policy.gradient_checkpointing else layer * layers
    is_chunked = not any(getattr(shape, name, None) for name in LOGIT_SCALES)
    return Footprint(
        per_token=kept + 2 * FLOAT32_BYTES * hidden,
        per_logit_row=vocabulary * LOGIT_BYTES,
        chunk=chunk_rows(vocabulary, device) if is_chunked else None,
        head_gradient=FLOAT32_BYTES * vocabulary * hidden if config.policy.lora is None else 0,
    )


def number_bytes(config: Config) -> int:
    """Bytes of a number of the computation."""
    return FLOAT32_BYTES if config.dtype == "float32" else 2


def cache_token_bytes(shape: Any, number: int) -> int:
    """Bytes that a token of the KV cache takes: 2 K for each layer, in numbers of so many bytes."""
    key_width: int = attention_widths(shape)[1]
    return 2 * int(shape.num_hidden_layers) * key_width * number


def drawing_bytes(shape: Any, number: int, num_rows: int, prompt_tokens: int, device_type: str) -> int:
    """What sampling takes beside weights and KV cache: logits of ``num_rows`` rows and prompts on their way.

    A token of a prompt takes 16 D + max(3 M b, 24 Q + 4 K) (counted on Qwen2, Qwen3, Llama; names as in `Footprint`).
    """
    queries, keys = attention_widths(shape)
    hidden: int = shape.hidden_size
    mlp = getattr(shape, "intermediate_size", None) or 4 * hidden
    per_token = 4 * FLOAT32_BYTES * hidden + max(3 * number * mlp, FLOAT32_BYTES * (6 * queries + keys))
    return num_rows * int(shape.vocab_size) * number + min(prompt_tokens, PREFILL_TOKENS[device_type]) * per_token


def drawing_limits(device_bytes: int, room: int, shape: Any, number: int, row_tokens: int) -> tuple[int, int]:
    """Rows drawn at once, of ``row_tokens`` at most, and tokens of their KV cache in ``room`` bytes beside weights."""
    rows = int(LOGITS_SHARE * device_bytes) // (FLOAT32_BYTES * shape.vocab_size)
    kept = cache_token_bytes(shape, number)

    def needed(tokens: int) -> int:  # prompts on their way have room in the cache
        return tokens * kept + drawing_bytes(shape, number, min(rows, tokens // row_tokens), tokens, "cuda")

    return rows, max(0, bisect_right(range(max(0, room // kept) + 1), room, key=needed) - 1)


def attention_widths(shape: Any) -> tuple[int, int]:
    """The widths of all queries and of all keys."""
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    num_keys = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    return shape.num_attention_heads * head_dim, num_keys * head_dim
