"""The child process of a user's reward function: `python -m quatro.rewards.worker SPEC OPTIONS` and the pipes."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from evals import worker_pool
from evals.files.own_code import imported_anew, place_of, recorded
from evals.worker_pool import Message
from quatro.rewards import calls
from quatro.rewards.calls import call, wanted

MAX_DESCRIPTION_CHARS = 8000


def describe(error: BaseException, place: str = "") -> str:
    """The error and the frames of the user's own code, innermost last, without the frames of this package.

    If there are none, as where what a function returned is wrong, its ``place``.
    """
    ours = (__file__, calls.__file__, worker_pool.__file__, importlib.__file__)
    frames = [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen")
    ]
    if place:
        frames = frames or [f"  {place}"]
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

    Raises:
        TypeError: it is no function, or cannot be called with these options.
    """
    threading.Thread(target=exit_with_parent, args=[os.getppid()], daemon=True).start()
    spec, options = sys.argv[1], json.loads(sys.argv[2])
    sys.path.insert(0, os.getcwd())
    module_name, _, name = spec.partition(":")
    function = getattr(imported_anew(module_name), name)
    if not callable(function):
        raise TypeError(f"{spec} is a {type(function).__name__}, not a function")
    wants, place = wanted(function, options), place_of(function)
    about = {"wanted": wants, "place": place, "recorded": recorded(module_name)}

    def answer(rows: list[list[Any]]) -> Message:
        if not rows:
            return about
        try:
            return {"rewards": call(partial(function, **options), wants, rows)}
        except Exception as error:
            return {"error": describe(error, place), "line": first_line(error)}

    return answer


if __name__ == "__main__":
    worker_pool.serve(prepare, describe)
