"""Grades of completions that hold programs: each program is taken out, run once with its tests, and graded.

Files and caches keep the tests of a problem as JSON:

    {"kind": "asserts", "code": ["assert f(1) == 2", ...], "setup": ""}
    {"kind": "calls", "inputs": "...", "expected": "...", "reference": null, "atol": 0.0, "compare": "equal"}
    {"kind": "stdio", "cases": [["input", "output"], ...], "atol": 0.0}

``inputs`` and ``expected`` are texts of tagged JSON (`evals.sandbox.values`), so that tuples, sets and infinities stay
what they are. The keys mean what they mean in `evals.sandbox.jobs`; those with a default may be missing.
"""

import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evals.code.programs import extract_program
from evals.errors import MissingError
from evals.sandbox import VERSION, Asserts, Calls, IsolationError, Job, Limits, Sandbox, Stdio, Verdict, probe
from evals.sandbox.values import CannotCrossError, MalformedError, decode, encode, read_json, write_json
from evals.worker_pool import usable_cores

JSON = Any
Tests = Mapping[str, JSON]
# What the tests of a problem are called: those that came with the benchmark, and those that others added.
SETS = ("base", "plus")
_TAGGED = ("inputs", "expected")


def asserts(code: Sequence[str], *, setup: str = "") -> Tests:
    """Tests that are code, of any entry point; see `Asserts`."""
    return {"kind": "asserts", "code": list(code), "setup": setup}


def as_json(tests: Calls | Stdio) -> Tests:
    """The tests in the form above, without the entry point; raises ValueError for a value without tagged JSON."""
    fields = {name: value for name, value in vars(tests).items() if name != "entry_point"}
    try:
        for name in _TAGGED:
            if fields.get(name) is not None:
                fields[name] = write_json(encode(list(fields[name]))).decode("ascii")
    except CannotCrossError as error:
        raise ValueError(f"a test holds a value that cannot be saved as JSON: {error}") from error
    return {"kind": type(tests).__name__.lower(), **fields}


def sandbox_tests(tests: Tests, entry_point: str | None) -> Asserts | Calls | Stdio:
    """The tests as the sandbox takes them; ValueError, which says what is wrong, for those not of the form above."""
    kind, fields = tests.get("kind"), {name: value for name, value in tests.items() if name != "kind"}
    make = _KINDS.get(str(kind))
    if make is None:
        raise ValueError(f"tests are of the kind {' or '.join(_KINDS)}, found {kind!r}")
    try:
        if make is not Stdio:
            fields["entry_point"] = entry_point
        if "atol" in fields:
            fields["atol"] = float(fields["atol"])
        for name in _TAGGED:
            if fields.get(name) is not None:
                fields[name] = _values(fields[name])
        return make(**fields)
    except (TypeError, ValueError, MalformedError) as error:
        raise ValueError(f"tests of the kind {kind}: {error}") from error


def _values(text: JSON) -> Any:
    if not isinstance(text, str):
        raise TypeError("`inputs` and `expected` are texts, each a list as JSON, such as '[[1, 2]]'")
    return decode(read_json(text.encode("utf-8")))


_KINDS: dict[str, type[Asserts | Calls | Stdio]] = {"asserts": Asserts, "calls": Calls, "stdio": Stdio}


# Set to 1, programs run even where nothing isolates them; `--allow-unsafe-code` sets it.
ALLOW_UNSAFE = "QUATRO_ALLOW_UNSAFE_CODE"
TIMEOUT_S = 10.0
_SOLUTION = re.compile("^class Solution\\b", re.MULTILINE)
_SITE_IMPORTS = Path(__file__).with_name("site_imports.txt").read_text(encoding="utf-8")
# Of address space, which numpy alone takes hundreds of.
MEMORY_MB = 4096


class Answer(NamedTuple):
    """A completion of a problem. ``key`` names the problem, ``extra`` holds its tests and its entry point.

    ``prompt`` is what the completion continues, where it may be the rest of a program.
    """

    key: Hashable
    completion: str
    extra: Mapping[str, Any]
    prompt: str | None = None


@dataclass(frozen=True)
class CodeGrade:
    """The program that was found in a completion (None: none), and the verdict of each set of tests that it met."""

    program: str | None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    num_sets: int = 1

    @property
    def is_right(self) -> bool:
        """Whether every test of every set passed."""
        return len(self.verdicts) == self.num_sets and all(one.status == "pass" for one in self.verdicts.values())

    @property
    def failed(self) -> tuple[str, Verdict] | None:
        """The first set that did not pass, and its verdict."""
        return next(((name, one) for name, one in self.verdicts.items() if one.status != "pass"), None)


class CodeGrader:
    """Grades programs in a sandbox with ``workers`` processes (0: one a core), which stay warm until `close`.

    ``every_test`` goes on after a test that failed, so that verdicts count the tests that pass, and asks all sets.

    Raises MissingError if programs cannot be isolated on this machine.
    """

    def __init__(
        self, *, workers: int = 0, timeout_s: float = TIMEOUT_S, memory_mb: int = MEMORY_MB, every_test: bool = False
    ) -> None:
        self.limits = Limits(timeout_s=timeout_s, memory_mb=memory_mb)
        self.every_test = every_test
        self._sandbox = open_sandbox(workers, refusal="model-written code is not run here")

    def grade(
        self, answers: Sequence[Answer], on_progress: Callable[[int, int], None] | None = None
    ) -> list[CodeGrade]:
        """The grade of each answer; equal programs of one problem are run once. The second set meets what passed.

        Raises ValueError if the tests of a problem cannot be read.
        """
        programs = [
            extract_program(one.completion, prompt=one.prompt, entry_point=one.extra.get("entry_point"))
            for one in answers
        ]
        first: dict[tuple[Hashable, str], Answer] = {}
        for one, program in zip(answers, programs, strict=True):
            if program is not None:
                first.setdefault((one.key, program), one)
        verdicts: dict[tuple[Hashable, str], dict[str, Verdict]] = {place: {} for place in first}
        num_done, num_all = 0, sum(name in one.extra["tests"] for one in first.values() for name in SETS)
        for name in SETS:
            places = [place for place, one in first.items() if name in one.extra["tests"]]
            asked = [
                place
                for place in places
                if self.every_test or all(one.status == "pass" for one in verdicts[place].values())
            ]
            num_done += len(places) - len(asked)
            jobs = self._jobs(name, [(first[place], place[1]) for place in asked])
            for place, verdict in zip(asked, self._sandbox.run(jobs), strict=True):
                verdicts[place][name] = verdict
                num_done += 1
                if on_progress is not None:
                    on_progress(num_done, num_all)
        return [
            CodeGrade(program, verdicts[one.key, program] if program is not None else {}, len(one.extra["tests"]))
            for one, program in zip(answers, programs, strict=True)
        ]

    def _jobs(self, name: str, asked: Sequence[tuple[Answer, str]]) -> Iterator[Job]:
        tests_of: dict[Hashable, Any] = {}
        for one, program in asked:
            if one.key not in tests_of:
                tests_of[one.key] = sandbox_tests(one.extra["tests"][name], one.extra.get("entry_point"))
            # LeetCode imports some modules for a class `Solution`; its signatures say `List[int]`.
            if _SOLUTION.search(program) is not None and "from __future__" not in program:
                program = _SITE_IMPORTS + program
            yield Job(program=program, tests=tests_of[one.key], limits=self.limits, every_test=self.every_test)

    def close(self) -> None:
        """Ends the workers; grading again starts new ones."""
        self._sandbox.close()


def open_sandbox(workers: int, *, refusal: str, preload: Sequence[str] = (), packages: Sequence[str] = ()) -> Sandbox:
    """A sandbox with ``workers`` processes (0: one a core); for ``preload`` and ``packages`` see `Sandbox`.

    Raises MissingError, which begins with ``refusal``, if programs cannot be isolated on this machine.
    """
    is_unsafe = os.environ.get(ALLOW_UNSAFE) == "1"
    try:
        return Sandbox(workers=workers or usable_cores(), allow_unsafe=is_unsafe, preload=preload, packages=packages)
    except IsolationError as error:
        raise MissingError(
            f"{refusal}: {error}; `quatro doctor` shows what was tried. If you trust what the model wrote, add "
            f"--allow-unsafe-code to `quatro eval grade`, `sample`, `train` or `sweep` (or set {ALLOW_UNSAFE}=1)"
        ) from error


def isolation() -> str:
    """The tier and the version of the sandbox on this machine, such as `full, version 1`: part of every result."""
    return f"{probe().name}, version {VERSION}"
