"""What GRPO, MaxRL and PKPO share: PPO's clipped surrogate on token ratios."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from quatro.methods.base import Aggregate, Method
from quatro.types import Batch, Loss

if TYPE_CHECKING:
    from torch import Tensor


class TokenSurrogate(Method):
    """loss = aggregate of max(-r A, -clip(r, 1 - low, 1 + high) A), at most -c A where A < 0; r is a token's ratio."""

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
