"""The mathematical reward is the benchmark grader: reward 1 and a benchmark's "correct" mean the same."""

from __future__ import annotations

from evals.errors import DataError
from evals.grading import grade
from quatro.rewards.base import VerifiedReward
from quatro.types import Prompt, Rollout


def math_reward() -> VerifiedReward:
    return VerifiedReward(_is_correct)


def _is_correct(prompt: Prompt, rollout: Rollout) -> bool:
    # The completion alone: a prompt may hold the box of an earlier part.
    verdict = grade(rollout.text, prompt.answer)
    if verdict.outcome == "error":
        raise DataError(
            f"{prompt.benchmark} {prompt.id!r} has no reference answer, so the reward `math` cannot judge it"
        )
    return verdict.correct
