"""GSPO: clipped surrogate on the length-normalised sequence ratio (paper, Eq. gspo_llm; semantics of verl 0.9.1)."""

# Axes: B rows (rollouts), T response tokens.
from typing import ClassVar, Literal

from pydantic import Field

from quatro.methods.base import PAPER_OR_OFFICIAL, VERL_KL, Aggregate, GroupZScore, Presets
from quatro.types import Batch, Loss, LossTerm, Tensor


class Gspo(GroupZScore):
    """loss = aggregate of max(-s A, -clip(s, 1 - low, 1 + high) A) with s = exp(mean_t log-ratio), A a group z-score.

    s enters every token as stopgrad(s) exp(logp - stopgrad(logp)), its log clamped at 10, so each token gets the
    gradient s A / length. The paper runs it at clip 0.2, where it is nearly unclipped; the official scripts use
    3e-4 and 4e-4.
    """

    PRESETS: ClassVar[Presets] = {
        "paper": {"clip_low": 0.2, "clip_high": 0.2, "aggregate": "seq-mean-token-mean", **VERL_KL},
        "official": {"clip_low": 3e-4, "clip_high": 4e-4, "aggregate": "seq-mean-token-mean", "kl.beta": 0.0},
    }
    STATED_BY_PAPER: ClassVar[frozenset[str]] = frozenset({"clip_low", "clip_high"})
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset({"standardise"})

    name: Literal["gspo"] = "gspo"
    preset: Literal["paper", "official"] = PAPER_OR_OFFICIAL
    clip_low: float = Field(default=0.2, ge=0, description="lower clip range of the sequence ratio: 1 - clip_low")
    clip_high: float = Field(default=0.2, ge=0, description="upper clip range of the sequence ratio: 1 + clip_high")
    aggregate: Aggregate = Field(default="seq-mean-token-mean", description="how token losses are averaged")

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        import torch

        from quatro import ops

        sequence_B = ops.masked_mean(ops.log_ratio(logp_BT, batch), batch.mask_BT).detach()
        logp_BT = torch.where(batch.mask_BT, logp_BT, 0.0)
        log_ratio_BT = (sequence_B[:, None] + logp_BT - logp_BT.detach()).clamp(max=10.0)
        value_BT, clipped_BT = ops.clipped_surrogate(
            log_ratio_BT.exp(), batch.advantage_B.to(logp_BT.dtype)[:, None], self.clip_low, self.clip_high
        )
        value, weight = ops.aggregate(value_BT, batch, self.aggregate)
        metrics = {
            "clip_fraction": ops.mean_of(clipped_BT, batch.mask_BT),
            "clip_fraction_samples": ops.mean_of(clipped_BT.any(dim=-1), batch.mask_BT.any(dim=-1)),
            "clip_fraction_lower": ops.mean_of(torch.zeros_like(logp_BT), batch.mask_BT),
            "approx_kl": ops.approx_kl_metric(logp_BT, batch),
        }
        return Loss([LossTerm("policy", value, weight)], metrics)
