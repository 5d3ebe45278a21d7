"""The child process of a user's reward function: `python -m quatro.rewards.worker SPEC REQUEST_FD RESPONSE_FD`.

Requests and responses are JSON, one a line, on pipes of their own: what the function prints goes to stderr and
disturbs nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

MAX_DESCRIPTION_CHARS = 8000


def load_function(spec: str) -> Callable[..., Any]:
    """The function named `module:function`; the current directory is on the path."""
    sys.path.insert(0, os.getcwd())
    module_name, _, function_name = spec.partition(":")
    function = getattr(importlib.import_module(module_name), function_name)
    if not callable(function):
        raise TypeError(f"{spec} is a {type(function).__name__}, not a function")
    return function


def answer_request(function: Callable[..., Any], line: str) -> dict[str, Any]:
    try:
        result = function(*json.loads(line))
        if isinstance(result, (str, bytes)) or not hasattr(result, "__float__"):
            raise TypeError(f"the reward function returned {result!r:.200}; expected a number")
        return {"reward": float(result)}
    except Exception as error:
        return {"error": describe(error)}


def describe(error: BaseException) -> str:
    """The error and the frames of the user's own code, innermost last; how it was called is our business."""
    ours = (__file__, importlib.__file__)
    frames = [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen")
    ]
    text = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([*frames, text])[-MAX_DESCRIPTION_CHARS:]


def exit_with_parent(parent: int) -> None:
    """Ends this process soon after its parent was killed, even while the function hangs."""
    while os.getppid() == parent:
        time.sleep(2)
    os._exit(1)


def main() -> None:
    threading.Thread(target=exit_with_parent, args=[os.getppid()], daemon=True).start()
    spec, request_fd, response_fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(request_fd, encoding="ascii") as requests, open(response_fd, "w", encoding="ascii") as responses:

        def respond(message: dict[str, Any]) -> None:
            responses.write(json.dumps(message) + "\n")
            responses.flush()

        try:
            function = load_function(spec)
        except Exception as error:
            respond({"error": describe(error)})
            return
        respond({"ready": True})
        for line in requests:
            respond(answer_request(function, line))


if __name__ == "__main__":
    main()
