"""A program with its tests, and the verdict on it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evals.sandbox.values import encode

# Part of every result (`evals.code.grading.isolation`). Raise it when a change can turn one verdict into another.
VERSION = 2

_OWN_WORK_S = 10.0
_START_S = 1.0

Status = Literal["pass", "fail", "crash", "timeout", "memory", "output_limit", "refused", "infra_error"]
Compare = Literal["equal", "set", "truth", "json", "json or first"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one program may use. ``timeout_s`` is CPU time: of all calls together, or of each case of standard input.

    Raises ValueError if a limit is no number above 0.
    """

    timeout_s: float = 10.0
    memory_mb: int = 1024
    output_mb: int = 16
    disk_mb: int = 64

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name} is a number above 0, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Asserts:
    """Tests as code: each of ``code`` is one, or the last defines ``check(candidate)``, which is the only one.

    ``setup`` is trusted code that runs first, such as the prompt with its helper functions. The name ``entry_point``
    stands for the program's. Any other name that neither tests nor Python know is looked up in the program.

    Raises ValueError if there is no test, or one is no text.
    """

    code: Sequence[str]
    entry_point: str | None = None
    setup: str = ""

    def __post_init__(self) -> None:
        _require(self.code, "code")
        if not all(isinstance(text, str) for text in (*self.code, self.setup)):
            raise ValueError("`code` is a list of texts, and `setup` a text")
        if self.entry_point is not None:
            _check_entry_point(self.entry_point)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Tests as arguments and results of ``entry_point``.

    The results are ``expected``, or what the same function of the trusted code ``reference`` returns. Numbers may
    differ by ``atol``; results that are floats, or lists of them, always by 1e-6. ``compare``: "set" ignores order and
    repetition, "truth" asks whether both or neither are true (an object is), "json" takes tuples for lists, and "json
    or first" also accepts the first element of an expected list.

    Raises ValueError if there is no input, or what belongs to it is missing or unknown.
    """

    entry_point: str
    inputs: Sequence[Sequence[Any]]
    expected: Sequence[Any] | None = None
    reference: str | None = None
    atol: float = 0.0
    compare: Compare = "equal"

    def __post_init__(self) -> None:
        _require(self.inputs, "inputs")
        if not all(isinstance(row, (list, tuple)) for row in self.inputs):
            raise ValueError("each of `inputs` is a list of arguments")
        if self.compare not in get_args(Compare):
            raise ValueError(f"`compare` is one of {', '.join(get_args(Compare))}, not {self.compare!r}")
        _check_entry_point(self.entry_point)
        if (self.expected is None) == (self.reference is None):
            raise ValueError("Calls takes either `expected` or `reference`")
        if self.expected is not None:
            _require(self.expected, "expected")
            if len(self.expected) != len(self.inputs):
                raise ValueError(f"Calls has {len(self.inputs)} inputs, but {len(self.expected)} expected results")


@dataclass(frozen=True, kw_only=True)
class Stdio:
    """Tests as pairs of standard input and the standard output that it asks for.

    White space at the ends of lines and empty lines at the end do not count; words that are numbers may differ by
    ``atol``.

    Raises ValueError if there is no case, or one is no pair of texts.
    """

    cases: Sequence[tuple[str, str]]
    atol: float = 0.0

    def __post_init__(self) -> None:
        _require(self.cases, "cases")
        pairs = [case for case in self.cases if isinstance(case, (list, tuple)) and len(case) == 2]
        if len(pairs) < len(self.cases) or not all(isinstance(text, str) for pair in pairs for text in pair):
            raise ValueError("`cases` is a list of pairs of texts, input and output")


@dataclass(frozen=True, kw_only=True)
class Number:
    """No test: the verdict has the ``number`` that ``entry_point`` returns for ``arguments``.

    It is for a program that is trusted and handles text that is not. Nothing vouches for the number but the program.
    """

    entry_point: str
    arguments: Sequence[Any]

    def __post_init__(self) -> None:
        _check_entry_point(self.entry_point)


def _require(tests: object, name: str) -> None:
    if not isinstance(tests, (list, tuple)):
        raise ValueError(f"`{name}` is a list")
    if not tests:
        raise ValueError(f"`{name}` is empty, so that every program would pass")


def _check_entry_point(name: object) -> None:
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"`entry_point` is the name of a function, not {name!r}")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A program and its tests. ``every_test`` goes on after a test that failed, to count those that pass."""

    program: str
    tests: Asserts | Calls | Stdio | Number
    id: str = ""
    limits: Limits = field(default_factory=Limits)
    every_test: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a job: ``num_passed`` of ``num_tests`` tests passed; ``tier`` names the isolation it ran under.

    ``number`` is what a job with `Number` returned, if its status is "pass".

    The statuses: "fail" is a wrong answer; "crash" an exception or an end before the answer; "refused" a job that
    cannot be run as it is; "infra_error" a fault of the sandbox or the machine, which says nothing about the program.
    """

    id: str
    status: Status
    detail: str
    tier: str
    num_passed: int = 0
    num_tests: int = 0
    wall_s: float = 0.0
    number: float | None = None

    @property
    def verdict(self) -> Status:
        """The status, by the name that `run_program` gives it."""
        return self.status


def messages(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the keeper is told of a job, and what only the process with the tests is told."""
    program = {
        "program": job.program,
        "is_stdio": isinstance(job.tests, Stdio),
        "limits": vars(job.limits),
        "tests_s": _tests_s(job),
    }
    tests = {
        "kind": type(job.tests).__name__.lower(),
        "every_test": job.every_test,
        "output_mb": job.limits.output_mb,
        **vars(job.tests),
    }
    if "inputs" in tests:
        tests["inputs"] = [list(row) for row in tests["inputs"]]
    for name in ("inputs", "expected", "arguments"):
        if tests.get(name) is not None:
            tests[name] = encode(list(tests[name]))
    return program, tests


def _tests_s(job: Job) -> float:
    """CPU time for the tests: what the program returned may cost no more than the program itself.

    A reference needs as much time as a program, and a script's time limit is that of one case.
    """
    if isinstance(job.tests, Stdio) or (isinstance(job.tests, Calls) and job.tests.reference is not None):
        return 2 * job.limits.timeout_s + _OWN_WORK_S
    return job.limits.timeout_s + _START_S
