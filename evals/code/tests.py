"""Tests of a problem as JSON, the form in which files and caches keep them, and as jobs of the sandbox.

    {"kind": "asserts", "code": ["assert f(1) == 2", ...], "setup": ""}
    {"kind": "calls", "inputs": "...", "expected": "...", "reference": null, "atol": 0.0, "compare": "equal"}
    {"kind": "stdio", "cases": [["input", "output"], ...], "atol": 0.0}

``inputs`` and ``expected`` are texts of tagged JSON (`evals.sandbox.values`), so that tuples, sets and infinities stay
what they are. The keys mean what they mean in `evals.sandbox.jobs`; those with a default may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    kind, fields = tests.get("kind"), {name: value for name, value in tests.items() if name != "kind"}
    make = _KINDS.get(str(kind))
    if make is None:
        raise ValueError(f"tests are of the kind {' or '.join(_KINDS)}, found {kind!r}")
    try:
        if make is not Stdio:
            fields["entry_point"] = entry_point
        if "atol" in fields:
            fields["atol"] = float(fields["atol"])
        for name in ("inputs", "expected"):
            if fields.get(name) is not None:
                fields[name] = _values(fields[name])
        return make(**fields)
    except (TypeError, ValueError, MalformedError) as error:
        raise ValueError(f"tests of the kind {kind}: {error}") from error


def _text(values: Sequence[Any]) -> str:
    return write_json(encode(list(values))).decode("ascii")


def _values(text: JSON) -> Any:
    if not isinstance(text, str):
        raise TypeError("`inputs` and `expected` are texts, each a list as JSON, such as '[[1, 2]]'")
    return decode(read_json(text.encode("utf-8")))


_KINDS: dict[str, type[Asserts | Calls | Stdio]] = {"asserts": Asserts, "calls": Calls, "stdio": Stdio}
