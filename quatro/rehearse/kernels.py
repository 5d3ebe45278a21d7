"""Every ATen call, of backward passes and optimisers too: whether the host waits for it, and what it moves."""

import math
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from quatro.rehearse.calls import HOLLOW, HOLLOW_VALUE
from quatro.rehearse.device import Device, Plain, is_on_device, place_of, set_place

INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
MASKS = (torch.bool, torch.uint8)
PICKING = {"embedding", "index", "index_select", "gather"}  # these read no more than they return
# The host learns how large the result is, or a number.
WAITING = {
    **dict.fromkeys(("_local_scalar_dense", "allclose", "equal"), "item"),
    **dict.fromkeys(("_unique2", "unique_dim", "unique_consecutive"), "unique"),
    **{name: name for name in ("nonzero", "masked_select", "bincount", "repeat_interleave")},
}
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_", "resize_"}


class Call:
    """One ATen call; ``indices`` are those of an indexing one."""

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.name: str = func._schema.name.removeprefix("aten::")
        self.tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        self.indices: list[Tensor | None] = list(args[1]) if self.name in INDEXING else []
        self.has_mask_as_index = any(one is not None and one.dtype in MASKS for one in self.indices)
        self.known = {Plain.untyped_storage(one)._cdata for one in self.tensors}

    def wait(self) -> str | None:
        """Why the host waits for the device, if it does."""
        if self.has_mask_as_index:
            return "mask as index"
        if self.name in INDEXING:
            return None if all(one is None or is_on_device(one) for one in self.indices) else "upload"
        if self.name == "copy_":
            to, source = map(place_of, self.tensors[:2])
            needs_not = "pinned" in (to, source) and (*self.args, False)[2]
            return None if to == source or needs_not else "upload" if to == "device" else "download"
        return None if self.kwargs.get("output_size") is not None else WAITING.get(self.name)

    def num_bytes(self, outputs: list[Tensor]) -> int:
        moved = [*outputs, *outputs] if self.name in PICKING else {id(t): t for t in (*self.tensors, *outputs)}.values()
        sizes = ([n for n, step in zip(one.shape, one.stride(), strict=True) if step] for one in moved)  # nothing twice
        return sum(math.prod(size) * one.element_size() for size, one in zip(sizes, moved, strict=True))


class Kernels(TorchDispatchMode):
    """On while the device is pretended."""

    def __init__(self, device: Device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode calls come here before they are taken apart.
        is_whole = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
        if is_whole and torch.is_inference_mode_enabled():
            with self:
                return func.decompose(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            return self.run(Call(func, args, kwargs or {}))

    def run(self, call: Call) -> Any:
        device, is_ours = self.device, any(map(is_on_device, call.tensors))
        is_open = all(place_of(one) == "open" for one in call.tensors)
        makes_ours = is_ours if device.makes_here is None else device.makes_here
        if is_ours:
            for one in (one for one in call.tensors if place_of(one) == "open"):
                device.put(one)
            if kind := call.wait():
                device.wait(kind)
        result = self.compute(call, is_ours)
        outputs = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        fresh = [one for one in outputs if Plain.untyped_storage(one)._cdata not in call.known]
        for one in fresh:
            if makes_ours:
                device.put(one)
            elif is_open and device.makes_here is None:
                set_place(one, "open")
        if (is_ours or makes_ours) and (fresh or call.func._schema.is_mutable) and call.name not in NO_KERNEL:
            count_flops = flop_registry.get(call.func.overloadpacket, lambda *_, **__: 0)
            flops = int(count_flops(*call.args, **call.kwargs, out_val=result))
            device.launch(call.num_bytes(outputs), flops, is_16_bit=any(t.element_size() == 2 for t in call.tensors))
        return result

    def compute(self, call: Call, is_ours: bool) -> Any:
        """The result, on the CPU; where weights are hollow, its shape."""
        if not (self.device.hollow and is_ours and any(one.is_meta for one in call.tensors)):
            return call.func(*call.args, **call.kwargs)
        if WAITING.get(call.name) == "item":
            dtype = call.tensors[0].dtype if call.name == "_local_scalar_dense" else torch.bool
            return HOLLOW.get(dtype, -HOLLOW_VALUE)
        args, kwargs = call.args, call.kwargs
        if call.has_mask_as_index:  # a real mask says how large the result is
            numbers = (
                one.nonzero().unbind(1) if one is not None and one.dtype in MASKS else [one] for one in call.indices
            )
            args = (args[0], list(chain.from_iterable(numbers)), *args[2:])
        args, kwargs = tree_map_only(Tensor, lambda one: one.to("meta"), (args, kwargs))
        kwargs = tree_map_only(torch.device, lambda _: torch.device("meta"), kwargs)
        with self.device.having(shows_itself=False):  # kernels of meta are written in Python and compare devices
            return call.func(*args, **kwargs)
