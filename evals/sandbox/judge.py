"""What the process of the tests does: it runs the tests, with stand-ins for the program's functions, and reports.

It shares nothing with the program but two pipes. Answers come as tagged JSON, so what is compared here are values of
Python's own types, and `Remote` objects, which are equal to themselves only.
"""

import ast
import builtins
import copy
import importlib
import math
import operator
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import zip_longest
from typing import Any, cast

from evals.sandbox.pipes import EndedError, TooLongError, read_frame, write_frame
from evals.sandbox.values import JSON, CannotCrossError, MalformedError, decode, encode, read_json, write_json

_TEXT = 300
_CLOSE, _RELATIVE = 1e-6, 1e-7
_CHECK = re.compile(r"^def check\(", re.MULTILINE)
_SETTLE = "__settle__"
_MODULES = {"np": "numpy", "pd": "pandas", "numpy": "numpy"}

Report = dict[str, Any]
Fault = tuple[str, str]  # status and detail of a test that did not pass


class _Over(BaseException):
    """The program can answer no more: a status and why. No `except Exception` of a test stops it."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


class _FromProgram:
    """Marks exceptions that the program raised."""


class Channel:
    """The pipes to the program. After the first fault in what it says, it is not asked again.

    Arguments cross as copies. With ``sees_changes`` the program says how a call changed them, and `settle` makes the
    tests' own objects follow.
    """

    def __init__(self, calls: int, answers: int, most_bytes: int, *, sees_changes: bool = False) -> None:
        self._calls, self._answers, self._most = calls, answers, most_bytes
        self._sees_changes = sees_changes
        self._changes: list[tuple[object, object]] = []
        self._remotes: dict[int, Remote] = {}
        self.over: _Over | None = None

    def start(self) -> None:
        """Waits until the program's text has run; raises what it raised."""
        self._receive()

    def name(self, name: str) -> Any:
        """What the program calls ``name``; `NameError` if it has none."""
        return self._ask({"do": "name", "name": name})

    def do(self, verb: str, number: int, *arguments: Any) -> Any:
        """The result of an act on one of the program's objects."""
        form = encode(list(arguments), _refer)
        is_open = verb == "call" and self._sees_changes and any(map(_is_open, [*arguments[0], *arguments[1].values()]))
        return self._ask({"do": verb, "on": number, "arguments": form, "is_open": is_open}, arguments)

    def settle(self) -> None:
        """What the program changed in its copies of arguments is changed in the tests' objects as well."""
        while self._changes:
            _take_on(*self._changes.pop(0))

    def _ask(self, request: JSON, arguments: tuple[object, ...] = ()) -> Any:
        if self.over is None:
            try:
                write_frame(self._calls, write_json(request))
            except EndedError:
                self.over = _Over("crash", "the program ended before it answered")
        return self._receive(arguments)

    def _receive(self, arguments: tuple[object, ...] = ()) -> Any:
        if self.over is None:
            try:
                answer = read_json(read_frame(self._answers, self._most))
                if arguments and type(answer) is dict and "changed" in answer:
                    self._changes.append((list(arguments), decode(answer.pop("changed"), self._resolve)))
                if type(answer) is dict and answer.keys() == {"error", "text"}:
                    raise _exception(answer["error"], answer["text"])
                if type(answer) is not dict or answer.keys() != {"value"}:
                    raise MalformedError("it is neither a value nor an error")
                return decode(answer["value"], self._resolve)
            except EndedError:
                self.over = _Over("crash", "the program ended before it answered")
            except TooLongError as error:
                self.over = _Over("output_limit", f"the program answered {error} bytes")
            except MalformedError as error:
                self.over = _Over("fail", f"the program's answer is malformed: {error}")
        raise self.over

    def _resolve(self, content: JSON) -> object:
        number, kind = content
        if type(number) is not int or type(kind) is not str:
            raise MalformedError("an object is a number and a class")
        return self._remotes.setdefault(number, Remote(self, number, kind))


def _exception(names: JSON, text: JSON) -> Exception:
    """An exception of the first of these classes that Python has itself, marked as the program's."""
    if type(names) is not list or type(text) is not str:
        raise MalformedError("an error is names and a text")
    for name in names:
        base = getattr(builtins, name, None) if type(name) is str else None
        if isinstance(base, type) and issubclass(base, BaseException):
            # SystemExit and KeyboardInterrupt would end the tests.
            base = base if issubclass(base, Exception) and not issubclass(base, UnicodeError) else Exception
            return cast(Exception, type(str(names[0])[:80], (base, _FromProgram), {})(text))
    raise MalformedError("an error is of no class of Python's")


class Remote:
    """Stands for an object of the program's: it can be called, read and iterated over there, and compared nowhere."""

    def __init__(self, channel: Channel, number: int, kind: str) -> None:
        vars(self).update(_channel=channel, _number=number, _kind=kind)

    def _do(self, verb: str, *arguments: object) -> Any:
        return vars(self)["_channel"].do(verb, vars(self)["_number"], *arguments)

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self._do("call", list(arguments), named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        return self._do("get", name)

    def __setattr__(self, name: str, value: object) -> None:
        self._do("set", name, value)

    def __getitem__(self, key: object) -> Any:
        return self._do("item", key)

    def __iter__(self) -> Iterator[Any]:
        return cast(Iterator[Any], self._do("iter"))

    def __next__(self) -> Any:
        return self._do("next")

    def __len__(self) -> int:
        return cast(int, self._do("len"))

    def __bool__(self) -> bool:
        return cast(bool, self._do("bool"))

    def __repr__(self) -> str:
        return f"<{vars(self)['_kind']} of the program>"


def _refer(value: object) -> JSON:
    if not isinstance(value, Remote):
        raise CannotCrossError(f"a value of class {type(value).__qualname__} cannot be sent to the program")
    return {"object": [vars(value)["_number"], ""]}


def _is_open(value: object) -> bool:
    """Whether a program could change the value, or what it holds."""
    return isinstance(value, (list, dict, set, deque, bytearray, tuple))


def _take_on(own: Any, other: Any) -> Any:
    """The tests' object ``own``, made equal to ``other``; objects that it holds stay the same, where there are such."""
    kind = type(own)
    if not _is_open(own) or kind is not type(other):
        return other
    if kind is dict:
        now = {key: _take_on(own[key], value) if key in own else value for key, value in other.items()}
        own.clear()
        own.update(now)
    elif kind is tuple:
        # Containers in a tuple can change, the tuple cannot: one that holds others stands in another place.
        kept = tuple(map(_take_on, own, other))
        return own if len(own) == len(other) and all(map(operator.is_, own, kept)) else other
    elif kind is set:
        own.clear()
        own.update(other)
    else:
        parts = [_take_on(one, two) for one, two in zip(own, other, strict=False)] + list(other)[len(own) :]
        own.clear()
        own.extend(parts)
    return own


def _with_settling(text: str) -> ast.Module:
    """The tests, where after each statement arguments show what the program made of them.

    Not before: while `assert f(x) == sorted(x)` is evaluated, x is what it was.
    """
    tree = ast.parse(text, "<tests>")
    settle = ast.fix_missing_locations(ast.Expr(ast.Call(ast.Name(_SETTLE, ast.Load()), [], [])))
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        waiting += [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                waiting += statements
                # What the head of a compound statement changed, its body sees.
                is_definition = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                first = [settle] if statements and not is_definition else []
                setattr(node, name, [*first, *(each for one in statements for each in _settled(one, settle))])
    return tree


def _settled(statement: ast.stmt, settle: ast.stmt) -> list[ast.stmt]:
    """A statement, with another behind it if a call may be in it that is over with it."""
    if isinstance(statement, (ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return [statement, settle]
    if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
        return [statement, settle]
    return [statement]


class _Names(dict[str, Any]):
    """The names of the tests. One that nobody defined is Python's, then a module, then the program's."""

    def __init__(self, channel: Channel) -> None:
        super().__init__({"__name__": "tests", "__builtins__": builtins, _SETTLE: channel.settle})
        self._channel = channel

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) or name.startswith("__"):
            raise KeyError(name)
        if name in sys.stdlib_module_names or name in _MODULES:
            # Never the program's: its `math.isclose` would say yes to everything.
            self[name] = importlib.import_module(_MODULES.get(name, name))
        else:
            self[name] = self._channel.name(name)
        return self[name]


def judge_calls(tests: dict[str, Any], channel: Channel) -> Report:
    """The report on a program whose functions the tests call."""
    if tests["kind"] == "number":
        return _ask_number(tests, channel)
    is_asserts = tests["kind"] == "asserts"
    num_tests = len(tests["code"] if is_asserts else tests["inputs"])
    try:
        texts = [tests["setup"], *map(_with_settling, tests["code"])] if is_asserts else [tests["reference"] or ""]
        setup, *codes = [compile(text, "<tests>", "exec", dont_inherit=True) for text in texts]
    except (SyntaxError, ValueError, RecursionError) as error:
        return _report("refused", f"the tests do not compile: {_words(error)}", 0, num_tests)
    names = _Names(channel)
    found = _outcome(channel.start, channel) or _outcome(partial(exec, setup, names), channel, when_wrong="refused")
    if found:
        return _report(*found, 0, num_tests)
    if not is_asserts and tests["reference"] and not dict.__contains__(names, tests["entry_point"]):
        return _report("refused", f"the reference defines no {tests['entry_point']!r}", 0, num_tests)
    steps = _assert_steps(tests, codes, names, channel) if is_asserts else _call_steps(tests, names, channel)
    outcomes = (_outcome(step, channel) for step in steps)
    return _tally(outcomes, len(steps), lambda status: tests["every_test"] and not channel.over)


def _ask_number(tests: dict[str, Any], channel: Channel) -> Report:
    """The report on a program that gives a number; anything else that it returns fails."""
    found: list[float] = []

    def ask() -> None:
        value = channel.name(tests["entry_point"])(*decode(tests["arguments"]))
        if type(value) not in (int, float) or not math.isfinite(value):
            raise AssertionError("it is no number")
        found.append(float(value))

    fault = _outcome(channel.start, channel) or _outcome(ask, channel)
    return _report(*(fault or ("pass", "")), int(not fault), 1) | ({} if fault else {"number": found[0]})


def _assert_steps(tests: dict[str, Any], codes: list[Any], names: _Names, channel: Channel) -> list[Callable[[], None]]:
    entry_point = tests["entry_point"]

    def run(chosen: list[Any]) -> None:
        if entry_point and not isinstance(dict.get(names, entry_point), Remote):
            names[entry_point] = channel.name(entry_point)
        for code in chosen:
            exec(code, names)

    def check() -> None:
        run(codes)
        names["check"](names[entry_point])

    if entry_point and any(_CHECK.search(text) for text in tests["code"]):
        return [check]
    return [partial(run, [code]) for code in codes]


def _call_steps(tests: dict[str, Any], names: _Names, channel: Channel) -> list[Callable[[], None]]:
    inputs = decode(tests["inputs"])
    results = None if tests["expected"] is None else decode(tests["expected"])
    entry_point = tests["entry_point"]
    reference = cast(Callable[..., Any], dict.get(names, entry_point))
    candidate = cache(partial(channel.name, entry_point))

    def step(index: int) -> None:
        expected = reference(*copy.deepcopy(inputs[index])) if results is None else results[index]
        found = candidate()(*inputs[index])
        if not agrees(found, expected, tests["atol"], tests["compare"]):
            raise AssertionError(f"input {index} gave another result than expected")

    return [partial(step, index) for index in range(len(inputs))]


def _tally(outcomes: Iterable[Fault | None], num_tests: int, goes_on: Callable[[str], bool]) -> Report:
    """The report on tests that are run one after the other; the first that does not pass gives status and detail."""
    num_passed = 0
    first: Fault | None = None
    for found in outcomes:
        num_passed += found is None
        first = first or found
        if found and not goes_on(found[0]):
            break
    return _report(*(first or ("pass", "")), num_passed, num_tests)


def _outcome(step: Callable[[], object], channel: Channel, when_wrong: str = "fail") -> Fault | None:
    """None if the step passed, else status and detail."""
    try:
        step()
    except _Over as over:
        return over.status, over.detail
    except CannotCrossError as error:
        return "refused", str(error)
    except BaseException as error:
        if channel.over:
            return channel.over.status, channel.over.detail
        if isinstance(error, _FromProgram):
            return ("memory" if isinstance(error, MemoryError) else "crash"), f"the program raised {_words(error)}"
        # Not what it says: a test's own values must not reach the worker, from which programs are forked.
        return when_wrong, f"the tests raised {type(error).__name__}"
    # A test that catches everything does not make a broken answer good.
    return (channel.over.status, channel.over.detail) if channel.over else None


def agrees(found: object, expected: object, atol: float, compare: str) -> bool:
    """Whether a result is the one expected."""
    if compare == "truth":
        return _is_true(found) == _is_true(expected)
    if compare == "set":
        if not isinstance(found, (str, list, tuple, dict, set, frozenset)):  # a range may have no end in sight
            return False
        found, expected = set(found), set(cast(Any, expected))
    if compare == "json or first":
        first = expected[:1] if isinstance(expected, list) else []
        return any(agrees(found, one, atol, "json") for one in [expected, *first])
    if compare == "json":
        found, expected = _listed(found), _listed(expected)
    numbers = expected if isinstance(expected, (list, tuple)) else [expected]
    if not atol and numbers and all(isinstance(number, float) for number in numbers):
        atol = _CLOSE
    return _near(found, expected, atol)


def _is_true(value: object) -> bool:
    return bool(value) if isinstance(value, (type(None), bool, int, float, str, list, tuple, dict, set)) else True


def _near(found: object, expected: object, atol: float) -> bool:
    """Whether values are equal, but for ``atol`` between finite numbers. What is not a number equals only its like."""
    if isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        if found == expected or (found != found and expected != expected):
            return True
        return bool(atol) and math.isfinite(expected) and abs(found - expected) <= atol + _RELATIVE * abs(expected)
    if isinstance(expected, (list, tuple)) and type(found) is type(expected):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(_near(one, other, atol) for one, other in pairs)
    return found == expected


def _listed(value: object) -> object:
    return [_listed(part) for part in value] if isinstance(value, (list, tuple)) else value


def judge_output(tests: dict[str, Any], run_case: Callable[[str], dict[str, Any]]) -> Report:
    """The report on a program that reads standard input; ``run_case`` runs it with one input and says what it did."""

    def outcome(index: int, given: str, expected: str) -> Fault | None:
        result = run_case(given)
        if result["status"] != "pass":
            return result["status"], f"case {index}: {result['detail']}"
        if not same_output(result["output"], expected, tests["atol"]):
            return "fail", f"case {index}: another output than expected"
        return None

    outcomes = (outcome(index, *case) for index, case in enumerate(tests["cases"]))
    # Timeouts, floods and memory hogs cost too much to go on with.
    return _tally(outcomes, len(tests["cases"]), lambda status: tests["every_test"] and status in ("fail", "crash"))


def same_output(found: str, expected: str, atol: float) -> bool:
    """Whether two outputs agree line by line, but for white space at the ends and numbers within ``atol``."""
    lines, wanted = _lines(found), _lines(expected)
    if lines == wanted or not atol:
        return lines == wanted
    if len(lines) != len(wanted):
        return False
    for line, other in zip(lines, wanted, strict=True):
        pairs = list(zip_longest(line.split(), other.split(), fillvalue=""))
        if not all(one == two or _same_number(one, two, atol) for one, two in pairs):
            return False
    return True


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_number(one: str, other: str, atol: float) -> bool:
    try:
        return abs(float(one) - float(other)) <= atol
    except ValueError:
        return False


def _report(status: str, detail: str, num_passed: int, num_tests: int) -> Report:
    return {"status": status, "detail": detail[:_TEXT], "num_passed": num_passed, "num_tests": num_tests}


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}"[:_TEXT].rstrip(": ")
