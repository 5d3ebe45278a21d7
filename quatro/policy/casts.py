"""Casts to bfloat16 that autocast makes at every use, made once. No number changes, those of gradients included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Linear, Parameter


@contextmanager
def cast_once(model: Any) -> Iterator[None]:
    """Inside, linear layers have casts of their float32 weights, which must not change.

    Gradients reach the weights. The head is left out: its gradient is float32 throughout.
    """
    head = model.get_output_embeddings()
    layers = [one for one in model.modules() if isinstance(one, Linear) and one is not head]
    tables = [dict(layer._parameters) for layer in layers]
    try:
        for layer, table in zip(layers, tables, strict=True):
            layer._parameters.update({name: _cast(weight) for name, weight in table.items()})
        yield
    finally:
        for layer, table in zip(layers, tables, strict=True):
            layer._parameters.update(table)


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
