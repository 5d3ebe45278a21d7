"""PMD: policy mirror descent at a fixed temperature (Kimi k1.5, arXiv 2501.12599); QUATRO without its dual."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

from typing import Literal

from pydantic import Field

from quatro.methods.base import Method
from quatro.types import Advantages, Batch, Loss, LossTerm, Tensor


class Pmd(Method):
    """loss = (1/n) sum_i (A_i - l_i)^2 / 2 with A = (R - mean) / tau and l the log-ratio of the whole response.

    The gradient, dloss/dlogp_it = -(1/n) (A_i - l_i), is QUATRO's without the ratio s_i, and tau is QUATRO's lam*, the
    same for all prompts. The mean over a prompt's rollouts stands for tau log E[exp(R / tau)]; they differ by the
    order of 1 / tau. No token is clipped.
    """

    name: Literal["pmd"] = "pmd"
    tau: float = Field(
        default=1.0,
        gt=0,
        description="temperature, in units of reward per nat; a larger one keeps the policy closer to pi_old. With "
        "rewards of 0 and 1, tau 3 and 1 move the policy about as far as QUATRO with delta 0.01 and 0.1",
    )

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        from quatro.ops import centred

        return Advantages(centred(reward_B, group_B)[0] / self.tau)

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        import torch

        from quatro import ops

        log_ratio_B = ops.log_ratio(logp_BT, batch).sum(dim=-1)
        # An empty response has no tokens to learn from: its advantage counts as 0.
        advantage_B = torch.where(batch.mask_BT.any(dim=-1), batch.advantage_B.to(log_ratio_B.dtype), 0.0)
        value_B = 0.5 * (advantage_B - log_ratio_B).square()
        metrics = {"approx_kl": ops.approx_kl_metric(logp_BT, batch)}
        return Loss([LossTerm("policy", value_B, torch.ones_like(value_B))], metrics)
