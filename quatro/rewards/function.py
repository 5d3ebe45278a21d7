"""A user's Python function as the reward: `module:function`, called with what its parameters ask for by name."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator

from evals.errors import QuatroError, UsageError
from evals.files.own_code import folders
from evals.files.strict_json import shown
from evals.text import visible
from evals.worker_pool import CannotStartError, Failure, Message, WorkerPool, fresh_interpreter
from quatro.rewards.base import Grade, Grades, Groups, Reward, failure, refuse_failures, regrouped, require_usable
from quatro.rewards.calls import BATCHED, VERDICT, arguments
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt

TIMEOUT_S = 10.0
MAX_WORKERS = 4
# Importing a user's module may pull in anything.
START_TIMEOUT_S = 120.0

_log = logging.getLogger(__name__)


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

    Raises UsageError if the function cannot be imported or called with the options; this is found out here and not at
    the first call.
    """

    Options: ClassVar[type[Block]] = FunctionOptions
    LIMITS: ClassVar[frozenset[str]] = frozenset({"timeout_s", "workers", "on_error"})

    def __init__(self, config: RewardConfig) -> None:
        self.spec = config.name
        self.timeout_s = TIMEOUT_S if config.timeout_s is None else config.timeout_s
        self.on_error = config.on_error
        self._num_failed = 0
        command = ["-m", "quatro.rewards.calls", self.spec, json.dumps(config.options.model_dump())]
        self._pool = WorkerPool(
            partial(fresh_interpreter, command),
            num_workers=config.workers or min(MAX_WORKERS, os.cpu_count() or 1),
            timeout_s=self.timeout_s,
            start_timeout_s=START_TIMEOUT_S,
        )
        (answer,) = self._ask([[]])
        if isinstance(answer, Failure):
            self._pool.close()
            raise self._cannot_load(f"its process {answer.detail}")
        self._names: list[str] = answer["names"]
        self._place: str = answer["place"]
        self._recorded: dict[str, str] = answer["recorded"]

    def environment(self) -> Mapping[str, str]:
        return self._recorded

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        rows = [arguments(prompt, rollouts, self._names) for prompt, rollouts in zip(prompts, completions, strict=True)]
        requests = [group for group in rows if group]
        if BATCHED not in self._names:
            requests = [[row] for group in rows for row in group]
        graded = [
            one
            for answer, request in zip(self._ask(requests), requests, strict=True)
            for one in self._graded(answer, len(request))
        ]
        places = [
            (f"rollout {index} of {prompt.benchmark} {prompt.id!r}", rollout)
            for prompt, group in zip(prompts, completions, strict=True)
            for index, rollout in enumerate(group)
        ]
        errors, timeouts = list[str](), list[str]()
        for (where, rollout), (grade, detail) in zip(places, graded, strict=True):
            if grade.error:
                why = f"{visible(detail)}\n  the response: {shown(rollout.text)}"
                (timeouts if grade.is_timeout else errors).append(why)
                self._tell_failure(grade, where, why)
        refuse_failures(errors + timeouts, len(graded), f"the reward function {self.spec!r}")
        grades = regrouped((grade for grade, _ in graded), completions)
        place = f" ({self._place})" if self._place else ""
        require_usable(prompts, completions, grades, f"the reward function {self.spec!r}{place}")
        return grades

    def _ask(self, requests: Sequence[object]) -> list[Message | Failure]:
        try:
            return self._pool.ask(requests)
        except CannotStartError as error:
            raise self._cannot_load(str(error)) from error

    def _graded(self, answer: Message | Failure, count: int) -> list[tuple[Grade, str]]:
        """The grades of the ``count`` rollouts of a request, each with all that is known of a failure."""
        if isinstance(answer, Failure):
            is_timeout = answer.kind == "overdue"
            detail = f"it ran longer than {self.timeout_s:g} s"
            if not is_timeout:
                detail = f"the process of the reward function {answer.detail}"
            line = failure("timeout" if is_timeout else "error", detail)
        elif "error" in answer:
            is_timeout, detail, line = False, answer["error"], answer["line"]
        else:
            return [(_grade(values), "") for values in answer["rewards"]]
        is_dropped = self.on_error == "drop"
        return [(Grade(0.0, is_dropped=is_dropped, error=line, is_timeout=is_timeout), detail)] * count

    def _cannot_load(self, reason: str) -> UsageError:
        return UsageError(
            f"cannot load the reward function {self.spec!r} (expected module:function; a module is looked for in "
            f"{folders()}):\n{reason}"
        )

    def _tell_failure(self, grade: Grade, where: str, why: str) -> None:
        """Warns of failures 1, 2, 4, ...; raises QuatroError if a function raised, and `on_error` is `fail`."""
        at = f"the reward function {self.spec!r} failed on {where}"
        if not grade.is_timeout and self.on_error == "fail":
            raise QuatroError(
                f"{at}:\n{why}\nWith `on_error: zero` in its block of `reward` such a rollout earns 0, with `drop` it "
                "is taken out of its group"
            )
        self._num_failed += 1
        if self._num_failed & (self._num_failed - 1) == 0:
            becomes = "is dropped" if grade.is_dropped else "earns 0"
            _log.warning("%s, which %s (failure %d so far):\n%s", at, becomes, self._num_failed, why)

    def close(self) -> None:
        self._pool.close()


def _grade(values: Mapping[str, float]) -> Grade:
    """What `calls.returned` found in what the function gave for a rollout."""
    verdict = values.get(VERDICT)
    logged = {name: number for name, number in values.items() if name not in ("reward", VERDICT)}
    return Grade(values["reward"], None if verdict is None else verdict == 1, logged)
