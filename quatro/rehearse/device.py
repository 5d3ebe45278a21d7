"""The pretended device: what lies in its memory, and what it was asked to do, phase by phase."""

import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
# The methods of tensors as PyTorch made them: `pretended.py` replaces some of `torch.Tensor`.
Plain: Any = torch._C.TensorBase


@dataclass(frozen=True)
class Card:
    """A device of Hopper's kind, and what its work takes.

    It has so many bytes of ``memory``, moves ``bandwidth`` bytes a second and multiplies with ``flops`` operations a
    second in 16 bits, of which kernels of a model reach the ``efficiency``. An ATen call takes ``call_s`` of the host,
    Python between the calls included, and a wait ``wait_s``. The defaults were measured on an H100, in
    benchmarks/results: copies, products of 8192 x 8192, a decoding step of two rows divided by its calls, and the
    tokens a second of an update and of a scoring pass.
    """

    name: str
    memory: int
    bandwidth: float = 3.03e12
    flops: float = 789e12
    float32_flops: float = 51e12
    call_s: float = 15e-6
    wait_s: float = 18e-6
    efficiency: float = 0.7

    @property
    def line(self) -> str:
        """What estimated seconds hang on, for a person."""
        return (
            f"the seconds are estimates: {self.efficiency:.0%} of {self.bandwidth / 1e12:.3g} TB/s, "
            f"{self.flops / 1e12:.0f} TFLOP/s in 16 bits and {self.float32_flops / 1e12:.0f} in float32; and of the "
            f"host {self.call_s * 1e6:.0f} us for a call and {self.wait_s * 1e6:.0f} us for a wait"
        )


H100 = Card("NVIDIA H100 80GB HBM3", 80 << 30)


@dataclass
class Phase:
    """What happened on the device in one phase.

    ``kernels`` are ATen calls that start one at least, ``waits`` those of the host for the device, by kind, and
    ``peak`` is the most bytes held. By the card's speeds ``moving_s`` is the time of kernels that memory limits,
    ``multiplying_s`` that of the others, and ``seconds`` what host and device take side by side.
    """

    kernels: int = 0
    moving_s: float = 0.0
    multiplying_s: float = 0.0
    seconds: float = 0.0
    peak: int = 0
    waits: Counter[str] = field(default_factory=Counter)


# A storage's mark. What PyTorch makes for itself in one of its functions is "open": it would lie beside the operands,
# and counts as on the device once it meets something there.
Place = Literal["cpu", "pinned", "device", "open"]


def place_of(tensor: Tensor) -> Place:
    """The mark of the storage of ``tensor``."""
    with torch._C.DisableTorchFunction():
        return getattr(Plain.untyped_storage(tensor), "_place", "cpu")


def set_place(tensor: Tensor, place: Place) -> Tensor:
    """``tensor``, whose storage carries the mark from now on."""
    with torch._C.DisableTorchFunction():
        Plain.untyped_storage(tensor)._place = place
    return tensor


def is_on_device(tensor: Tensor) -> bool:
    """Whether CUDA would have it in the device's memory."""
    return place_of(tensor) == "device"


class Device:
    """A card on which nothing is computed: numbers come from the CPU, which holds all tensors, however many.

    With ``hollow`` weights, and what is computed from them, have no memory behind them (PyTorch's device meta), so that
    a model of any size is rehearsed in seconds; make it on the device `meta` and move it to `cuda`. A decision on a
    hollow number finds it finite and not 0. `tests/pretend` has a device that says what CUDA would refuse.
    """

    def __init__(self, card: Card, *, hollow: bool) -> None:
        self.card, self.hollow = card, hollow
        self.phases: defaultdict[str, Phase] = defaultdict(Phase)
        self.held = self.peak = 0  # bytes
        self.host_s = self.device_s = 0.0  # clocks: the host has said, and the device has done, all until then
        self.cast_weights: dict[int, tuple[Tensor, Tensor]] = {}  # autocast's cache, by the id of the weight
        self.makes_here: bool | None = None  # whether what is being made belongs here; None: beside its operands
        self.is_counting = True  # more than memory
        self.shows_itself = True  # False: `Tensor.device` is where a tensor really lies
        self.begin("start")

    def begin(self, phase: str) -> None:
        """What follows counts as ``phase``, once the device has done what came before."""
        self.now = self.phases[phase]
        self.now.peak = max(self.now.peak, self.held)
        self.host_s = self.device_s = max(self.host_s, self.device_s)

    def wait(self, kind: str) -> None:
        """The host goes on only when the device has done all that it was asked."""
        if self.is_counting:
            self.now.waits[kind] += 1
            self._pass(max(self.host_s, self.device_s) + self.card.wait_s, self.device_s)

    def launch(self, num_bytes: int, flops: int = 0, *, is_16_bit: bool = True) -> None:
        """A kernel, or the few that one ATen call takes."""
        if self.is_counting:
            now, card = self.now, self.card
            now.kernels += 1
            moving_s = num_bytes / (card.efficiency * card.bandwidth)
            multiplying_s = flops / (card.efficiency * (card.flops if is_16_bit else card.float32_flops))
            if moving_s > multiplying_s:
                now.moving_s += moving_s
            else:
                now.multiplying_s += multiplying_s
            host_s = self.host_s + card.call_s
            self._pass(host_s, max(self.device_s, host_s) + max(moving_s, multiplying_s))

    def _pass(self, host_s: float, device_s: float) -> None:
        self.now.seconds += max(host_s, device_s) - max(self.host_s, self.device_s)
        self.host_s, self.device_s = host_s, device_s

    def put(self, tensor: Tensor) -> Tensor:
        """``tensor``, whose storage lies here until it is freed."""
        if is_on_device(tensor):
            return tensor
        with torch._C.DisableTorchFunction():
            storage = Plain.untyped_storage(tensor)
        self._hold(storage.nbytes())
        weakref.finalize(storage, self._hold, -storage.nbytes())  # itself: views and autograd keep it alive
        return set_place(tensor, "device")

    def _hold(self, num_bytes: int) -> None:
        self.held += num_bytes
        self.peak, self.now.peak = max(self.peak, self.held), max(self.now.peak, self.held)

    @contextmanager
    def having(self, **changes: bool) -> Iterator[None]:
        """Inside, these of the attributes above have other values."""
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).update(before)
