"""Tests of a problem as JSON, the form in which files and caches keep them, and as jobs of the sandbox.

    {"kind": "asserts", "code": ["assert f(1) == 2", ...], "setup": ""}
    {"kind": "calls", "inputs": "...", "expected": "...", "reference": null, "atol": 0.0, "compare": "equal"}
    {"kind": "stdio", "cases": [["input", "output"], ...], "atol": 0.0}

``inputs`` and ``expected`` are texts of tagged JSON (`evals.sandbox.values`), so that tuples, sets and infinities stay
what they are. The keys mean what they mean in `evals.sandbox.jobs`; those with a default may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evals.sandbox import Asserts, Calls, Stdio
from evals.sandbox.values import CannotCrossError, MalformedError, decode, encode, read_json, write_json

JSON = Any
Tests = Mapping[str, JSON]
# What the tests of a problem are called: those that came with the benchmark, and those that others added.
SETS = ("base", "plus")


def asserts(code: Sequence[str], *, setup: str = "") -> Tests:
    """Tests that are code; see `Asserts`."""
    return {"kind": "asserts", "code": list(code), "setup": setup}


def calls(
    inputs: Sequence[Sequence[Any]],
    *,
    expected: Sequence[Any] | None = None,
    reference: str | None = None,
    atol: float = 0.0,
    compare: str = "equal",
) -> Tests:
    """Tests that are calls of the entry point; see `Calls`.

    Raises:
        ValueError: a value has no form in tagged JSON.
    """
    try:
        texts = [None if one is None else _text(one) for one in ([list(row) for row in inputs], expected)]
    except CannotCrossError as error:
        raise ValueError(f"a test holds a value that cannot be saved as JSON: {error}") from error
    return {
        "kind": "calls",
        "inputs": texts[0],
        "expected": texts[1],
        "reference": reference,
        "atol": atol,
        "compare": compare,
    }


def stdio(cases: Sequence[tuple[str, str]], *, atol: float = 0.0) -> Tests:
    """Tests that are standard input and output; see `Stdio`."""
    return {"kind": "stdio", "cases": [list(case) for case in cases], "atol": atol}


def sandbox_tests(tests: Tests, entry_point: str | None) -> Asserts | Calls | Stdio:
    """The tests as the sandbox takes them.

    Raises:
        ValueError: they are not of the form above; the message says what is wrong.
    """
    make = _KINDS.get(tests.get("kind", ""))
    if make is None:
        raise ValueError(f"tests are of the kind {' or '.join(_KINDS)}, found {tests.get('kind')!r}")
    try:
        return make(tests, entry_point)
    except KeyError as error:
        raise ValueError(f"tests of the kind {tests['kind']} lack the key {error}") from error
    except (TypeError, ValueError, MalformedError) as error:
        raise ValueError(f"tests of the kind {tests['kind']}: {error}") from error


def _asserts(tests: Tests, entry_point: str | None) -> Asserts:
    code = tests["code"]
    if not isinstance(code, list):
        raise TypeError("`code` is a list of texts")
    return Asserts(code=code, entry_point=entry_point, setup=tests.get("setup", ""))


def _calls(tests: Tests, entry_point: str | None) -> Calls:
    if not entry_point:
        raise TypeError("calls need the `entry_point` of the problem")
    expected = tests.get("expected")
    return Calls(
        entry_point=entry_point,
        inputs=_values(tests["inputs"]),
        expected=None if expected is None else _values(expected),
        reference=tests.get("reference"),
        atol=float(tests.get("atol", 0.0)),
        compare=tests.get("compare", "equal"),
    )


def _text(values: Sequence[Any]) -> str:
    return write_json(encode(list(values))).decode("ascii")


def _values(text: JSON) -> list[Any]:
    if not isinstance(text, str):
        raise TypeError("`inputs` and `expected` are texts, each a list as JSON, such as '[[1, 2]]'")
    found = decode(read_json(text.encode("utf-8")))
    if not isinstance(found, list):
        raise TypeError("`inputs` and `expected` are lists")
    return found


def _stdio(tests: Tests, entry_point: str | None) -> Stdio:
    cases = tests["cases"]
    if not isinstance(cases, list) or not all(map(_is_pair_of_texts, cases)):
        raise TypeError("`cases` is a list of pairs of texts, input and output")
    return Stdio(cases=[(given, wanted) for given, wanted in cases], atol=float(tests.get("atol", 0.0)))


def _is_pair_of_texts(case: JSON) -> bool:
    return isinstance(case, list) and len(case) == 2 and all(isinstance(text, str) for text in case)


_KINDS: dict[str, Callable[[Tests, str | None], Asserts | Calls | Stdio]] = {
    "asserts": _asserts,
    "calls": _calls,
    "stdio": _stdio,
}
