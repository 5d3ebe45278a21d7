"""What GRPO and its descendants share: the group z-score as advantage."""

# Axes: B rows (rollouts).
from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from quatro.methods.base import Method
from quatro.types import Advantages

if TYPE_CHECKING:
    from torch import Tensor


class GroupZScore(Method):
    """A = (R - mean) / (std + 1e-6) within each prompt's rollouts, exactly 0 where all rewards are equal."""

    standardise: bool = Field(
        default=True, description="divide the centred reward by the group's standard deviation; false is Dr. GRPO"
    )

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        from quatro.ops import group_zscore

        return Advantages(group_zscore(reward_B, group_B, standardise=self.standardise))
