"""What benchmarks on random weights share: shapes as that of Qwen2.5-1.5B, ragged prompts, the device's clock."""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from quatro.types import Prompt

_KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "max_position_embeddings"),
)
_NUMBERS = {
    "1.5b": (151_936, 1536, 28, 12, 2, 8960, 32_768),
    "tiny": (512, 64, 2, 4, 2, 128, 512),
    "grouped": (512, 128, 4, 8, 2, 384, 1024),
    "medium": (512, 128, 4, 4, 4, 384, 512),
    "embedded-like": (232, 64, 2, 2, 2, 192, 64),
}
SHAPES = {name: dict(zip(_KEYS, numbers, strict=True)) for name, numbers in _NUMBERS.items()}


@dataclass(frozen=True)
class Case:
    """The model's shape, the batch, and how often a step is timed; ``budgets`` are tokens of a micro-batch."""

    device: torch.device
    shape: str = "1.5b"
    prompts: int = 32
    n: int = 8
    prompt_tokens: tuple[int, int] = (40, 152)
    max_new_tokens: int = 1024
    budgets: tuple[int, ...] = (8192, 16384, 32768, 65536)
    repeats: int = 3

    @property
    def config(self) -> dict[str, int]:
        return SHAPES[self.shape]


def tiny(device: torch.device) -> Case:
    """A case of seconds, to try the scripts themselves."""
    return Case(device, "tiny", 2, 4, (4, 10), 24, (128, 256), 1)


def random_model(case: Case, dtype: torch.dtype, **config: Any) -> Any:
    """Weights as an untrained Qwen2 has them, made on the device, which is emptied of what nothing refers to."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    gc.collect()
    if case.device.type == "cuda":
        torch.cuda.empty_cache()
    torch.manual_seed(0)
    with torch.device(case.device):
        model = Qwen2ForCausalLM(
            Qwen2Config(**{"tie_word_embeddings": True, "bos_token_id": None, **case.config, **config})
        )
    return model.to(dtype).eval()


def random_prompts(vocabulary: int, num_prompts: int, lengths: Sequence[int], first_id: int = 0) -> list[Prompt]:
    """Prompts of ``lengths`` tokens, drawn between both ends, of ids from ``first_id`` to the last of a vocabulary."""
    generator = torch.Generator().manual_seed(0)
    length_Q = torch.randint(lengths[0], lengths[1] + 1, (num_prompts,), generator=generator).tolist()
    ids = [torch.randint(first_id, vocabulary, (n,), generator=generator).tolist() for n in length_Q]
    return [Prompt("random", str(i), "", None, "", tuple(row)) for i, row in enumerate(ids)]


def stop_ids(case: Case, max_new_tokens: int) -> list[int]:
    """Ids that end a response: random weights draw every token about equally often, so as many as make responses a
    third of the limit long on average."""
    return list(range(max(1, 3 * case.config["vocab_size"] // max_new_tokens)))


def clock(device: torch.device) -> float:
    """Seconds, once the device has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float:
    """The most memory that tensors took since `reset_peak`; 0 where it is not known, as on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
