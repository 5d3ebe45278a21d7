"""GRPO: clipped surrogate on token ratios with group z-scores (paper, Eq. grpo_loss; semantics of verl 0.9.1)."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from quatro.methods.base import Aggregate
from quatro.methods.zscore import GroupZScore
from quatro.types import Batch, Loss

if TYPE_CHECKING:
    from torch import Tensor


class Grpo(GroupZScore):
    """loss = aggregate of max(-r A, -clip(r, 1 - low, 1 + high) A), at most -c A where A < 0; r is a token's ratio.

    ``standardise: false`` with ``aggregate: seq-mean-token-sum-norm`` is Dr. GRPO; ``seq-mean-token-mean`` is how
    DeepSeekMath averages, ``token-mean`` how verl does.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {
            "clip_low": 0.2,
            "clip_high": 0.2,
            "dual_clip": 3.0,
            "aggregate": "token-mean",
            "kl.beta": 0.001,
            "kl.aggregate": "token-mean",
        }
        for name in ("paper", "official")
    }
    # The paper's table states a clip range for GSPO only.
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset(
        {"clip_low", "clip_high", "dual_clip", "aggregate", "standardise"}
    )

    name: Literal["grpo"] = "grpo"
    preset: Literal["paper", "official"] = Field(
        default="paper",
        description="fills the keys that are not set here with the paper's settings, or with those of the method's own "
        "scripts",
    )
    clip_low: float = Field(default=0.2, ge=0, description="lower clip range of a token's ratio: 1 - clip_low")
    clip_high: float = Field(default=0.2, ge=0, description="upper clip range of a token's ratio: 1 + clip_high")
    dual_clip: float | None = Field(
        default=3.0, gt=1, description="c: a token's loss is at most -c A where A < 0; null is off"
    )
    aggregate: Aggregate = Field(default="token-mean", description="how token losses are averaged")

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        from quatro.ops import token_surrogate

        return token_surrogate(
            logp_BT,
            batch,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
            how=self.aggregate,
        )
