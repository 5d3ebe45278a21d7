"""The child process of a user's reward function: `python -m quatro.rewards.worker SPEC OPTIONS` and the pipes."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from evals import worker_pool
from evals.files.own_code import imported_anew, place_of, recorded
from evals.worker_pool import Message
from quatro.rewards import calls
from quatro.rewards.calls import Wanted, call, wanted

MAX_DESCRIPTION_CHARS = 8000


def load_function(spec: str, options: Mapping[str, Any]) -> tuple[Callable[..., Any], Wanted]:
    """The function named `module:function` with ``options`` filled in, and what it asks for.

    The current directory is on the path.

    Raises:
        TypeError: it is no function, or cannot be called with these options.
    """
    sys.path.insert(0, os.getcwd())
    module_name, _, function_name = spec.partition(":")
    function: Callable[..., Any] = getattr(imported_anew(module_name), function_name)
    if not callable(function):
        raise TypeError(f"{spec} is a {type(function).__name__}, not a function")
    return partial(function, **options), wanted(function, options)


def answer_request(function: Callable[..., Any], wants: Wanted, rows: list[list[Any]]) -> Message:
    """The rewards that ``function`` returns or the error that it raises, as a message to the trainer."""
    try:
        return {"rewards": call(function, wants, rows)}
    except Exception as error:
        return {"error": describe(error, function), "line": first_line(error)}


def describe(error: BaseException, function: Callable[..., Any] | None = None) -> str:
    """The error and the frames of the user's own code, innermost last, without the frames of this package.

    If there are none, as where what the ``function`` returned is wrong, its own place.
    """
    ours = (__file__, calls.__file__, worker_pool.__file__, importlib.__file__)
    frames = [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen")
    ]
    place = place_of(getattr(function, "func", None))  # it is a partial
    if not frames and place:
        frames = [f"  {place}"]
    text = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([*frames, text])[-MAX_DESCRIPTION_CHARS:]


def first_line(error: BaseException) -> str:
    """`KeyError: 'name'`: the error without its place, cut to 200 characters."""
    said = next(line for line in traceback.format_exception_only(error) if not line.startswith(" "))
    return said.partition("\n")[0][:200]


def exit_with_parent(parent: int) -> None:
    """Ends this process soon after its parent was killed, even while the function hangs."""
    while os.getppid() == parent:
        time.sleep(2)
    os._exit(1)


def prepare() -> Callable[[list[list[Any]]], Message]:
    """What answers a call, which is a list of rows; the command names the function and its options.

    The request without rows asks for what the function asks for, where it is, and for the digest of its file.
    """
    threading.Thread(target=exit_with_parent, args=[os.getppid()], daemon=True).start()
    function, wants = load_function(sys.argv[1], json.loads(sys.argv[2]))
    place = place_of(getattr(function, "func", None))
    about = {"wanted": wants, "place": place, "recorded": recorded(sys.argv[1].partition(":")[0])}
    return lambda rows: answer_request(function, wants, rows) if rows else about


if __name__ == "__main__":
    worker_pool.serve(prepare, describe)
