"""Cluster weights: a correct response earns the more, the fewer others give its solution (form of arXiv 2509.02534)."""

# Axes: B rows (rollouts), M rows of one prompt.
from typing import Literal

from quatro.methods.base import TokenSurrogate
from quatro.types import Advantages, Needs, SameSolution, Tensor, rarity


class ClusterWeighted(SameSolution, TokenSurrogate):
    """A = r d - mean, where d is the share of the other correct responses to the prompt with another solution.

    d is 1 for the only correct response, and for what is not correct. This is the product of DARLING, with a similarity
    of texts in place of its classifier. The loss is GRPO's.
    """

    name: Literal["cluster-weighted"] = "cluster-weighted"

    @property
    def needs(self) -> Needs:
        return Needs(solutions=self)

    def advantages(self, reward_B: Tensor, group_B: Tensor, *, solution_B: Tensor) -> Advantages:  # type: ignore[override]
        import torch

        from quatro.ops import group_zscore

        rarity_B = torch.ones_like(reward_B)
        for group in group_B.unique():
            rows_M = (group_B == group).nonzero()[:, 0]
            rarity_B[rows_M] = rarity_B.new_tensor(rarity(solution_B[rows_M].tolist()))
        is_right_B = solution_B >= 0
        num_solutions = len(torch.stack([group_B, solution_B])[:, is_right_B].unique(dim=1).T)
        metrics = {
            "solutions/per_prompt": num_solutions / max(1, len(group_B[is_right_B].unique())),
            "solutions/rarity": rarity_B[is_right_B].mean().item(),
        }
        return Advantages(group_zscore(reward_B * rarity_B, group_B, standardise=False), metrics)
