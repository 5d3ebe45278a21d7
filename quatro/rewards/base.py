"""The interface of a reward: `score`, and for a line in `quatro/registry.py` also `check` and `open`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from evals.errors import DivergedError
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt, Rollout

Groups = Sequence[Sequence[Rollout]]  # one sequence of rollouts for each prompt


@dataclass(frozen=True)
class Scored:
    """``reward[i][j]`` and ``correct[i][j]`` belong to rollout j of prompt i; a reward may know no ``correct`` (None).

    The rewards of ``num_errors`` rollouts raised or died, and ``num_timeouts`` were killed at their deadline. Both earn
    0 like a wrong answer, so they are counted apart.
    """

    reward: list[list[float]]
    correct: list[list[bool | None]]
    num_errors: int = 0
    num_timeouts: int = 0


class Reward(Protocol):
    """Grades rollouts; `quatro/rewards/countdown.py` is a short example.

    ``Options`` are the keys that `reward.options` may have, and ``LIMITS`` names which of `timeout_s`, `workers` and
    `on_error` the reward heeds: a configuration that sets another one is refused. By default there are none.
    """

    Options: ClassVar[type[Block]] = Block
    LIMITS: ClassVar[frozenset[str]] = frozenset()

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Scored:
        """Rewards of ``completions[i]``, the rollouts of ``prompts[i]``.

        Raises:
            DataError: a prompt has no usable reference answer.
            DivergedError: a reward is not finite, or too large; the message names the prompt.
            QuatroError: a user's function raised (policy `fail`); sample and traceback are in the message.
        """

    def second_opinion(
        self, prompts: Sequence[Prompt], completions: Groups, scored: Scored, seed: str
    ) -> Callable[[], dict[str, float]]:
        """Starts to grade some rollouts in a second way; the returned function waits for that and gives its metrics.

        The metrics depend on the arguments alone. A reward without a second way gives none.
        """
        return dict

    def environment(self) -> Mapping[str, str]:
        """What of this machine the grades depend on, for environment.json."""
        return {}

    def close(self) -> None:
        """Ends child processes; scoring again starts them anew."""
        return None


class RegisteredReward(Reward, Protocol):
    """A class of `REWARDS`. Its module imports no torch."""

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first prompt that the reward cannot grade with ``options``, its `Options`."""

    @classmethod
    def open(cls, config: RewardConfig) -> Reward:
        """The reward, ready to score; ``config.options`` are its `Options`, and limits of None are its own choice."""


class VerifiedReward(Reward):
    """1 for a correct rollout, 0 for any other."""

    def __init__(self, is_correct: Callable[[Prompt, Rollout], bool]) -> None:
        self._is_correct = is_correct

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Scored:
        correct: list[list[bool | None]] = [
            [self._is_correct(prompt, rollout) for rollout in rollouts]
            for prompt, rollouts in zip(prompts, completions, strict=True)
        ]
        return Scored([[float(bool(verdict)) for verdict in group] for group in correct], correct)


# Losses are computed in float32, which can hold the square of this.
MAX_REWARD = 1e18


def require_usable(prompts: Sequence[Prompt], reward: Sequence[Sequence[float]]) -> None:
    """DivergedError that names the first prompt with a reward that is NaN, infinite or beyond ``MAX_REWARD``."""
    for prompt, values in zip(prompts, reward, strict=True):
        for index, value in enumerate(values):
            if not abs(value) <= MAX_REWARD:
                raise DivergedError(
                    f"the reward of rollout {index} of {prompt.benchmark} {prompt.id!r} is {value}; rewards must be "
                    f"finite numbers between {-MAX_REWARD:g} and {MAX_REWARD:g}"
                )
