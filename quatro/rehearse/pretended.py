"""`pretended_gpu`: a CUDA device that is not there, while the block runs.

Inside, a tensor made on `cuda`, or moved there, is an ordinary CPU tensor whose storage carries a mark. Python sees
`cuda:0` as its device, and all that is done with it is looked at: by `calls.py` where Python calls PyTorch, by
`kernels.py` where an operation starts. It cannot see how CUDA rounds, what its allocator loses in pieces, streams,
NCCL, kernels that PyTorch does not dispatch, or how long anything takes. Errors in a backward pass come as on a CPU.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _foreach_utils

from quatro.rehearse.calls import Calls
from quatro.rehearse.device import CUDA, Device, Plain, is_on_device
from quatro.rehearse.kernels import Kernels

Names = Iterator[tuple[Any, str, Any]]  # where, which name, what it means
SORTS = "_group_tensors_by_device_and_dtype"


@contextlib.contextmanager
def pretended_gpu(device: Device) -> Iterator[None]:
    """PyTorch with ``device`` as its one CUDA device, whose numbers are the CPU's."""
    calls = Calls(device)
    with contextlib.ExitStack() as replaced:
        for owner, name, value in (*_tensors(device), *_autograd(device, calls)):
            replaced.enter_context(mock.patch.object(owner, name, value))
        # The modes are those of this thread: a derivative on a thread of its own would not be seen.
        with torch.autograd.set_multithreading_enabled(False), Kernels(device), calls:
            yield


def _tensors(device: Device) -> Names:
    def where(tensor: Tensor) -> torch.device:
        with torch._C.DisableTorchFunction():
            found: torch.device = Plain.device.__get__(tensor)
            return CUDA if device.shows_itself and is_on_device(tensor) else found

    plain_deepcopy = torch.Tensor.__deepcopy__

    def deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Any:
        if not is_on_device(tensor):
            return plain_deepcopy(tensor, memo)  # type: ignore[no-untyped-call]
        # PyTorch's own copies the storage, where no mode sees it.
        return memo.setdefault(id(tensor), tensor.detach().clone().requires_grad_(tensor.requires_grad))

    yield torch.Tensor, "device", property(where)
    yield torch.Tensor, "is_cuda", property(is_on_device)
    yield torch.Tensor, "is_cpu", property(lambda tensor: where(tensor).type == "cpu")
    yield torch.Tensor, "__deepcopy__", deepcopy
    for name in ("is_available", "is_bf16_supported"):
        yield torch.cuda, name, lambda *_: True


def _autograd(device: Device, calls: Calls) -> Names:
    """Backward passes, autocast's cache, and lists of weights, which are sorted by the device that Python sees."""
    plain_backward, plain_clear = torch.autograd._engine_run_backward, torch.clear_autocast_cache
    plain_sort = getattr(_foreach_utils, SORTS)

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        # `backward` itself went through the mode, which is off inside; what is computed again needs it.
        with contextlib.nullcontext() if torch._C._len_torch_function_stack() else calls:
            return plain_backward(*args, **kwargs)

    def sort(tensors: Any, with_indices: bool = False) -> dict[Any, Any]:
        found = plain_sort(tensors, with_indices)
        return {(part[0][0].device, dtype): (part, indices) for (_, dtype), (part, indices) in found.items()}

    yield torch.autograd, "_engine_run_backward", run_backward
    yield torch, "clear_autocast_cache", lambda: [forget() for forget in (device.cast_weights.clear, plain_clear)]
    modules = [module for key, module in sys.modules.items() if key.startswith("torch.")]
    yield from ((module, SORTS, sort) for module in modules if vars(module).get(SORTS) is plain_sort)
