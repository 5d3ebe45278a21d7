"""The device to compute on."""

from __future__ import annotations

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
