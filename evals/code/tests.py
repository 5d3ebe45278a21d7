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
_TAGGED = ("inputs", "expected")


def asserts(code: Sequence[str], *, setup: str = "") -> Tests:
    """Tests that are code, of any entry point; see `Asserts`."""
    return {"kind": "asserts", "code": list(code), "setup": setup}


def as_json(tests: Calls | Stdio) -> Tests:
    """The tests in the form above, which leaves the entry point out.

    Raises:
        ValueError: a value has no form in tagged JSON.
    """
    fields = {name: value for name, value in vars(tests).items() if name != "entry_point"}
    try:
        for name in _TAGGED:
            if fields.get(name) is not None:
                fields[name] = write_json(encode(list(fields[name]))).decode("ascii")
    except CannotCrossError as error:
        raise ValueError(f"a test holds a value that cannot be saved as JSON: {error}") from error
    return {"kind": type(tests).__name__.lower(), **fields}


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
