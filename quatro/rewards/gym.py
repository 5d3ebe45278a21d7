"""The reward of a task of reasoning-gym: the score that the library's own checker gives."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from evals.benchmarks.gym import COLUMN, Reference, entry, reference_of
from evals.benchmarks.gym.scoring import Asked, GymGrader, Score
from evals.errors import DataError
from evals.files.strict_json import shown
from quatro.rewards.base import Grade, Grades, Groups, Reward, failure, pairs, refuse_failures, regrouped
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt


class GymOptions(Block):
    """The keys of `reward.options` of `reward: reasoning-gym`."""

    partial: bool = Field(
        True, description="true: the checker's score from 0 to 1; false: 1 for the whole score, else 0"
    )


class GymReward(Reward):
    """The library's score; ``correct`` is the whole score, as in an evaluation."""

    Options: ClassVar[type[Block]] = GymOptions

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first prompt that is no item of the library, or of another version of it."""
        for prompt in prompts:
            entry(_reference(prompt))

    def __init__(self, config: RewardConfig) -> None:
        self._is_partial = config.options.partial
        self._grader = GymGrader()

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        asked = [
            Asked(_reference(prompt), rollout.text, rollout.finish_reason == "length")
            for prompt, rollout in pairs(prompts, completions)
        ]
        scores = self._grader.score(asked)
        # A checker that raises, or never ends, may have been made to by what the model wrote: such an answer is wrong.
        errors = [grade.detail for _, grade in scores if grade.outcome == "infra_error"]
        refuse_failures(errors, len(scores), "the checkers of reasoning-gym")
        return regrouped(map(self._grade, scores), completions)

    def _grade(self, score: Score) -> Grade:
        value, grade = score
        has_failed = grade.outcome in ("error", "infra_error", "timeout")
        return Grade(
            value if self._is_partial else float(grade.correct),
            grade.correct,
            error=failure(grade.outcome, grade.detail) if has_failed else "",
            is_timeout=grade.outcome == "timeout",
        )

    def close(self) -> None:
        self._grader.close()


def _reference(prompt: Prompt) -> Reference:
    found = reference_of(prompt.extra.get(COLUMN))
    if found is None:
        raise DataError(
            f"prompt {shown(prompt.id)} of {prompt.benchmark} is no item of reasoning-gym: its column {COLUMN} is "
            f"{shown(prompt.extra.get(COLUMN))}; train on reasoning-gym:TASK or on an entry of quatro-benchmarks.toml "
            "with `reasoning_gym`, or choose another reward"
        )
    return found
