"""The device to compute on, and its free memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evals.errors import MissingError

if TYPE_CHECKING:
    import torch


def find_device(name: str, local_rank: int | None = None) -> torch.device:
    """`auto` is CUDA if there is a device; of several ranks on a machine each takes the one of its number.

    Raises:
        MissingError: `cuda` was asked for and there is none.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingError(
            "device is cuda, and PyTorch sees no CUDA device here; use -s device=cpu, or see `quatro doctor`"
        )
    if name == "cpu" or local_rank is None:
        return torch.device(name)
    if local_rank >= torch.cuda.device_count():
        raise MissingError(
            f"{local_rank + 1} processes or more were started on this machine, and PyTorch sees "
            f"{torch.cuda.device_count()} CUDA devices: start one for each device, or use -s device=cpu"
        )
    return torch.device(name, local_rank)


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


def total_bytes(device: torch.device) -> int | None:
    """Memory of a GPU, used or free; None for a CPU."""
    import torch

    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
