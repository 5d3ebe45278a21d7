"""Rewards by name. Nothing here imports torch: the worker processes of a user's function import this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evals.errors import UsageError
from quatro.rewards.base import Reward, Scored

if TYPE_CHECKING:
    from quatro.rewards.function import OnError

__all__ = ["Reward", "Scored", "make_reward"]


def make_reward(spec: str, *, timeout_s: float = 10.0, on_error: OnError = "fail", num_workers: int = 0) -> Reward:
    """The reward `math`, `countdown` or `module:function`. Call its ``close`` in the end.

    The keywords concern a function: ``timeout_s`` seconds a rollout may take before its process is killed and it earns
    0; ``on_error`` what an exception means (`fail` stops, `zero` counts it); ``num_workers`` processes (0: up to 4).

    Raises:
        UsageError: there is no such reward, or the function cannot be imported.
    """
    if spec == "math":
        from quatro.rewards.math import math_reward

        return math_reward()
    if spec == "countdown":
        from quatro.rewards.countdown import countdown_reward

        return countdown_reward()
    module, colon, function = spec.partition(":")
    if not (module and colon and function):
        raise UsageError(f"unknown reward {spec!r}; expected math, countdown or module:function")
    from quatro.rewards.function import FunctionReward

    return FunctionReward(spec, timeout_s=timeout_s, on_error=on_error, num_workers=num_workers)
