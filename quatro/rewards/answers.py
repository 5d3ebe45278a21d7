"""Rewards of answers to mathematics and countdown: the verdict of the benchmark, and how near an answer comes.

The verdict is the benchmark's own: a reward of 1 and its "correct" mean the same.
"""

from collections.abc import Sequence
from typing import Any

from evals.errors import DataError
from quatro.rewards.base import Grade, Grades, Groups, Reward, VerifiedReward, pairs, regrouped, verdict
from quatro.rewards.settings import RewardConfig
from quatro.tasks.countdown import distance, parse_prompt, solves
from quatro.types import Prompt, Rollout


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
        from evals.grading import grade_many

        self.check(prompts)
        # The completion alone: a prompt may hold the box of an earlier part.
        grades = grade_many((rollout.text, prompt.answer) for prompt, rollout in pairs(prompts, completions))
        return regrouped((verdict(grade.correct) for grade in grades), completions)


class CountdownReward(VerifiedReward):
    """1 for a correct chain that ends, 0 for any other."""

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first answer, or problem without one, that is no countdown prompt."""
        for prompt in prompts:
            parse_prompt(prompt.answer or prompt.problem)

    def __init__(self, config: RewardConfig) -> None:
        super().__init__(_is_correct)


class DistanceReward(CountdownReward):
    """1 / (1 + distance of the last total from the target) for a chain that ends; 0 for what is no chain.

    So rewards are graded where the benchmark's are 0 and 1; ``correct`` is the benchmark's verdict as before.
    """

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        grades = []
        for prompt, rollout in pairs(prompts, completions):
            is_cut = rollout.finish_reason == "length"
            far = None if is_cut else distance(prompt.answer or prompt.problem, rollout.text)
            grades.append(Grade(0.0 if far is None else 1.0 / (1.0 + far), _is_correct(prompt, rollout)))
        return regrouped(grades, completions)


def _is_correct(prompt: Prompt, rollout: Rollout) -> bool:
    """The benchmark's own verdict: a reward of 1 and a "correct" never differ."""
    try:
        return solves(prompt.answer or prompt.problem, rollout.text, rollout.finish_reason)
    except DataError as error:
        raise DataError(f"{prompt.benchmark} {prompt.id!r}: {error}") from error
