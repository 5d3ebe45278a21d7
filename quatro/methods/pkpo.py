"""PKPO: the unbiased policy gradient of Pass@k, or of the best of k rewards (arXiv 2505.15201)."""

# Axes: B rows (rollouts), Q prompts, N rollouts of one prompt.
from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from quatro.methods.base import TokenSurrogate
from quatro.types import Advantages, Needs, Tensor


class Pkpo(TokenSurrogate):
    """A_i = k times the mean, over the sets J of k - 1 other rollouts of the prompt, of max(R_i, max R_J) - max R_J.

    It is what rollout i adds to the best of k, so that no advantage is negative and the worst rollout has 0. Without
    clipping, the mean of A_i grad log pi is an unbiased estimate of the gradient of E[max of k rewards], which is
    Pass@k for rewards of 0 and 1. With k = 1 the baseline is the mean of the others, as in RLOO. With k = N only the
    best rollout has an advantage, N times its distance to the second (verl's `grpo_passk`, arXiv 2503.19595).
    """

    name: Literal["pkpo"] = "pkpo"
    k: int = Field(
        default=4,
        ge=1,
        description="k of the objective Pass@k; a prompt that lost rollouts and has fewer than k uses all it has",
    )

    @property
    def needs(self) -> Needs:
        return Needs(min_rollouts=self.k)

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        import torch

        from quatro.ops import group_zscore, pack_rewards

        if self.k == 1:
            return Advantages(group_zscore(reward_B, group_B, standardise=False, leave_one_out=True))
        reward_QN, mask_QN, group_index_B, slot_B = pack_rewards(reward_B, group_B)
        sorted_QN, order_QN = reward_QN.masked_fill(~mask_QN, torch.inf).sort(dim=1)
        # From the lowest up: only differences count, and equal rewards then give exactly 0.
        sorted_QN = torch.where(sorted_QN.isinf(), 0.0, sorted_QN - sorted_QN[:, :1])
        weight_QN = torch.stack([self._weights(int(size), mask_QN.shape[1]) for size in mask_QN.sum(dim=1)]).to(
            sorted_QN
        )
        # Of the sets J whose best is at place j, all of them below i, each adds R_i - R_j.
        share_QN = weight_QN.cumsum(dim=1) - weight_QN
        best_QN = (weight_QN * sorted_QN).cumsum(dim=1) - weight_QN * sorted_QN
        gain_QN = (sorted_QN * share_QN - best_QN).clamp(min=0.0)
        value_QN = torch.empty_like(gain_QN).scatter_(1, order_QN, gain_QN)
        return Advantages(value_QN[group_index_B, slot_B])

    def _weights(self, size: int, width: int) -> Tensor:
        """For each place in ascending order, k times the share of the sets J whose best stands there; (N,)."""
        import torch

        k = min(self.k, size)
        if k < 2:
            return torch.zeros(width, dtype=torch.float64)
        num_sets = math.comb(size - 1, k - 1)
        shares = [k * math.comb(place, k - 2) / num_sets for place in range(size)]
        return torch.tensor(shares + [0.0] * (width - size), dtype=torch.float64)
