"""The interface of a method: a frozen config object with two pure functions, `advantages` and `loss`."""

# Axes: B rows (rollouts), T response tokens.
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from evals.errors import UsageError
from quatro.types import Advantages, Batch, Block, Loss, LossTerm, Needs, Tensor

Presets = Mapping[str, Mapping[str, Any]]
Aggregate = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


class Method(Block, ABC):
    """Fields are the method's hyper-parameters. The trainer never asks which method it has."""

    # `preset: NAME` fills keys that nobody set: the method's own fields, or dotted keys of the whole config.
    PRESETS: ClassVar[Presets] = {}
    # Own fields whose default the paper states, and own fields for which the paper follows verl's default; the other
    # fields are our reading of the paper (docs/methods.md). `quatro.config.load` knows about dotted keys.
    STATED_BY_PAPER: ClassVar[frozenset[str]] = frozenset()
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset()

    name: str

    @property
    def kl_radius(self) -> float | None:
        """The bound in nats that the method sets on each prompt's KL(pi_new || pi_old); None without one."""
        return None

    @property
    def min_kl_radius(self) -> float | None:
        """The smallest radius in nats that `at` may put in force."""
        return self.kl_radius

    @property
    def needs(self) -> Needs:
        """What the method asks of the loop; by default nothing."""
        return Needs()

    def at(self, carried: Mapping[str, float]) -> "Method":
        """The method in force in an iteration; ``carried`` is what `carry` returned for the one before, if any."""
        return self

    def carry(self, carried: Mapping[str, float], metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The finite numbers that the next iteration is given, made of ``carried`` and the metrics of this one.

        They are part of a checkpoint. The loop asks the configured method, not the one in force.
        """
        return {}

    @abstractmethod
    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        """The advantage of each row, from the rewards of all ranks; rows in any order, groups of any size.

        What else `needs` ask of the rows comes by keyword.

        Raises ValueError if a reward is not finite.
        """

    @abstractmethod
    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        """Loss terms of some rows; the trainer divides each by its weight over the whole minibatch."""


# What presets that follow verl fill of the KL term, and of `TokenSurrogate` besides.
VERL_KL: Mapping[str, Any] = {"kl.beta": 0.001, "kl.aggregate": "token-mean"}
VERL_SURROGATE = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0, "aggregate": "token-mean", **VERL_KL}

# The field `preset` of a method that has these two.
PAPER_OR_OFFICIAL: Any = Field(
    default="paper",
    description="fills the keys that are not set here with the paper's settings, or with those of the method's own "
    "scripts",
)


class GroupZScore(Method):
    """What GRPO and its descendants share: A = (R - mean) / (std + 1e-6) within each prompt's rollouts.

    A is exactly 0 where all rewards are equal.
    """

    standardise: bool = Field(
        default=True, description="divide the centred reward by the group's standard deviation; false is Dr. GRPO"
    )

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        from quatro.ops import group_zscore

        return Advantages(group_zscore(reward_B, group_B, standardise=self.standardise))


class TokenSurrogate(Method):
    """PPO's clipped surrogate on token ratios r, with verl's dual clip (GRPO and DAPO; paper, Eq. grpo_loss).

    loss = aggregate of max(-r A, -clip(r, 1 - low, 1 + high) A), at most -c A where A < 0

    So a token that has become much too likely cannot dominate. Token log-ratios are clamped at +-20 as in verl: beyond
    that a token has no gradient.
    """

    # The paper's table states a clip range for GSPO only.
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset(
        {"clip_low", "clip_high", "dual_clip", "aggregate", "standardise"}
    )

    clip_low: float = Field(default=0.2, ge=0, description="lower clip range of a token's ratio: 1 - clip_low")
    clip_high: float = Field(default=0.2, ge=0, description="upper clip range of a token's ratio: 1 + clip_high")
    dual_clip: float | None = Field(
        default=3.0, gt=1, description="c: a token's loss is at most -c A where A < 0; null is off"
    )
    aggregate: Aggregate = Field(default="token-mean", description="how token losses are averaged")

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        import torch

        from quatro import ops

        log_ratio_BT = ops.log_ratio(logp_BT, batch).clamp(-20.0, 20.0)
        advantage_B1 = batch.advantage_B.to(log_ratio_BT.dtype)[:, None]
        value_BT, clipped_BT = ops.clipped_surrogate(log_ratio_BT.exp(), advantage_B1, self.clip_low, self.clip_high)
        lower_BT = torch.zeros_like(clipped_BT)
        if self.dual_clip is not None:
            bound_B1 = -self.dual_clip * advantage_B1
            lower_BT = (advantage_B1 < 0) & (value_BT > bound_B1)
            value_BT = torch.where(advantage_B1 < 0, torch.minimum(value_BT, bound_B1), value_BT)
        value, weight = ops.aggregate(value_BT, batch, self.aggregate)
        metrics = {
            "clip_fraction": ops.mean_of(clipped_BT, batch.mask_BT),
            "clip_fraction_lower": ops.mean_of(lower_BT, batch.mask_BT),
            "approx_kl": ops.mean_of(-log_ratio_BT, batch.mask_BT),
        }
        return Loss([LossTerm("policy", value, weight)], metrics)


class AbsentMethod(Method, extra="allow"):
    """Stands for a method of the user's own in a run that is read where its module is not.

    It has the keys of the block as they stand, unchecked; it can be looked at and cannot train.
    """

    _reason: str = PrivateAttr("")

    @classmethod
    def of(cls, block: dict[str, Any], reason: str) -> "AbsentMethod":
        found = cls.model_validate(block)
        found._reason = reason
        return found

    @property
    def kl_radius(self) -> float | None:
        """`delta`, if the block has one."""
        delta = (self.model_extra or {}).get("delta")
        return delta if isinstance(delta, float) else None

    def refuse(self) -> UsageError:
        """The error of the import, with what to do."""
        return UsageError(f"{self._reason}; call quatro from the folder that holds it")

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        raise self.refuse()

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        raise self.refuse()
