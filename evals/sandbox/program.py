"""What the process of the program does: it runs the program's text, then answers calls, or ends as a script does.

Everything here shares an interpreter with hostile code and is at its mercy. That harms nobody: this process knows no
expected value, and whatever it answers is a value that the program could have returned as well.
"""

import atexit
import operator
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from evals.sandbox.pipes import read_frame, write_frame
from evals.sandbox.values import JSON, decode, encode, read_json, write_json

_TEXT = 300
_CALLS, _ANSWERS = 3, 4  # the pipes
_FILE_NAME = "<program>"
_ACTS: dict[str, Callable[..., object]] = {
    "call": lambda target, arguments, named: target(*arguments, **named),
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
}


def answer_calls(source: str) -> NoReturn:
    """Runs the program's text as a module and answers calls until the other side closes the pipe or kills us."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    try:
        exec(compile(source, _FILE_NAME, "exec", dont_inherit=True), module.__dict__)
        answer: JSON = {"value": None}
    except BaseException as error:
        answer = _describe(error)
    objects = _Objects(module)
    while True:
        write_frame(_ANSWERS, write_json(answer))
        data = read_frame(_CALLS)
        request = read_json(data)
        try:
            answer = {"value": objects.encode(objects.do(request))}
        except BaseException as error:
            answer = _describe(error)
        if request.get("is_open"):
            try:
                after = objects.encode(objects.arguments)
                answer |= {} if after == read_json(data)["arguments"] else {"changed": after}
            except BaseException as error:
                answer = _describe(error)


class _Objects:
    """The program's own objects, which the tests know by number only."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.kept: list[object] = []
        self.numbers: dict[int, int] = {}
        self.arguments: list[Any] = []

    def encode(self, value: object) -> JSON:
        return encode(value, self._refer)

    def _refer(self, value: object) -> JSON:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.kept)
            self.kept.append(value)
        return {"object": [self.numbers[id(value)], str(type(value).__name__)[:_TEXT]]}

    def do(self, request: dict[str, Any]) -> object:
        if request["do"] == "name":
            return self._name(request["name"])
        target: Any = self.kept[request["on"]]
        arguments = self.arguments = decode(request["arguments"], self._kept)
        return _ACTS[request["do"]](target, *arguments)

    def _kept(self, content: JSON) -> object:
        return self.kept[content[0]]

    def _name(self, name: str) -> object:
        if name in self.module.__dict__:
            return self.module.__dict__[name]
        if name in getattr(self.module, "Solution", types.SimpleNamespace()).__dict__:
            return getattr(self.module.__dict__["Solution"](), name)
        raise NameError(f"name {name!r} is not defined")


def _describe(error: BaseException) -> JSON:
    names = [str(kind.__name__) for kind in type(error).__mro__]
    try:
        text = str(error)[:_TEXT]
    except BaseException:
        text = ""
    return {"error": names, "text": text}


def _stream(descriptor: int, mode: str, errors: str) -> Any:
    return open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)


def run_script(source: str) -> NoReturn:
    """Runs the program's text as `python FILE` would, on the real descriptors 0, 1 and 2, and ends the process."""
    # The originals too: an interpreter has them from its start, and only for type checkers are they final.
    sys.stdin = sys.__stdin__ = _stream(0, "r", "surrogateescape")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")  # type: ignore[misc]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    status = 0
    try:
        exec(compile(source, _FILE_NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc(limit=-3)
        status = 1
    try:
        # What an interpreter does when its main thread ends, which has no public name.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 1
    os._exit(status & 0xFF)
