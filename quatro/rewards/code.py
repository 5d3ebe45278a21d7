"""The reward of code: a program earns what it passes of its problem's tests, in the sandbox."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from evals.code.grading import MEMORY_MB, TIMEOUT_S, Answer, CodeGrade, CodeGrader, isolation, sandbox_tests
from evals.errors import DataError
from quatro.rewards.base import Grade, Grades, Groups, Reward, failure, pairs, refuse_failures, regrouped
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt

_log = logging.getLogger(__name__)


class CodeOptions(Block):
    """The keys of `reward.options` of `reward: code`."""

    score: Literal["all", "fraction"] = Field(
        "all", description="all: 1 if every test passes, else 0; fraction: the share of tests that pass"
    )
    memory_mb: int = Field(MEMORY_MB, ge=64, description="address space of a program, in MB")


class CodeReward(Reward):
    """Runs the program in each completion with its problem's tests; ``timeout_s`` is CPU time of a program."""

    Options: ClassVar[type[Block]] = CodeOptions
    LIMITS: ClassVar[frozenset[str]] = frozenset({"timeout_s", "workers"})

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first prompt without tests, or with tests that cannot be read."""
        for prompt in prompts:
            at = f"prompt {prompt.id!r} of {prompt.benchmark}"
            sets = prompt.extra.get("tests")
            if not sets:
                raise DataError(f"{at} has no tests, and the reward is code; give it `tests`, or choose another reward")
            try:
                for tests in sets.values():
                    sandbox_tests(tests, prompt.extra.get("entry_point"))
            except (AttributeError, ValueError) as error:
                raise DataError(f"{at}: its tests cannot be read: {error}") from error

    def __init__(self, config: RewardConfig) -> None:
        self._is_fraction = config.options.score == "fraction"
        self._grader = CodeGrader(
            workers=config.workers or 0,
            timeout_s=config.timeout_s or TIMEOUT_S,
            memory_mb=config.options.memory_mb,
            every_test=self._is_fraction,
        )

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        answers = [
            Answer((prompt.benchmark, prompt.id), rollout.text, prompt.extra, prompt.problem)
            for prompt, rollout in pairs(prompts, completions)
        ]
        grades = self._grader.grade(answers)
        failed = [grade.failed[1] for grade in grades if grade.failed is not None]
        errors = [one.detail for one in failed if one.status == "infra_error"]
        refuse_failures(errors, len(grades), "the sandbox")
        if errors:
            _log.warning("%d of %d programs could not be run; they earn 0", len(errors), len(grades))
        return regrouped(map(self._grade, grades), completions)

    def _grade(self, found: CodeGrade) -> Grade:
        reward = float(found.is_right)
        if self._is_fraction:
            num_tests = sum(verdict.num_tests for verdict in found.verdicts.values())
            reward = sum(verdict.num_passed for verdict in found.verdicts.values()) / max(1, num_tests)
        if found.failed is None or found.failed[1].status not in ("infra_error", "timeout"):
            return Grade(reward, found.is_right)
        status, detail = found.failed[1].status, found.failed[1].detail
        return Grade(reward, found.is_right, error=failure(status, detail), is_timeout=status == "timeout")

    def environment(self) -> Mapping[str, str]:
        return {"sandbox": isolation()}

    def close(self) -> None:
        self._grader.close()
