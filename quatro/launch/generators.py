"""The global random generators of Python, numpy and torch.

Nothing in the loop draws from them, but a method of your own may, so a checkpoint holds their states. A reward
function runs in other processes: a run repeats only if the function draws no random numbers.
"""

# ruff: noqa: NPY002 (the global generator of numpy is the point)
from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Generators:
    """All three generators as one part of a run."""

    @staticmethod
    def seed(seed: int) -> None:
        """Seed all three, as every run with this seed begins."""
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {"torch": torch.get_rng_state()}
        if torch.cuda.is_available():
            tensors["cuda"] = torch.cuda.get_rng_state()
        return tensors, {"python": _plain(random.getstate()), "numpy": _plain(np.random.get_state())}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        torch.set_rng_state(tensors["torch"])
        if "cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["cuda"])
        random.setstate(_tuples(plain["python"]))
        np.random.set_state(_tuples(plain["numpy"]))


def _plain(value: Any) -> Any:
    """Nested tuples and arrays as lists, which JSON keeps."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value
