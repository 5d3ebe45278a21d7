"""The reward of the embedded benchmark."""

from __future__ import annotations

from evals.countdown import verify
from evals.errors import DataError
from quatro.rewards.base import VerifiedReward
from quatro.types import Prompt, Rollout


def countdown_reward() -> VerifiedReward:
    return VerifiedReward(_is_correct)


def _is_correct(prompt: Prompt, rollout: Rollout) -> bool:
    """Correct and finished: a solution that runs on until it is cut off earns nothing."""
    try:
        is_solution = verify(prompt.answer or prompt.problem, rollout.text)
    except DataError as error:
        raise DataError(f"{prompt.benchmark} {prompt.id!r}: {error}") from error
    return is_solution and rollout.finish_reason == "stop"
