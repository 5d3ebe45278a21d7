"""A user's Python function as the reward: `module:function`, called with what its parameters ask for by name."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator

from evals.errors import QuatroError, UsageError
from evals.files.own_code import folders
from evals.files.strict_json import shown
from evals.text import visible
from evals.worker_pool import CannotStartError, Failure, Message, WorkerPool, fresh_interpreter
from quatro.rewards.base import Grade, Groups, Reward, Scored, failure, refuse_failures, regrouped, require_usable
from quatro.rewards.calls import VERDICT, arguments
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt

TIMEOUT_S = 10.0
MAX_WORKERS = 4
# Importing a user's module may pull in anything.
START_TIMEOUT_S = 120.0
# For what the function still has to write when it is no longer needed.
GRACE_S = 0.05

_log = logging.getLogger(__name__)


class Failed(NamedTuple):
    """Why a rollout has no reward; ``line`` is the error of ``detail`` without its place."""

    kind: Literal["error", "timeout"]
    detail: str
    line: str


def own_reward(spec: str) -> type[Reward]:
    """The class behind ``spec``, a function of the user's own."""
    return FunctionReward


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

    def __init__(self, config: RewardConfig, spec: str = "") -> None:
        self.spec = spec or config.name
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
        (answer,) = self._ask([[]])
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
        if self._is_batched:
            requests = [group for group in rows if group]
        else:
            requests = [[row] for group in rows for row in group]
        flat = [
            one
            for answer, request in zip(self._ask(requests), requests, strict=True)
            for one in self._found(answer, len(request))
        ]
        found = regrouped(flat, completions)
        whys: dict[str, list[str]] = {"error": [], "timeout": []}
        for prompt, rollouts, group in zip(prompts, completions, found, strict=True):
            for index, (rollout, one) in enumerate(zip(rollouts, group, strict=True)):
                if isinstance(one, Failed):
                    why = f"{visible(one.detail)}\n  the response: {shown(rollout.text)}"
                    whys[one.kind].append(why)
                    self._tell_failure(one.kind, f"rollout {index} of {prompt.benchmark} {prompt.id!r}", why)
        refuse_failures(whys["error"] + whys["timeout"], len(flat), f"the reward function {self.spec!r}")
        grades = [[self._grade(one) for one in group] for group in found]
        scored = Scored(grades, len(whys["error"]), len(whys["timeout"]))
        place = f" ({self._place})" if self._place else ""
        require_usable(prompts, completions, scored, f"the reward function {self.spec!r}{place}")
        return scored

    def _ask(self, requests: Sequence[object]) -> list[Message | Failure]:
        try:
            return self._pool.ask(requests)
        except CannotStartError as error:
            raise self._cannot_load(str(error)) from error

    def _found(self, answer: Message | Failure, count: int) -> Sequence[Mapping[str, float] | Failed]:
        """For each of ``count`` rollouts the reward and metrics that the function gave, or why there are none."""
        match answer:
            case Failure(kind="overdue"):
                said = f"it ran longer than {self.timeout_s:g} s"
                failed = Failed("timeout", said, failure("timeout", said))
            case Failure(detail=detail):
                said = f"the process of the reward function {detail}"
                failed = Failed("error", said, failure("error", said))
            case {"error": detail, "line": line}:
                failed = Failed("error", str(detail), str(line))
            case {"rewards": [*found]} if len(found) == count and all("reward" in values for values in found):
                return found
            case _:
                raise QuatroError(
                    f"the reward worker sent {answer!r:.200}; expected rewards (does the function write to fds?)"
                )
        return [failed] * count

    def _grade(self, found: Mapping[str, float] | Failed) -> Grade:
        if isinstance(found, Failed):
            return Grade(0.0, is_dropped=self.on_error == "drop", error=found.line)
        verdict = found.get(VERDICT)
        logged = {name: number for name, number in found.items() if name not in ("reward", VERDICT)}
        return Grade(found["reward"], None if verdict is None else verdict == 1, logged)

    def _cannot_load(self, reason: str) -> UsageError:
        return UsageError(
            f"cannot load the reward function {self.spec!r} (expected module:function; a module is looked for in "
            f"{folders()}):\n{reason}"
        )

    def _tell_failure(self, kind: str, where: str, why: str) -> None:
        """Warns of the first failure, the second, the fourth and so on.

        Raises:
            QuatroError: a function raised, and `on_error` is `fail`.
        """
        at = f"the reward function {self.spec!r} failed on {where}"
        if kind == "error" and self.on_error == "fail":
            raise QuatroError(
                f"{at}:\n{why}\nWith `on_error: zero` in its block of `reward` such a rollout earns 0, with `drop` it "
                "is taken out of its group"
            )
        self._num_failed += 1
        if self._num_failed & (self._num_failed - 1) == 0:
            becomes = "is dropped" if self.on_error == "drop" else "earns 0"
            _log.warning("%s, which %s (failure %d so far):\n%s", at, becomes, self._num_failed, why)

    def close(self) -> None:
        self._pool.close()
