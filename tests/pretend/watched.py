"""`pretended_gpu` for tests: a pretended device that also says what CUDA would refuse, where, and what it was asked.

It has as much memory as its card, so that memory may run out.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from quatro.rehearse import attention, calls, pretended
from quatro.rehearse.device import H100, Card, Device, Phase, Plain, is_on_device, place_of
from quatro.rehearse.kernels import INDEXING, Call, Kernels

HERE, TORCH = Path(attention.__file__).parent, str(Path(torch.__file__).parent)
# A number of the CPU is an argument of these kernels, as of all that work point by point.
TAKING_NUMBERS = {"where", "masked_fill", "masked_fill_", "fill_", "lerp", "lerp_"}


@dataclass
class WatchedPhase(Phase):
    """A site is a line of code, as `quatro/loop/learn.py:70`.

    ``bytes`` are what kernels read and write if nothing stays in a cache, ``flops`` those of products and attention,
    ``attention`` the kernels that it took, and ``waits`` of the host for the device go by kind and site.
    """

    bytes: int = 0
    flops: int = 0
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)  # what CUDA would refuse, and the site
    attention: Counter[str] = field(default_factory=Counter)
    shapes: set[tuple[int, ...]] = field(default_factory=set)  # of all tensors that were made


class WatchedDevice(Device):
    """With ``strict`` a fault raises; otherwise it is only counted."""

    def __init__(self, card: Card, *, strict: bool, hollow: bool) -> None:
        super().__init__(card, hollow=hollow)
        self.strict = strict
        self.phases = defaultdict(WatchedPhase)
        self.begin("start")

    def total(self, name: Literal["waits", "faults", "attention"]) -> Counter[Any]:
        return sum((getattr(phase, name) for phase in self.phases.values()), Counter())

    def wait(self, kind: Any) -> None:
        super().wait((kind, site()))

    def fault(self, what: str, error: Exception | None = None) -> None:
        """CUDA would refuse this: with ``error``, or for operands on two devices."""
        if self.is_counting:
            self.now.faults[what, site()] += 1
        if error is not None or (self.is_counting and self.strict):
            said = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
            raise error or RuntimeError(f"{said} (pretended: {what})")

    def launch(self, num_bytes: int, flops: int = 0, *, is_16_bit: bool = True) -> None:
        if self.is_counting:
            self.now.bytes += num_bytes
            self.now.flops += flops
        super().launch(num_bytes, flops, is_16_bit=is_16_bit)

    def put(self, tensor: Tensor) -> Tensor:
        if not is_on_device(tensor):
            with torch._C.DisableTorchFunction():
                num_bytes, free = Plain.untyped_storage(tensor).nbytes(), self.card.memory - self.held
            if num_bytes > free:
                said = f"Tried to allocate {num_bytes / 2**20:.2f} MiB, and {free / 2**20:.2f} MiB is free"
                raise torch.OutOfMemoryError(f"CUDA out of memory. {said} (pretended)")
            self.now.shapes.add(tuple(tensor.shape))
        return super().put(tensor)


class WatchedKernels(Kernels):
    def run(self, call: Call) -> Any:
        device, is_ours = self.device, any(map(is_on_device, call.tensors))
        if is_ours:
            for one in (one for one in call.tensors if place_of(one) == "open"):
                device.put(one)
            if fault := refused(call):
                device.fault(fault)
        makes_ours = is_ours if device.makes_here is None else device.makes_here
        if makes_ours and any(isinstance(one, torch.Generator) for one in tree_leaves((call.args, call.kwargs))):
            device.fault(f"{call.name} with a generator of the CPU")  # no other can be made here
        return super().run(call)


def refused(call: Call) -> str | None:
    """What CUDA refuses where some operands lie there and some on the CPU."""
    others = [one for one in call.tensors if not is_on_device(one)]
    if call.name in INDEXING:  # indices may lie on the CPU
        indices = {id(one) for one in call.indices}
        return call.name if any(id(one) not in indices and one.dim() for one in others) else None
    if not others or call.name in ("copy_", "_foreach_copy_"):
        return None
    takes_numbers = torch.Tag.pointwise in call.func.tags or call.name in TAKING_NUMBERS
    return None if takes_numbers and not any(one.dim() for one in others) else call.name


def attend(
    device: Any, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any
) -> Tensor:
    device.now.attention[attention.kernel_of(query, key, attn_mask, **options)] += 1
    if not all(is_on_device(one) for one in (query, key, value, attn_mask) if one is not None):
        device.fault("scaled_dot_product_attention")
    return attention.attend(device, query, key, value, attn_mask, **options)


def site() -> str:
    """The nearest line of quatro that is being run; without one, the nearest outside of PyTorch."""
    frame, outside = sys._getframe(1), ""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.parent != HERE and HERE.parent in path.parents:
            return f"{path.relative_to(HERE.parents[1])}:{frame.f_lineno}"
        if path.parent != HERE and path != Path(__file__) and not str(path).startswith((TORCH, "<")):
            outside = outside or f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back
    return outside


def cuda(device: Device) -> dict[str, Any]:
    """What else `torch.cuda` says. Its random numbers are the CPU's, so the state of its generator is any bytes."""
    card, version = device.card, (9, 0)
    told = SimpleNamespace(name=card.name, total_memory=card.memory, major=9, minor=0, multi_processor_count=132)
    state = [torch.zeros(16, dtype=torch.uint8)]
    nothing = ("_lazy_init", "set_device", "empty_cache", "manual_seed", "manual_seed_all")
    answers: dict[str, Any] = {
        "is_initialized": lambda *_: True,
        **dict.fromkeys(nothing, lambda *_: None),
        **dict.fromkeys(("memory_allocated", "memory_reserved"), lambda *_: device.held),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved"), lambda *_: device.peak),
        "reset_peak_memory_stats": lambda *_: setattr(device, "peak", device.held),
        "mem_get_info": lambda *_: (card.memory - device.held, card.memory),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: card.name,
        "get_device_capability": lambda *_: version,
        "get_device_properties": lambda *_: told,
        "get_rng_state": lambda *_: state[0].clone(),
        "set_rng_state": lambda new, *_: state.__setitem__(0, Plain.clone(new)),
        "synchronize": lambda *_: device.wait("synchronize"),
    }
    # A function each: torch._dynamo keeps a table of them.
    return {name: lambda *args, answer=answer, **_: answer(*args) for name, answer in answers.items()}


@contextmanager
def pretended_gpu(card: Card = H100, *, strict: bool = True, hollow: bool = False) -> Iterator[WatchedDevice]:
    """As `quatro.rehearse.pretended`; yields what is counted."""
    device = WatchedDevice(card, strict=strict, hollow=hollow)

    def numpy(tensor: Tensor, **kwargs: Any) -> Any:
        if is_on_device(tensor):
            device.fault("numpy()", TypeError("can't convert cuda:0 device type tensor to numpy"))
        return Plain.numpy(tensor, **kwargs)

    with (
        patch.object(pretended, "Kernels", WatchedKernels),
        patch.object(calls, "attend", attend),
        patch.object(torch.Tensor, "numpy", numpy),
        pretended.pretended_gpu(device),
        patch.multiple(torch.cuda, **cuda(device)),
    ):
        yield device
