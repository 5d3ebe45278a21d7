"""UCPO: GRPO whose correct responses share their advantage by how rare they are (arXiv 2605.00365)."""

# Axes: B rows (rollouts), M rows of one prompt.
from typing import Literal

from pydantic import Field

from quatro.methods.base import GroupZScore, TokenSurrogate
from quatro.types import Advantages, Needs, Tensor


class Ucpo(TokenSurrogate, GroupZScore):
    """Of a prompt's m > 1 responses with a reward above 0, those that were less likely get more of the advantage.

    With l the mean log pi_old of a response's tokens, q the softmax of l over these m, and w = (1/q) / sum(1/q):

        A' = A (1 - tau + tau m w)

    Where rewards are 0 and 1 the sum over the m stays as it is. This is the form of the authors' code; the loss is
    GRPO's.
    """

    name: Literal["ucpo"] = "ucpo"
    tau: float = Field(
        default=0.2, ge=0, le=1, description="how much of the advantage is shared by rarity; 0 is GRPO, 1 all of it"
    )

    @property
    def needs(self) -> Needs:
        return Needs(old_logp=True)

    def advantages(  # type: ignore[override]
        self, reward_B: Tensor, group_B: Tensor, *, old_logp_B: Tensor, length_B: Tensor
    ) -> Advantages:
        import torch

        value_B = super().advantages(reward_B, group_B).value_B
        mean_B, factor_B = old_logp_B / length_B.clamp(min=1), torch.ones_like(value_B)
        for group in group_B[reward_B > 0].unique():
            rows_M = ((group_B == group) & (reward_B > 0)).nonzero()[:, 0]
            inverse_M = 1.0 / mean_B[rows_M].softmax(dim=0).clamp(min=1e-6)
            factor_B[rows_M] = 1.0 - self.tau + self.tau * inverse_M / inverse_M.mean()
        return Advantages(value_B * factor_B, {"ucpo/factor_max": factor_B.max().item()})
