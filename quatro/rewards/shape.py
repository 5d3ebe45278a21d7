"""Rewards of a response's shape, to stand beside a verdict in a sum: how long it is, and whether it has a form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from quatro.rewards.base import Grade, Grades, Groups, Reward
from quatro.rewards.function import FunctionReward
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt


class LengthOptions(Block):
    """The keys of `reward.options` of `reward: length`."""

    short: int = Field(0, ge=0, description="a response of at most this many tokens earns 1")
    long: int = Field(
        description="a response of this many tokens or more earns 0; between the two the reward falls linearly"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.long <= self.short:
            raise ValueError(f"expected long above short ({self.short}), found {self.long}")
        return self


class LengthReward(Reward):
    """1 for a short response, falling linearly to 0 for a long one; tokens count, the stop token included."""

    Options: ClassVar[type[Block]] = LengthOptions

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        short, long = self.config.options.short, self.config.options.long
        return [
            [Grade(min(1.0, max(0.0, (long - len(rollout.token_ids)) / (long - short)))) for rollout in group]
            for group in completions
        ]


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"expected a regular expression of Python: {error}") from None
    return value


class FormatOptions(Block):
    """The keys of `reward.options` of `reward: format`."""

    pattern: Annotated[str, AfterValidator(_pattern)] = Field(
        r"\\boxed\{",
        description="Python regular expression to be searched in the response; `.` also matches line breaks, and ^ and "
        "$ are the ends of the response",
    )


def matches(thought: str, completion: str, pattern: str) -> bool:
    """Whether ``pattern`` is found in the whole response, its thought included."""
    return re.search(pattern, thought + completion, re.DOTALL) is not None


class FormatReward(FunctionReward):
    """1 for a response in which the pattern is found, else 0.

    It runs in child processes: a response can make some patterns search for hours.
    """

    Options: ClassVar[type[Block]] = FormatOptions

    def __init__(self, config: RewardConfig) -> None:
        super().__init__(config, f"{__name__}:{matches.__name__}")
