"""The reward of the embedded benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evals.benchmarks.countdown import parse_prompt, solves
from evals.errors import DataError
from quatro.rewards.base import VerifiedReward
from quatro.rewards.settings import RewardConfig
from quatro.types import Prompt, Rollout


class CountdownReward(VerifiedReward):
    """1 for a correct chain that ends, 0 for any other."""

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first answer, or problem without one, that is no countdown prompt."""
        for prompt in prompts:
            parse_prompt(prompt.answer or prompt.problem)

    @classmethod
    def open(cls, config: RewardConfig) -> CountdownReward:
        return cls(_is_correct)


def _is_correct(prompt: Prompt, rollout: Rollout) -> bool:
    """The benchmark's own verdict: a reward of 1 and a "correct" never differ."""
    try:
        return solves(prompt.answer or prompt.problem, rollout.text, rollout.finish_reason)
    except DataError as error:
        raise DataError(f"{prompt.benchmark} {prompt.id!r}: {error}") from error
