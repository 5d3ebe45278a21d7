"""CISPO: policy gradient weighted by a clipped, detached token ratio (semantics of verl 0.9.1)."""

# Axes: B rows (rollouts), T response tokens.
from typing import ClassVar, Literal

from pydantic import Field

from quatro.methods.base import PAPER_OR_OFFICIAL, VERL_KL, Aggregate, GroupZScore, Presets
from quatro.types import Batch, Loss, LossTerm, Tensor


class Cispo(GroupZScore):
    """loss = aggregate of -stopgrad(clip(r, 1 - low, 1 + high)) A logp: every token keeps a gradient.

    The official script has no lower bound in effect (clip_low 10).
    """

    PRESETS: ClassVar[Presets] = {
        "paper": {"clip_low": 0.2, "clip_high": 0.2, "aggregate": "token-mean", **VERL_KL},
        "official": {"clip_low": 10.0, "clip_high": 0.2, "aggregate": "token-mean", "kl.beta": 0.0},
    }
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset({"clip_low", "clip_high", "aggregate", "standardise"})

    name: Literal["cispo"] = "cispo"
    preset: Literal["paper", "official"] = PAPER_OR_OFFICIAL
    clip_low: float = Field(default=0.2, ge=0, description="lower clip range of a token's ratio: 1 - clip_low")
    clip_high: float = Field(default=0.2, ge=0, description="upper clip range of a token's ratio: 1 + clip_high")
    aggregate: Aggregate = Field(default="token-mean", description="how token losses are averaged")

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        from quatro import ops

        log_ratio_BT = ops.log_ratio(logp_BT, batch).detach().clamp(-20.0, 20.0)
        ratio_BT = log_ratio_BT.exp()
        clipped_BT = ratio_BT.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        value_BT = -clipped_BT * batch.advantage_B.to(logp_BT.dtype)[:, None] * logp_BT
        value, weight = ops.aggregate(value_BT, batch, self.aggregate)
        metrics = {
            "clip_fraction": ops.mean_of(ratio_BT != clipped_BT, batch.mask_BT),
            "approx_kl": ops.mean_of(-log_ratio_BT, batch.mask_BT),
        }
        return Loss([LossTerm("policy", value, weight)], metrics)
