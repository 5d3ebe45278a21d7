"""How a user's reward function is called: it gets by name what its parameters ask for, in a child process.

The child is `python -m quatro.rewards.calls SPEC OPTIONS` and the pipes.
"""

import importlib
import inspect
import json
import math
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from evals import worker_pool
from evals.files.own_code import imported_anew, place_of, recorded
from evals.worker_pool import Message
from quatro.types import Prompt, Rollout

# What a function may ask for, and how it is called in the plural by a function that takes a whole group.
_NAMES = ("prompt", "problem", "answer", "reference", "completion", "thought", "id", "row", "num_tokens")
PLURALS = {name: name if name == "num_tokens" else f"{name}s" for name in (*_NAMES, "finish_reason")}
BATCHED = "completions"
VERDICT = "correct"  # what a function may return beside `reward` that is no metric of its own
_SINGULARS = {plural: name for name, plural in PLURALS.items()}
MAX_DESCRIPTION_CHARS = 8000
_METRIC_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


def wanted(function: Callable[..., Any], options: Mapping[str, Any]) -> list[str]:
    """What ``function`` asks for beside its ``options``: the names of its parameters.

    With ``completions`` among them it is called once for a prompt, with a list for each parameter.

    Raises:
        TypeError: it cannot be called with the options, or asks for something that there is not.
        ValueError: it tells no parameters, as some that are written in C.
    """
    if taken := [name for name in options if name in PLURALS or name in _SINGULARS]:
        raise TypeError(f"reward.options has {', '.join(taken)}, which every rollout has of its own: rename it")
    signature = inspect.signature(function)
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and (parameter.name in PLURALS or parameter.name in _SINGULARS)
    ]
    try:
        signature.bind(**dict.fromkeys(names), **options)
    except TypeError as error:
        known = ", ".join(PLURALS)
        raise TypeError(
            f"{error}: its parameters are {signature}; each needs a default, a value in reward.options, or one of the "
            f"names {known} (with {BATCHED}: a list for each)"
        ) from None
    return names


def arguments(prompt: Prompt, rollouts: Sequence[Rollout], names: Sequence[str]) -> list[Any]:
    """For each rollout the values of ``names``, in their order."""
    own = {
        "prompt": prompt.text,
        "problem": prompt.problem,
        "answer": prompt.answer,
        "reference": prompt.answer,
        "id": prompt.id,
        "row": {"id": prompt.id, "problem": prompt.problem, "answer": prompt.answer, **prompt.extra},
    }
    chosen = [_SINGULARS.get(name, name) for name in names]
    rows = []
    for rollout in rollouts:
        values = {
            **own,
            "completion": rollout.text,
            "thought": rollout.thought,
            "num_tokens": len(rollout.token_ids),
            "finish_reason": rollout.finish_reason,
        }
        rows.append([values[name] for name in chosen])
    return rows


def call(function: Callable[..., Any], names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, float]]:
    """What ``function`` returns for ``rows``, the rollouts of one prompt or a single one: `reward` and metrics of each.

    Raises:
        TypeError, ValueError: it returned something else.
        Whatever the function raises.
    """
    if BATCHED not in names:
        return [returned(function(**dict(zip(names, rows[0], strict=True))))]
    columns = [list(column) for column in zip(*rows, strict=True)]
    found = function(**dict(zip(names, columns, strict=True)))
    if isinstance(found, str | bytes | Mapping) or not hasattr(found, "__len__"):
        raise TypeError(
            f"the reward function returned {found!r:.200}; expected a list with a reward for each completion"
        )
    if len(found) != len(rows):
        raise ValueError(f"the reward function returned {len(found)} rewards for {len(rows)} completions")
    return [returned(value) for value in found]


def returned(value: Any) -> dict[str, float]:
    """A number, or a mapping with `reward` and other numbers, as the latter. Of these, `correct` is 0 or 1: a verdict.

    Raises TypeError or ValueError, which say what was expected, if ``value`` is neither.
    """
    values = value if isinstance(value, Mapping) else {"reward": value}
    if "reward" not in values:
        raise ValueError(f"the reward function returned a mapping without `reward`: {value!r:.200}")
    found = dict[str, float]()
    for name, number in values.items():
        if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r:.80} cannot be a metric; expected letters, digits, `_`, `-` and `.` (at most 64)"
            )
        if isinstance(number, str | bytes) or not hasattr(number, "__float__"):
            raise TypeError(f"the reward function returned {number!r:.200} as `{name}`; expected a number")
        found[name] = float(number)
        if name != "reward" and not math.isfinite(found[name]):
            raise ValueError(f"`{name}` is {found[name]}; expected a finite number")
        if name == VERDICT and found[name] not in (0.0, 1.0):
            raise ValueError(
                f"`{name}` is {found[name]:g}; expected True or False, since it is the verdict that accuracy/mean "
                "counts. Give another number another name"
            )
    return found


def describe(error: BaseException, place: str = "") -> str:
    """The error and the frames of the user's own code, innermost last, without the frames of this package.

    If there are none, as where what a function returned is wrong, its ``place``.
    """
    ours = (__file__, worker_pool.__file__, importlib.__file__)
    frames = [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen")
    ]
    if place:
        frames = frames or [f"  {place}"]
    text = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([*frames, text])[-MAX_DESCRIPTION_CHARS:]


def exit_with_parent(parent: int) -> None:
    """Ends this process soon after its parent was killed, even while the function hangs."""
    while os.getppid() == parent:
        time.sleep(2)
    os._exit(1)


def prepare() -> Callable[[list[list[Any]]], Message]:
    """What answers a call, which is a list of rows; the command names the function and its options.

    The request without rows asks for what the function asks for, where it is, and for the digest of its file.

    Raises TypeError if it is no function, or cannot be called with these options.
    """
    threading.Thread(target=exit_with_parent, args=[os.getppid()], daemon=True).start()
    spec, options = sys.argv[1], json.loads(sys.argv[2])
    sys.path.insert(0, os.getcwd())
    module_name, _, name = spec.partition(":")
    function = getattr(imported_anew(module_name), name)
    if not callable(function):
        raise TypeError(f"{spec} is a {type(function).__name__}, not a function")
    names, place = wanted(function, options), place_of(function)
    about = {"names": names, "place": place, "recorded": recorded(module_name)}

    def answer(rows: list[list[Any]]) -> Message:
        if not rows:
            return about
        try:
            return {"rewards": call(partial(function, **options), names, rows)}
        except Exception as error:
            # Without its place, `KeyError: 'name'`, and cut to 200 characters.
            said = next(line for line in traceback.format_exception_only(error) if not line.startswith(" "))
            return {"error": describe(error, place), "line": said.partition("\n")[0][:200]}

    return answer


if __name__ == "__main__":
    worker_pool.serve(prepare, describe)
