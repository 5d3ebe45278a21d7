"""The interface of a reward, `Reward`, and what rewards share: pairs of prompt and rollout, verdicts, failures."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from evals.errors import DivergedError, QuatroError
from evals.files.strict_json import shown
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt, Rollout

Groups = Sequence[Sequence[Rollout]]  # one sequence of rollouts for each prompt
T = TypeVar("T")


@dataclass(frozen=True)
class Grade:
    """What one rollout earned; ``correct`` is None where the reward has no notion of it.

    ``logged`` are further numbers by name, whose means become the metrics `reward/parts/NAME`: the rewards of a list,
    or what a function returned beside the reward. ``error`` says in a line why the rollout could not be graded; then it
    earns 0, or ``is_dropped``, which takes it out of its group. ``is_timeout``: it was killed at its deadline.
    """

    reward: float
    correct: bool | None = None
    logged: Mapping[str, float] = field(default_factory=dict)
    is_dropped: bool = False
    error: str = ""
    is_timeout: bool = False

    @property
    def is_right(self) -> bool:
        """Whether it is ``correct``, or where nobody says that, whether it earned something."""
        return not self.is_dropped and (self.reward > 0 if self.correct is None else self.correct)


Grades = list[list[Grade]]  # those of rollout j of prompt i at [i][j]


class Reward(ABC):
    """Grades rollouts; `quatro/rewards/answers.py` is a short example. Its module imports no torch.

    A reward in `REWARDS` (`quatro/registry.py`) is made from a `RewardConfig`, and has `check` unless it takes any
    prompt. ``Options`` are the keys that `reward.options` may have, and ``LIMITS`` names which of `timeout_s`,
    `workers` and `on_error` the reward heeds: a configuration that sets another one is refused. By default there are
    none. ``parts`` are the rewards that it is made of.
    """

    Options: ClassVar[type[Block]] = Block
    LIMITS: ClassVar[frozenset[str]] = frozenset()
    parts: "Sequence[Reward]" = ()

    def __init__(self, config: RewardConfig) -> None:
        """Ready to score; ``config.options`` are its `Options`, and limits of None are its own choice."""
        self.config = config

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first prompt that the reward cannot grade with ``options``, its `Options`."""
        return None

    @abstractmethod
    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        """Grades of ``completions[i]``, the rollouts of ``prompts[i]``.

        Raises:
            DataError: a prompt has no usable reference answer.
            DivergedError: a reward is not finite, or too large; the message names the prompt.
            QuatroError: a user's function raised (policy `fail`); sample and traceback are in the message.
        """

    def environment(self) -> Mapping[str, str]:
        """What of this machine the grades depend on, for environment.json."""
        return {name: value for part in self.parts for name, value in part.environment().items()}

    def device_bytes(self, device: str) -> int:
        """Memory that it holds on the kind of device, `cpu` or `cuda`, on which the policy is trained."""
        return sum(part.device_bytes(device) for part in self.parts)

    def close(self) -> None:
        """Ends child processes; scoring again starts them anew."""
        for part in self.parts:
            part.close()


class VerifiedReward(Reward):
    """1 for a correct rollout, 0 for any other."""

    def __init__(self, is_correct: Callable[[Prompt, Rollout], bool]) -> None:
        self._is_correct = is_correct

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        return regrouped((verdict(self._is_correct(*pair)) for pair in pairs(prompts, completions)), completions)


def pairs(prompts: Sequence[Prompt], completions: Groups) -> list[tuple[Prompt, Rollout]]:
    """Every rollout with its prompt, prompt after prompt."""
    return [(prompt, one) for prompt, group in zip(prompts, completions, strict=True) for one in group]


def regrouped(flat: Iterable[T], completions: Groups) -> list[list[T]]:
    """What belongs to the rollouts of `pairs`, in their order, as one list for each prompt."""
    left = iter(flat)
    return [[next(left) for _ in group] for group in completions]


def verdict(is_correct: bool | None) -> Grade:
    """1 for a correct rollout, 0 for any other; None is a rollout on which there is no verdict."""
    return Grade(float(bool(is_correct)), is_correct)


# While each of several sources' rewards grades its share of an iteration: all its rollouts, how many of other sources
# failed, and on how many of this source each function has failed.
ITERATION = ContextVar[tuple[int, int, Counter[str]] | None]("ITERATION", default=None)


def refuse_failures(details: Sequence[str], num_rollouts: int, what: str) -> None:
    """Raises QuatroError if ``what`` failed on too many rollouts to learn from; ``details`` say why, one for each."""
    num_all, num_before, failed = ITERATION.get() or (num_rollouts, 0, Counter())
    failed[what] += len(details)
    if details and num_before + failed[what] >= max(16, 0.5 * num_all):
        raise QuatroError(
            f"{what} failed on {len(details)} of {num_rollouts} rollouts; where half of an iteration's rollouts fail, "
            f"the run ends, whatever `reward.on_error` says. The first of them:\n{details[0]}"
        )


def failure(kind: str, detail: str) -> str:
    """`timeout: it ran longer than 10 s`: a `Grade.error`, one line of at most 200 characters."""
    return f"{kind}: {detail}".partition("\n")[0][:200]


# Losses are computed in float32, which can hold the square of this.
MAX_REWARD = 1e18


def require_usable(prompts: Sequence[Prompt], completions: Groups, grades: Grades, giver: str = "the reward") -> None:
    """Refuses rewards that are NaN, infinite or beyond ``MAX_REWARD``.

    Raises DivergedError, which names ``giver``, the first such prompt and the response.
    """
    for prompt, rollouts, group in zip(prompts, completions, grades, strict=True):
        for index, (rollout, grade) in enumerate(zip(rollouts, group, strict=True)):
            if not abs(grade.reward) <= MAX_REWARD:
                raise DivergedError(
                    f"{giver} gave {grade.reward} to rollout {index} of {prompt.benchmark} {prompt.id!r}; expected a "
                    f"finite number between {-MAX_REWARD:g} and {MAX_REWARD:g}\n  the response: {shown(rollout.text)}"
                )
