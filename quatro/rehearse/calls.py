"""Calls of PyTorch's Python functions: devices by name, moves between them, CUDA's autocast, attention."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map

from quatro.rehearse.attention import attend, plain_attention
from quatro.rehearse.device import CPU, Device, Plain, is_on_device, place_of, set_place

MOST_REAL = 100_000  # numbers; larger tensors are hollow, and smaller ones, such as sums, keep their values
HOLLOW = {torch.bool: True, torch.int64: 64}  # what a hollow tensor holds once it comes to the CPU: tokens, or
HOLLOW_VALUE = -1e-6  # something like a log-probability


def _functions(names: str) -> set[Any]:
    """Functions and methods of these names, wherever PyTorch has them."""
    places = (torch, torch.Tensor, functional, torch._C._nn)
    return {getattr(place, name) for name in names.split() for place in places if hasattr(place, name)}


# What CUDA's autocast computes in the lower format and what in float32 (autocast_mode.h), but for rare functions.
LOWER = _functions(
    "__matmul__ __rmatmul__ matmul mm mv bmm linear addmm addmv addr addbmm baddbmm chain_matmul einsum conv1d conv2d "
    "conv3d conv_transpose1d conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention"
)
FLOAT32 = _functions(
    "__pow__ __rpow__ acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus "
    "layer_norm group_norm cosine_similarity nll_loss cross_entropy kl_div l1_loss smooth_l1_loss huber_loss mse_loss "
    "binary_cross_entropy_with_logits dist cdist renorm logsumexp prod softmax log_softmax cumprod cumsum norm sum"
)
FROM_SHAPES = {torch.zeros, torch.ones, torch.empty, torch.full}
FROM_DATA = {torch.tensor, torch.as_tensor, torch.asarray}
FACTORIES = _device_constructors() | FROM_DATA


class Calls(TorchFunctionMode):
    """On while the device is pretended."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.handlers: dict[Any, Any] = {
            torch.Tensor.to: self.to,
            torch.Tensor.type_as: self.to,
            torch.Tensor.cpu: lambda tensor, **_: self.to(tensor, CPU),
            torch.Tensor.cuda: lambda tensor, device="cuda", **options: self.to(tensor, device or "cuda", **options),
            torch.Tensor.pin_memory: lambda tensor, *_: set_place(tensor.clone(), "pinned"),
            torch.Tensor.is_pinned: lambda tensor, *_: place_of(tensor) == "pinned",
            torch.Tensor.tolist: lambda tensor: Plain.tolist(self.to(tensor, CPU)),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.handlers:
            return self.handlers[func](*args, **kwargs)
        is_cast = torch.is_autocast_enabled("cuda")
        if kwargs.get("device") is not None or func in FACTORIES:
            return self.make(func, args, kwargs)
        if is_cast and func in LOWER:
            args, kwargs = tree_map(self.autocast, (args, kwargs))
        elif is_cast and func in FLOAT32 and kwargs.get("dtype") is None:
            args, kwargs = tree_map(lambda one: self.autocast(one, torch.float32), (args, kwargs))
        if func is plain_attention and is_on_device(args[0]):
            return attend(self.device, *args, **kwargs)
        return func(*args, **kwargs)

    def make(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What ``func`` makes on the device that the call names, or else on the CPU."""
        device, named = self.device, kwargs.pop("device", None)
        if func in FROM_DATA and args and isinstance(args[0], Tensor):
            return self.to(args[0], named or args[0].device, kwargs.get("dtype") or args[0].dtype)
        place, to_pin = CPU if named is None else torch.device(named), kwargs.pop("pin_memory", False)
        if place.type not in ("cpu", "cuda"):
            return func(*args, **kwargs, device=place)
        if (is_here := place.type == "cuda") and func in FROM_DATA:
            device.wait("upload")
        with device.having(makes_here=is_here):
            if is_here and device.hollow and func in FROM_SHAPES:
                with device.having(makes_here=False, is_counting=False):
                    hollow: Tensor = func(*args, **kwargs, device="meta")
                if hollow.is_floating_point() and hollow.numel() > MOST_REAL:
                    return device.put(hollow)
            made = func(*args, **kwargs) if named is None else func(*args, **kwargs, device=CPU)
        if is_here and isinstance(made, Tensor):
            return device.put(made)  # what comes from data is made without an ATen call
        return set_place(made, "pinned") if to_pin else made

    def to(self, tensor: Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
        """As `Tensor.to`. Between the CPU and the device the host waits, unless memory is pinned and it need not."""
        if args and isinstance(args[0], Tensor):
            args = (args[0].device, args[0].dtype)
        place, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
        if place is not None and place.type not in ("cpu", "cuda"):
            return Plain.to(tensor, *args, copy=copy, **kwargs)
        device, dtype, is_here = self.device, dtype or tensor.dtype, is_on_device(tensor)
        to_here = is_here if place is None else place.type == "cuda"
        if to_here == is_here:
            return Plain.to(tensor, dtype=dtype, copy=copy, memory_format=layout or torch.preserve_format)
        # PyTorch pins by itself what it downloads to without blocking.
        if not non_blocking or (to_here and place_of(tensor) != "pinned"):
            device.wait("upload" if to_here else "download")
        with device.having(makes_here=to_here, is_counting=False):
            is_weight = device.hollow and isinstance(tensor, torch.nn.Parameter)
            if to_here and (is_weight or tensor.is_meta) and dtype.is_floating_point:
                return device.put(torch.empty(tensor.shape, dtype=dtype, device="meta"))
            if tensor.is_meta:
                return torch.full(tensor.shape, HOLLOW.get(dtype, HOLLOW_VALUE), dtype=dtype)
            return Plain.to(tensor, dtype=dtype, copy=True)

    def autocast(self, value: Any, dtype: torch.dtype | None = None) -> Any:
        """``value`` in ``dtype`` (default: the lower format) if it is a tensor that CUDA's autocast would cast."""
        dtype, cache = dtype or torch.get_autocast_dtype("cuda"), self.device.cast_weights
        if not isinstance(value, Tensor) or not value.is_floating_point() or not is_on_device(value):
            return value
        is_weight = value.requires_grad and value.is_leaf and value.dtype == torch.float32
        if not is_weight or dtype == torch.float32 or not torch.is_autocast_cache_enabled():
            return value if value.dtype == torch.float64 else value.to(dtype)
        if id(value) not in cache:
            cache[id(value)] = (value, value.to(dtype))
        return cache[id(value)][1]
