"""GMPO: the geometric mean of clipped token ratios (semantics of verl 0.9.1's geo_mean loss)."""

# Axes: B rows (rollouts), T response tokens.
from typing import ClassVar, Literal

from pydantic import Field

from quatro.methods.base import PAPER_OR_OFFICIAL, VERL_KL, GroupZScore, Presets
from quatro.types import Batch, Loss, LossTerm, Tensor


class Gmpo(GroupZScore):
    """loss = mean over ALL rows of -A exp(mean_t d_t), where d_t is a token's log-ratio, clipped pessimistically.

    The clip works in log space: the value counts that makes sign(A) d smaller, d itself or d bounded to
    [-clip_low, clip_high]. An empty row adds 0 and is counted.
    """

    PRESETS: ClassVar[Presets] = {
        "paper": {"clip_low": 0.2, "clip_high": 0.2, **VERL_KL},
        "official": {"clip_low": 0.4, "clip_high": 0.4, "kl.beta": 0.0},
    }
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset({"clip_low", "clip_high", "standardise"})

    name: Literal["gmpo"] = "gmpo"
    preset: Literal["paper", "official"] = PAPER_OR_OFFICIAL
    clip_low: float = Field(default=0.2, ge=0, description="lower bound of a token's log-ratio: -clip_low, in nats")
    clip_high: float = Field(default=0.2, ge=0, description="upper bound of a token's log-ratio, in nats")

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        import torch

        from quatro import ops

        mask_BT = batch.mask_BT
        log_ratio_BT = ops.log_ratio(logp_BT, batch)
        advantage_B = torch.where(mask_BT.any(dim=-1), batch.advantage_B.to(log_ratio_BT.dtype), 0.0)
        sign_B1 = torch.sign(advantage_B)[:, None]
        bounded_BT = log_ratio_BT.clamp(-self.clip_low, self.clip_high)
        pessimistic_BT = sign_B1 * torch.minimum(sign_B1 * log_ratio_BT, sign_B1 * bounded_BT)
        value_B = -advantage_B * ops.masked_mean(pessimistic_BT, mask_BT).exp()

        is_outside_BT = log_ratio_BT != bounded_BT
        metrics = {
            "clip_fraction": ops.mean_of(is_outside_BT & (sign_B1 > 0), mask_BT),
            "clip_fraction_lower": ops.mean_of(is_outside_BT & (sign_B1 < 0), mask_BT),
            "approx_kl": ops.approx_kl_metric(logp_BT, batch),
        }
        return Loss([LossTerm("policy", value_B, torch.ones_like(value_B))], metrics)
