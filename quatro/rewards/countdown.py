"""The reward of the embedded benchmark."""

from __future__ import annotations

from evals.countdown import solves
from evals.errors import DataError
from quatro.rewards.base import VerifiedReward
from quatro.types import Prompt, Rollout


def countdown_reward() -> VerifiedReward:
    return VerifiedReward(_is_correct)


def _is_correct(prompt: Prompt, rollout: Rollout) -> bool:
    """The benchmark's own verdict: a reward of 1 and a "correct" never differ."""
    try:
        return solves(prompt.answer or prompt.problem, rollout.text, rollout.finish_reason)
    except DataError as error:
        raise DataError(f"{prompt.benchmark} {prompt.id!r}: {error}") from error
