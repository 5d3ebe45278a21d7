"""What the GPU benchmarks share: the shape of Qwen2.5-1.5B, random weights, the device, how results are kept."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from pathlib import Path
from typing import Any

import torch

SHAPES = {
    "1.5b": {
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "max_position_embeddings": 32_768,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 128,
        "max_position_embeddings": 512,
    },
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small shape, to try the script itself")
    parser.add_argument("--save", type=Path, metavar="FILE", help="append the table to a Markdown file")


def require_device(name: str) -> torch.device:
    """Exits with code 3 where there is no such device."""
    if name == "cuda" and not torch.cuda.is_available():
        print(
            "this benchmark measures a CUDA device, and PyTorch sees none here; to try the script itself, add "
            "--tiny --device cpu",
            file=sys.stderr,
        )
        raise SystemExit(3)
    return torch.device(name)


def random_model(shape: str, device: torch.device, dtype: torch.dtype, **config: Any) -> Any:
    """Weights as an untrained Qwen2 has them, made on the device."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2ForCausalLM(
            Qwen2Config(**{"tie_word_embeddings": True, "bos_token_id": None, **SHAPES[shape], **config})
        )
    return model.to(dtype).eval()


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float:
    """The most memory that tensors took since `reset_peak`; not known of a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else float("nan")


def keep(title: str, table: list[str], file: Path | None) -> None:
    """Prints the table under a line that says what it was measured with, and appends both to ``file``."""
    import transformers

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        f"## {title}",
        "",
        f"{date}, {device}, torch {torch.__version__}, transformers {transformers.__version__}",
        "",
        f"`{' '.join(['python', *sys.argv])}`",
        "",
        *table,
        "",
    ]
    print("\n".join(lines))
    if file is not None:
        with open(file, "a", encoding="utf-8") as out:
            out.write("\n" + "\n".join(lines))
