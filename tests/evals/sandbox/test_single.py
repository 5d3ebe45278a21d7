"""Rows as test files have them, judged one at a time."""

from __future__ import annotations

import pytest

from evals.sandbox import run_program

ROW = {"code": "def f(n): return n", "tests": "assert f(1) == 1"}
SCRIPT = {"code": "print(input())", "kind": "stdio", "tests": {"cases": [{"stdin": "1\n", "stdout": "1\n"}]}}
CHECK = "def check(candidate):\n    assert candidate(1) == 2"


@pytest.mark.usefixtures("sandbox")
def test_a_row_is_judged_by_its_kind():
    assert run_program(ROW).verdict == "pass"
    assert run_program({**ROW, "tests": [CHECK], "entry_point": "f"}).verdict == "fail"
    assert run_program({**SCRIPT, "id": 7}).id == "7"
    assert run_program({**SCRIPT, "code": "while True: pass", "timeout_s": 0.1}).verdict == "timeout"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"tests": "assert f(1)"}, "'code'"),
        ({**ROW, "code": 5}, "`code` is a text"),
        ({**ROW, "tests": []}, "every program would pass"),
        ({**ROW, "tests": [5]}, "list of texts"),
        ({**ROW, "entry_point": 5}, "the name of a function"),
        ({**ROW, "kind": "riddle"}, "function or stdio"),
        ({**ROW, "timeout_s": float("nan")}, "timeout_s is a number above 0"),
        ({**ROW, "timeout_s": "3"}, "timeout_s is a number above 0"),
        ({**ROW, "memory_mb": 0}, "memory_mb is a number above 0"),
        ({**SCRIPT, "tests": {"cases": []}}, "every program would pass"),
        ({**SCRIPT, "tests": {"cases": [{"stdin": ""}]}}, "'stdout'"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(row, words):
    with pytest.raises(ValueError, match=words):
        run_program(row)
