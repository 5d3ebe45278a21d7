"""Puts back what other packages change in this process: some behave as if they owned it."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def process_unchanged(*, but: str = "VLLM_") -> Iterator[None]:
    """Puts back random generators, threads and environment, except variables whose names begin with ``but``.

    Warnings about the insides of other packages stay quiet.
    """
    torch_state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    set_num_threads, num_threads = torch.set_num_threads, torch.get_num_threads()
    environment = dict(os.environ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        torch.set_num_threads = set_num_threads
        if torch.get_num_threads() != num_threads:
            torch.set_num_threads(num_threads)
        for name in os.environ.keys() | environment.keys():
            if not name.startswith(but) and os.environ.get(name) != environment.get(name):
                os.environ.pop(name, None)
                if name in environment:
                    os.environ[name] = environment[name]
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)


@contextlib.contextmanager
def keeping_process_group() -> Iterator[None]:
    """Inside, torch.distributed's default group cannot be destroyed, because the ranks still need it."""
    destroy = torch.distributed.destroy_process_group

    def destroy_others(group: Any = None) -> None:
        if group is not None:
            destroy(group)

    torch.distributed.destroy_process_group = destroy_others
    try:
        yield
    finally:
        torch.distributed.destroy_process_group = destroy
