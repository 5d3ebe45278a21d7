"""DPPO: a token is left out when its probability has moved too far (arXiv 2602.04879; semantics of verl 0.9.1)."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

from typing import Literal

from pydantic import Field

from quatro.methods.base import Aggregate, GroupZScore
from quatro.types import Batch, Loss, LossTerm, Tensor

# The thresholds of the authors' scripts.
_THRESHOLDS = {"tv": 0.15, "kl": 0.05}


class Dppo(GroupZScore):
    """loss = aggregate of -stopgrad(min(r, c)) A logp, over the tokens that are still inside the trust region.

    The divergence is that of two coins, which show the sampled token with probability p under pi_theta and p_old under
    pi_old: |p - p_old| (``tv``), or KL(p_old || p) (``kl``). A token beyond the threshold has no gradient if an update
    would push it further out: if A > 0 and p > p_old, or A <= 0 and p < p_old. A ratio judges a rare token more
    strictly than a likely one; these do not.
    """

    name: Literal["dppo"] = "dppo"
    divergence: Literal["tv", "kl"] = Field(
        default="tv",
        description="which divergence bounds a token, between the sampled token and all others: total variation (tv), "
        "or KL(pi_old || pi_theta) (kl)",
    )
    threshold_low: float | None = Field(
        default=None,
        gt=0,
        description="largest divergence (in nats for kl) of a token that became less likely; null: 0.15 for tv, 0.05 "
        "for kl",
    )
    threshold_high: float | None = Field(default=None, gt=0, description="the same for a token that became more likely")
    max_ratio: float = Field(default=20.0, gt=1, description="c: larger ratios of a token are cut to this value")
    aggregate: Aggregate = Field(default="token-mean", description="how token losses are averaged")

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        from quatro import ops

        log_ratio_BT = ops.log_ratio(logp_BT, batch).detach().clamp(-20.0, 20.0)
        ratio_BT = log_ratio_BT.exp()
        advantage_B1 = batch.advantage_B.to(logp_BT.dtype)[:, None]
        is_inside_BT = self._is_inside(logp_BT.detach(), batch, advantage_B1 > 0)
        value_BT = -ratio_BT.clamp(max=self.max_ratio) * advantage_B1 * logp_BT * is_inside_BT
        value, weight = ops.aggregate(value_BT, batch, self.aggregate)
        metrics = {
            "clip_fraction": ops.mean_of(~is_inside_BT, batch.mask_BT),
            "clip_fraction_lower": ops.mean_of((ratio_BT > self.max_ratio) & is_inside_BT, batch.mask_BT),
            "approx_kl": ops.mean_of(-log_ratio_BT, batch.mask_BT),
        }
        return Loss([LossTerm("policy", value, weight)], metrics)

    def _is_inside(self, logp_BT: Tensor, batch: Batch, is_raised_B1: Tensor) -> Tensor:
        """Whether a token may move further in the direction of its advantage."""
        import torch

        usual = _THRESHOLDS[self.divergence]
        low, high = self.threshold_low or usual, self.threshold_high or usual
        new_BT, old_BT = logp_BT.exp(), batch.old_logp_BT.exp()
        if self.divergence == "tv":
            return torch.where(is_raised_B1, new_BT - old_BT <= high, old_BT - new_BT <= low)
        tiny = 1e-8
        kl_BT = (
            old_BT * (batch.old_logp_BT - logp_BT) + (1 - old_BT) * ((1 - old_BT + tiny) / (1 - new_BT + tiny)).log()
        )
        return torch.where(is_raised_B1, (kl_BT <= high) | (new_BT <= old_BT), (kl_BT <= low) | (new_BT >= old_BT))
