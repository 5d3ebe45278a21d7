"""DAPO: GRPO's surrogate with a wider upper clip, dynamic sampling and soft overlong shaping (semantics of verl)."""

from typing import ClassVar, Literal

from pydantic import Field

from quatro.methods.base import VERL_SURROGATE, GroupZScore, Presets, TokenSurrogate
from quatro.types import Needs


class Dapo(TokenSurrogate, GroupZScore):
    """The token surrogate of GRPO with clip_high above clip_low, averaged over the tokens of the minibatch.

    The loop does the two other parts, for any method: `rollout.dynamic_sampling`, which the presets switch on, draws
    until the batch is full of prompts whose rewards differ, and `overlong_*`, of the method's `needs`, is a penalty
    that grows over the last tokens before the length limit. The penalty does not touch the accuracy.
    """

    PRESETS: ClassVar[Presets] = {
        "paper": {**VERL_SURROGATE, "clip_high": 0.28, "overlong_buffer": 0, "rollout.dynamic_sampling": True},
        "official": {
            "clip_low": 0.2,
            "clip_high": 0.28,
            "dual_clip": 10.0,
            "aggregate": "token-mean",
            "overlong_buffer": None,
            "rollout.dynamic_sampling": True,
            "kl.beta": 0.0,
        },
        # The paper runs verl's implementation "without any modification": then DAPO is GRPO.
        "verl-default": {**VERL_SURROGATE, "overlong_buffer": 0},
    }
    VERL_DEFAULTS: ClassVar[frozenset[str]] = frozenset(
        {"clip_low", "dual_clip", "aggregate", "overlong_buffer", "standardise"}
    )

    name: Literal["dapo"] = "dapo"
    preset: Literal["paper", "official", "verl-default"] = Field(
        default="paper",
        description="fills the keys that are not set here: our reading of the paper's settings, those of the method's "
        "own scripts, or verl's defaults, under which DAPO is GRPO",
    )
    clip_high: float = Field(default=0.28, ge=0, description="upper clip range of a token's ratio: 1 + clip_high")
    overlong_buffer: int | None = Field(
        default=0,
        ge=0,
        description="the penalty for long responses begins this many tokens before the length limit; 0: no penalty; "
        "null: max_new_tokens / 5",
    )
    overlong_factor: float = Field(default=1.0, ge=0, description="penalty at the length limit, in units of reward")

    @property
    def needs(self) -> Needs:
        return Needs(overlong_buffer=self.overlong_buffer, overlong_factor=self.overlong_factor)
