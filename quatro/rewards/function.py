"""A user's Python function as the reward: `module:function`, called as f(prompt, completion, answer, **options)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from evals.errors import QuatroError, UsageError
from evals.worker_pool import CannotStartError, Failure, Message, WorkerPool
from quatro.rewards.base import Groups, RegisteredReward, Scored, require_usable
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt

# With more failures a run would learn nothing and wait for deadlines: it stops even under the policy `zero`.
MAX_FAILED_SHARE = 0.5
MIN_FAILED = 16
TIMEOUT_S = 10.0
MAX_WORKERS = 4
# Importing a user's module may pull in anything.
START_TIMEOUT_S = 120.0
# For what the function still has to write when it is no longer needed.
GRACE_S = 0.05


@dataclass(frozen=True)
class CallOutcome:
    """``reward`` of one call, or what became of it; ``detail`` is the traceback or the cause of death."""

    kind: Literal["reward", "error", "timeout"]
    reward: float = 0.0
    detail: str = ""


def _through_json(value: Any) -> Any:
    """``value`` as the worker process will get it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        raise ValueError("expected text, finite numbers, true, false, null, or lists and blocks of them") from None


class FunctionReward(RegisteredReward):
    """Runs the function in child processes.

    ``prompt`` is what the model read (`Prompt.text`), ``answer`` the raw reference answer or None.

    Raises:
        UsageError: the function cannot be imported or called with the options; this is found out here and not at the
            first call.
    """

    class Options(Block, extra="allow"):
        """Keyword arguments of the function, which alone knows their names."""

        __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_through_json)]]

    LIMITS: ClassVar[frozenset[str]] = frozenset({"timeout_s", "workers", "on_error"})

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """A function takes any prompt."""

    @classmethod
    def open(cls, config: RewardConfig) -> FunctionReward:
        return cls(config)

    def __init__(self, config: RewardConfig) -> None:
        self.spec = config.name
        self.timeout_s = TIMEOUT_S if config.timeout_s is None else config.timeout_s
        self.on_error = config.on_error
        self._pool = WorkerPool(
            ["-m", "quatro.rewards.worker", self.spec, json.dumps(config.options.model_dump())],
            num_workers=config.workers or min(MAX_WORKERS, os.cpu_count() or 1),
            timeout_s=self.timeout_s,
            start_timeout_s=START_TIMEOUT_S,
            grace_s=GRACE_S,
        )
        try:
            self._pool.start()
        except CannotStartError as error:
            raise self._cannot_load(str(error)) from error

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Scored:
        calls = [
            (prompt.text, rollout.text, prompt.answer)
            for prompt, rollouts in zip(prompts, completions, strict=True)
            for rollout in rollouts
        ]
        try:
            answers = self._pool.ask(calls)
        except CannotStartError as error:
            raise self._cannot_load(str(error)) from error
        outcomes = iter([self._outcome(answer) for answer in answers])
        by_prompt = [[next(outcomes) for _ in rollouts] for rollouts in completions]
        flat = [outcome for group in by_prompt for outcome in group]
        num_errors = sum(outcome.kind == "error" for outcome in flat)
        num_timeouts = sum(outcome.kind == "timeout" for outcome in flat)
        if num_errors and self.on_error == "fail":
            raise self._failure(prompts, by_prompt)
        if num_errors + num_timeouts >= max(MIN_FAILED, MAX_FAILED_SHARE * len(flat)):
            raise QuatroError(
                f"the reward function {self.spec!r} failed on {num_errors + num_timeouts} of {len(flat)} rollouts "
                f"({num_errors} raised, {num_timeouts} ran longer than {self.timeout_s:g} s)\n"
                + next((outcome.detail for outcome in flat if outcome.kind == "error"), "")
            )
        reward = [[outcome.reward for outcome in group] for group in by_prompt]
        require_usable(prompts, reward)
        return Scored(reward, [[None] * len(group) for group in reward], num_errors, num_timeouts)

    def _outcome(self, answer: Message | Failure) -> CallOutcome:
        if isinstance(answer, Failure):
            if answer.kind == "not started":
                raise self._cannot_load(f"its process {answer.detail}")
            if answer.kind == "overdue":
                return CallOutcome("timeout")
            return CallOutcome("error", detail=f"the process of the reward function {answer.detail}")
        if "error" in answer:
            return CallOutcome("error", detail=str(answer["error"]))
        if not isinstance(answer.get("reward"), float):
            raise QuatroError(
                f"the reward worker sent {answer!r:.200}; expected a reward (does the function write to fds?)"
            )
        return CallOutcome("reward", answer["reward"])

    def _cannot_load(self, reason: str) -> UsageError:
        return UsageError(
            f"cannot load the reward function {self.spec!r} (expected module:function, importable from the current "
            f"directory):\n{reason}"
        )

    def _failure(self, prompts: Sequence[Prompt], by_prompt: Sequence[Sequence[CallOutcome]]) -> QuatroError:
        prompt, index, outcome = next(
            (prompt, index, outcome)
            for prompt, group in zip(prompts, by_prompt, strict=True)
            for index, outcome in enumerate(group)
            if outcome.kind == "error"
        )
        return QuatroError(
            f"the reward function {self.spec!r} failed on rollout {index} of {prompt.benchmark} {prompt.id!r}:\n"
            f"{outcome.detail}"
        )

    def close(self) -> None:
        self._pool.close()
