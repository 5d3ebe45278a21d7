"""GPG: plain policy gradient with a batch-wide correction for prompts without a signal (semantics of verl 0.9.1)."""

# Axes: B rows (rollouts), T response tokens.
from typing import ClassVar, Literal

from pydantic import Field

from quatro.methods.base import PAPER_OR_OFFICIAL, VERL_KL, Aggregate, Method, Presets
from quatro.types import Advantages, Batch, Loss, LossTerm, Tensor


class Gpg(Method):
    """loss = aggregate of -A logp without ratio or clip; A = alpha (R - mean), alpha = B / number of rewards not 0.

    alpha is one number for the whole batch of all ranks. The mean of a prompt with one rollout counts as 0.
    """

    PRESETS: ClassVar[Presets] = {
        "paper": {"aggregate": "token-mean", **VERL_KL},
        "official": {"aggregate": "token-mean", "kl.beta": 0.0},
    }
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset({"aggregate"})

    name: Literal["gpg"] = "gpg"
    preset: Literal["paper", "official"] = PAPER_OR_OFFICIAL
    aggregate: Aggregate = Field(default="token-mean", description="how token losses are averaged")

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        from quatro.ops import group_zscore

        alpha = reward_B.numel() / max(1, int((reward_B != 0).sum()))
        value_B = alpha * group_zscore(reward_B, group_B, standardise=False)
        return Advantages(value_B, {"advantage/alpha": alpha})

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        from quatro import ops

        value_BT = -logp_BT * batch.advantage_B.to(logp_BT.dtype)[:, None]
        value, weight = ops.aggregate(value_BT, batch, self.aggregate)
        return Loss([LossTerm("policy", value, weight)], {"approx_kl": ops.approx_kl_metric(logp_BT, batch)})
