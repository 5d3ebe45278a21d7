"""Whose a value is: stated by the paper, verl's default (which the paper follows where it states nothing), or ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quatro.methods.base import Method

STATED = "stated by the paper"
VERL = "verl's default"
CHOSEN = "our choice"
OURS = "our reading"

# The paper's table of hyper-parameters, for both sizes of model.
_STATED: Mapping[str, tuple[Any, ...]] = {
    "inner_updates": (1,),
    "prompts_per_step": (256,),
    "rollouts_per_prompt": (8,),
    "minibatch_prompts": (64,),
    "rollout.temperature": (1.0,),
    "rollout.top_p": (1.0,),
    "rollout.max_new_tokens": (1024, 3072),
    "rollout.gpu_memory_utilization": (0.8,),
    "optimizer.name": ("adamw",),
    "optimizer.lr": (1e-6,),
    "optimizer.weight_decay": (0.0,),
    "kl.beta": (0.001,),
    "kl.estimator": ("k3",),
    "entropy_coefficient": (0.0,),
}
# The defaults of verl 0.9.1 that hold where the paper states nothing.
_VERL: Mapping[str, Any] = {
    "data.max_prompt_tokens": 512,
    "rollout.top_k": 0,
    "optimizer.betas": (0.9, 0.999),
    "optimizer.max_grad_norm": 1.0,
    "optimizer.warmup_steps": 0,
    "optimizer.schedule": "constant",
    "kl.aggregate": "token-mean",
}
# Our values where verl has another default: 30 epochs (about 870 iterations of the paper's batch), and 512 tokens.
_CHOSEN: Mapping[str, Any] = {"steps": 100, "data.max_prompt_tokens": 1024}


def basis(key: str, value: Any) -> str | None:
    """`STATED`, `VERL` or `CHOSEN` for the ``value`` of a dotted ``key``; None for any other value.

    `method_basis` answers for the keys of a method.
    """
    if value in _STATED.get(key, ()):
        return STATED
    tables = {VERL: _VERL, CHOSEN: _CHOSEN}
    return next((whose for whose, table in tables.items() if key in table and value == table[key]), None)


def method_basis(method: type[Method], field: str) -> str | None:
    """The same for the default of a method's own ``field``, which is also the value of its preset `paper`."""
    if field in method.STATED_BY_PAPER:
        return STATED
    return VERL if field in method.VERL_DEFAULTS else None
