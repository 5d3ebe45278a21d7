"""MaxRL: the policy gradient of log Pass@1 instead of Pass@1 (arXiv 2602.02710)."""

# Axes: B rows (rollouts).
from __future__ import annotations

from typing import Literal

from evals.errors import UsageError
from quatro.methods.base import TokenSurrogate
from quatro.types import Advantages, Tensor


class Maxrl(TokenSurrogate):
    """A = (R - mean) / mean within each prompt's rollouts, 0 where none earned anything.

    The correct ones of N rollouts share a weight of 1 whatever their number, so that a prompt's gradient is that of the
    log-likelihood of being correct, up to the order that N rollouts can estimate. It is meant for rewards of 0 and 1.
    """

    name: Literal["maxrl"] = "maxrl"

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        """As `Method.advantages`; UsageError for a negative reward, which would turn the update's direction round."""
        import torch

        from quatro.ops import centred

        centred_B, mean_B = centred(reward_B, group_B)
        if bool((reward_B < 0).any()):
            raise UsageError(
                f"method maxrl divides by the mean reward of a prompt, and a reward is {reward_B.min().item():g}; take "
                "a reward that is never negative (0 and 1), or -m grpo"
            )
        return Advantages(torch.where(mean_B > 0, centred_B / mean_B, 0.0))
