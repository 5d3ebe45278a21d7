"""Rewards by name: what grades responses during training. Imports no torch, because worker processes import it too.

To add a reward, write a file here as countdown.py is, and a line in `quatro/registry.py`. A function of your own
needs no change here (`reward: module:function`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evals.errors import UsageError
from quatro.registry import REWARDS
from quatro.rewards.base import Reward, Scored
from quatro.types import Prompt

if TYPE_CHECKING:
    from quatro.rewards.function import OnError

__all__ = ["Reward", "Scored", "check_prompts", "make_reward"]


def make_reward(spec: str, *, timeout_s: float = 10.0, on_error: OnError = "fail", num_workers: int = 0) -> Reward:
    """The reward of that name in `REWARDS`, or `module:function`. Call its ``close`` in the end.

    The keywords are for functions. A rollout may take ``timeout_s`` seconds; then its process is killed and it earns
    0. ``on_error`` says what an exception does: `fail` stops the run, `zero` counts it. ``num_workers`` 0: up to 4.

    Raises:
        UsageError: there is no such reward, or the function cannot be imported.
    """
    if spec in REWARDS:
        reward: Reward = REWARDS[spec].open()
        return reward
    module, colon, function = spec.partition(":")
    if not (module and colon and function):
        raise UsageError(f"unknown reward {spec!r}; expected {', '.join(REWARDS)} or module:function")
    from quatro.rewards.function import FunctionReward

    return FunctionReward(spec, timeout_s=timeout_s, on_error=on_error, num_workers=num_workers)


def check_prompts(prompts: Sequence[Prompt], spec: str) -> None:
    """Check that the reward ``spec`` can grade every prompt; a function takes any prompt.

    Raises:
        DataError: names the first prompt that it cannot grade.
    """
    if spec in REWARDS:
        REWARDS[spec].check(prompts)
