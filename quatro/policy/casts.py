"""Casts to bfloat16 that autocast makes at every use, made once. No number changes, those of gradients included."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Parameter


@contextmanager
def cast_once(model: Any) -> Iterator[None]:
    """Inside, linear layers share casts of inputs and of their float32 weights, which must not change.

    Gradients reach the weights. The head is left out: its gradient is float32 throughout.
    """
    head = model.get_output_embeddings()
    layers = [one for one in model.modules() if isinstance(one, Linear) and one is not head]
    known: list[Any] = [None]  # an input, and a cast for each of those that may still read it

    def share(_: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if inputs[0].dtype != torch.float32:
            known[:] = [None]
        elif known[0] is not inputs[0] or len(known) == 1:
            known[:] = [inputs[0], *_Casts.apply(inputs[0])]  # type: ignore[no-untyped-call]
        return (known.pop(), *inputs[1:]) if len(known) > 1 else None

    tables = [dict(layer._parameters) for layer in layers]
    hooks = [layer.register_forward_pre_hook(share) for layer in layers]
    try:
        for layer, table in zip(layers, tables, strict=True):
            layer._parameters.update({name: _cast(weight) for name, weight in table.items()})
        yield
    finally:
        for layer, table, hook in zip(layers, tables, hooks, strict=True):
            layer._parameters.update(table)
            hook.remove()


def _cast(weight: Parameter | None) -> Parameter | None:
    if weight is None or weight.dtype != torch.float32:
        return weight

    def hand_on(cast: Any) -> None:
        grad, cast.grad = cast.grad, None
        weight.grad = grad.float() if weight.grad is None else weight.grad.add_(grad)

    cast = Parameter(weight.detach().bfloat16(), weight.requires_grad)
    if weight.requires_grad:
        cast.register_post_accumulate_grad_hook(hand_on)
    return cast


class _Casts(torch.autograd.Function):
    """Casts of an input for five readers. Their gradients add up in float32 as in autograd, the last reader's first."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        cast = value.bfloat16()
        return tuple(cast.detach() for _ in range(5))  # query, key, value, and the two of a parallel gated layer

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Tensor:
        last, *others = (grad for grad in grads if grad is not None)
        return sum(others, start=last.float())
