"""A user's Python function as the reward: `module:function`, called with what its parameters ask for by name."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from evals.errors import QuatroError, UsageError
from evals.files.own_code import folders
from evals.files.strict_json import shown
from evals.text import visible
from evals.worker_pool import CannotStartError, Failure, Message, WorkerPool, fresh_interpreter
from quatro.rewards.base import Grade, Groups, Reward, Scored, failure, regrouped, require_usable, too_many_failed
from quatro.rewards.calls import VERDICT, arguments
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt, Rollout

TIMEOUT_S = 10.0
MAX_WORKERS = 4
# Importing a user's module may pull in anything.
START_TIMEOUT_S = 120.0
# For what the function still has to write when it is no longer needed.
GRACE_S = 0.05

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of one rollout: `reward` and metrics as the function gave them, or why there is none.

    ``line`` is the error of ``detail`` without its place.
    """

    kind: Literal["reward", "error", "timeout"]
    values: Mapping[str, float] = field(default_factory=dict)
    detail: str = ""
    line: str = ""

    def grade(self, *, is_dropped: bool) -> Grade:
        """``is_dropped``: whether a rollout without a reward is taken out of its group, or earns 0."""
        if self.kind != "reward":
            return Grade(0.0, is_dropped=is_dropped, error=self.line or failure(self.kind, self.detail))
        verdict = self.values.get(VERDICT)
        logged = {name: number for name, number in self.values.items() if name not in ("reward", VERDICT)}
        return Grade(self.values["reward"], None if verdict is None else verdict == 1, logged)


def _through_json(value: Any) -> Any:
    """``value`` as the worker process will get it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        raise ValueError("expected text, finite numbers, true, false, null, or lists and blocks of them") from None


class FunctionOptions(Block, extra="allow"):
    """Keyword arguments of the function, which alone knows their names."""

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_through_json)]]


class FunctionReward(Reward):
    """Runs the function in child processes; `quatro/rewards/calls.py` says what it gets and may return.

    Raises:
        UsageError: the function cannot be imported or called with the options; this is found out here and not at the
            first call.
    """

    Options: ClassVar[type[Block]] = FunctionOptions
    LIMITS: ClassVar[frozenset[str]] = frozenset({"timeout_s", "workers", "on_error"})

    @classmethod
    def open(cls, config: RewardConfig) -> FunctionReward:
        return cls(config, config.name)

    def __init__(self, config: RewardConfig, spec: str) -> None:
        self.spec = spec
        self.timeout_s = TIMEOUT_S if config.timeout_s is None else config.timeout_s
        self.on_error = config.on_error
        self._num_failed = 0
        self._pool = WorkerPool(
            fresh_interpreter(["-m", "quatro.rewards.worker", self.spec, json.dumps(config.options.model_dump())]),
            num_workers=config.workers or min(MAX_WORKERS, os.cpu_count() or 1),
            timeout_s=self.timeout_s,
            start_timeout_s=START_TIMEOUT_S,
            grace_s=GRACE_S,
        )
        try:
            self._pool.start()
            (answer,) = self._pool.ask([[]])
        except CannotStartError as error:
            raise self._cannot_load(str(error)) from error
        if isinstance(answer, Failure):
            self._pool.close()
            raise self._cannot_load(f"its process {answer.detail}")
        self._names, self._is_batched = answer["wanted"]
        self._place: str = answer["place"]
        self._recorded: dict[str, str] = answer["recorded"]

    def environment(self) -> Mapping[str, str]:
        return self._recorded

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Scored:
        rows = [arguments(prompt, rollouts, self._names) for prompt, rollouts in zip(prompts, completions, strict=True)]
        requests = (
            [group for group in rows if group] if self._is_batched else [[row] for group in rows for row in group]
        )
        try:
            answers = self._pool.ask(requests)
        except CannotStartError as error:
            raise self._cannot_load(str(error)) from error
        flat = [
            outcome
            for answer, request in zip(answers, requests, strict=True)
            for outcome in self._outcomes(answer, len(request))
        ]
        by_prompt = regrouped(flat, completions)
        failed = [
            (prompt, index, rollouts[index], outcome)
            for prompt, rollouts, group in zip(prompts, completions, by_prompt, strict=True)
            for index, outcome in enumerate(group)
            if outcome.kind != "reward"
        ]
        for one in failed:
            self._tell_failure(*one)
        num_timeouts = sum(outcome.kind == "timeout" for *_, outcome in failed)
        num_errors = len(failed) - num_timeouts
        if too_many_failed(len(failed), len(flat)):  # under every policy of `on_error`
            *_, rollout, first = min(failed, key=lambda one: one[-1].kind == "timeout")
            raise QuatroError(
                f"the reward function {self.spec!r} failed on {len(failed)} of {len(flat)} rollouts ({num_errors} "
                f"raised, {num_timeouts} ran longer than {self.timeout_s:g} s). Where half of an iteration's rollouts "
                f"fail, the run ends, whatever `reward.on_error` says ({self.on_error}): too little would be left to "
                f"learn from. The first of them:\n{visible(first.detail)}\n  the response: {shown(rollout.text)}"
            )
        grades = [[outcome.grade(is_dropped=self.on_error == "drop") for outcome in group] for group in by_prompt]
        scored = Scored(grades, num_errors, num_timeouts)
        place = f"\n  {self._place}" if self._place else ""
        require_usable(prompts, completions, scored.reward, f"the reward function {self.spec!r}", place)
        return scored

    def _outcomes(self, answer: Message | Failure, count: int) -> list[Outcome]:
        if isinstance(answer, Failure):
            if answer.kind == "not started":
                raise self._cannot_load(f"its process {answer.detail}")
            if answer.kind == "overdue":
                return [Outcome("timeout", detail=f"it ran longer than {self.timeout_s:g} s")] * count
            return [Outcome("error", detail=f"the process of the reward function {answer.detail}")] * count
        if "error" in answer:
            return [Outcome("error", detail=str(answer["error"]), line=str(answer["line"]))] * count
        match answer:
            case {"rewards": [*found]} if len(found) == count and all("reward" in values for values in found):
                return [Outcome("reward", values) for values in found]
        raise QuatroError(f"the reward worker sent {answer!r:.200}; expected rewards (does the function write to fds?)")

    def _cannot_load(self, reason: str) -> UsageError:
        return UsageError(
            f"cannot load the reward function {self.spec!r} (expected module:function; a module is looked for in "
            f"{folders()}):\n{reason}"
        )

    def _tell_failure(self, prompt: Prompt, index: int, rollout: Rollout, outcome: Outcome) -> None:
        """Warns of the first failure, the second, the fourth and so on.

        Raises:
            QuatroError: a function raised, and `on_error` is `fail`.
        """
        why = f"{visible(outcome.detail)}\n  the response: {shown(rollout.text)}"
        at = f"the reward function {self.spec!r} failed on rollout {index} of {prompt.benchmark} {prompt.id!r}"
        if outcome.kind == "error" and self.on_error == "fail":
            raise QuatroError(
                f"{at}:\n{why}\nWith `on_error: zero` in its block of `reward` such a rollout earns 0, with `drop` it "
                "is taken out of its group"
            )
        self._num_failed += 1
        if self._num_failed & (self._num_failed - 1) == 0:
            becomes = "is dropped" if self.on_error == "drop" else "earns 0"
            _log.warning("%s, which %s (failure %d so far):\n%s", at, becomes, self._num_failed, why)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"num_failed": self._num_failed}

    def load_state(self, tensors: dict[str, Any], plain: dict[str, Any]) -> None:
        self._num_failed = plain.get("num_failed", 0)

    def close(self) -> None:
        self._pool.close()
