"""The mathematical reward is the benchmark grader: reward 1 and a benchmark's "correct" mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evals.errors import DataError
from evals.grading import grade_many
from quatro.rewards.base import Grades, Groups, Reward, pairs, regrouped, verdict
from quatro.types import Prompt


class MathReward(Reward):
    """1 for a correct rollout, 0 for any other. All rollouts of an iteration are graded in one batch."""

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any = None) -> None:
        """Raises DataError for the first prompt without a reference answer."""
        for prompt in prompts:
            if not (prompt.answer or "").strip():
                raise DataError(
                    f"prompt {prompt.id!r} of {prompt.benchmark} has no reference answer, and the reward is math; "
                    "give it an `answer`, leave it out, or choose another reward"
                )

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        self.check(prompts)
        # The completion alone: a prompt may hold the box of an earlier part.
        grades = grade_many((rollout.text, prompt.answer) for prompt, rollout in pairs(prompts, completions))
        return regrouped((verdict(grade.correct) for grade in grades), completions)
