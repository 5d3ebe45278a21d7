"""Rows of code benchmarks in all their forms; what each becomes is run with right and wrong programs."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evals.benchmarks.catalogue import grader_of, registry
from evals.benchmarks.code import row_of
from evals.benchmarks.fetching import fetch
from evals.benchmarks.loading import load_problems, local_problems
from evals.benchmarks.problems import Problem, content_hash
from evals.code.grading import Answer, CodeGrader, as_json, sandbox_tests
from evals.errors import DataError
from evals.sandbox import Calls, probe
from tests.kit import write_rows

needs_sandbox = pytest.mark.skipif(probe().name == "none", reason="no isolation here")
INFINITY = float("inf")

HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": "from math import ceil\n\ndef up(x):\n    '''Rounds up.'''\n",
    "entry_point": "up",
    "canonical_solution": "    return ceil(x)\n",
    "test": "def check(candidate):\n    assert candidate(1.5) == ceil(1.5)\n",
}
MBPP = {
    "task_id": 7,
    "text": "Write a function to add.",
    "code": "def helper(): pass\r\ndef add(a, b): return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
EVALPLUS = {
    "task_id": "Mbpp/1",
    "prompt": '"""\nAdd a pair.\nassert add_pair((1, 2)) == 3\n"""\n',
    "entry_point": "add_pair",
    "canonical_solution": "def add_pair(pair):\n    a, b = pair\n    return a + b\n",
    "base_input": [[[1, 2]]],
    "plus_input": [[[3, 4]], [[5, INFINITY]]],
    "atol": 0,
}
STDIN = {
    "problem_id": 3,
    "question": "Add the numbers.",
    "input_output": json.dumps({"inputs": ["1 2\n", ["3 4"]], "outputs": ["3\n", ["7"]]}),
    "difficulty": "introductory",
    "starter_code": "",
    "solutions": "",
}
CALLED = {
    "problem_id": 4,
    "question": "Add the numbers.",
    "starter_code": "class Solution:\n    def add(self, a, b):",
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], 7]}),
    "difficulty": "interview",
}
OWN = {"id": "a", "problem": "Write f.", "tests": ["assert f(1) == 2"], "entry_point": "f", "level": 3}


def problem_of(tmp_path: Path, row: dict[str, Any], name: str = "humaneval") -> Problem:
    file = tmp_path / f"{name}.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    [problem] = load_problems(str(file))
    return problem


@pytest.mark.parametrize(
    ("row", "id", "right", "wrong"),
    [
        (HUMANEVAL, "HumanEval/7", HUMANEVAL["prompt"] + "    return ceil(x)", "def up(x):\n    return x"),
        (MBPP, "Mbpp/7", "def add(a, b):\n    return b + a", "def add(a, b):\n    return a"),
        # A list in place of a pair would not be hashed: the arguments are pairs, as the assert shows them.
        (
            EVALPLUS,
            "Mbpp/1",
            "def add_pair(p):\n    return sum(hash(p) * 0 + x for x in p)",
            "def add_pair(p): return 3",
        ),
        (STDIN, "3", "print(sum(map(int, input().split())))", "print(3)"),
        (CALLED, "4", "class Solution:\n    def add(self, a, b):\n        return a + b", "def add(a, b): return 3"),
        (CALLED, "4", "def add(a, b):\n    return [a + b][0]", "class Solution: pass"),
        (OWN, "a", "def f(x): return x + 1", "def f(x): return x"),
    ],
    ids=["humaneval", "mbpp", "evalplus", "stdin", "method", "function", "own"],
)
@needs_sandbox
def test_right_programs_pass_the_tests_of_each_form_and_wrong_ones_do_not(tmp_path, row, id, right, wrong):
    problem = problem_of(tmp_path, row)
    assert (problem.id, problem.answer) == (id, None)
    with closing(CodeGrader(workers=1, timeout_s=1.0)) as grader:
        answers = [Answer(id, f"```python\n{text}\n```", problem.extra, problem.problem) for text in (right, wrong)]
        assert [found.is_right for found in grader.grade(answers)] == [True, False]


def test_what_is_kept_beside_tests(tmp_path):
    assert problem_of(tmp_path, STDIN).extra["difficulty"] == "introductory"
    assert problem_of(tmp_path, OWN).extra["level"] == 3
    assert problem_of(tmp_path, CALLED).problem.endswith("def add(self, a, b):")
    assert "solutions" not in problem_of(tmp_path, STDIN).extra
    assert problem_of(tmp_path, MBPP).extra["entry_point"] == "add"


def test_the_prompt_of_mbpp_shows_the_asserts_which_alone_name_the_function(tmp_path):
    assert problem_of(tmp_path, MBPP).problem.splitlines() == ['"""', MBPP["text"], *MBPP["test_list"], '"""']


def test_asserts_say_how_evalplus_compares():
    def compare(asserts: str, name: str = "f") -> str:
        values = {**EVALPLUS, "entry_point": name, "prompt": f'"""\n{asserts}\n"""\n'}
        return row_of(values, "row")["tests"]["base"]["compare"]

    assert compare("assert f((1, 2)) == 3") == "equal"
    assert compare("assert set(f((1, 2))) == set([3])") == "set"
    assert compare('assert f("a")\nassert not f("b")') == "truth"
    assert compare('assert f("a")\nassert f("b") == 1') == "equal"


def test_tuples_come_back_where_the_asserts_show_them():
    prompt = "assert f([(1, 2)], (3, [4])) == {}\nassert f([], (5, [6]), {'k': (7,)}) == 1"
    row = {**EVALPLUS, "entry_point": "f", "prompt": prompt, "base_input": [[[[1, 2]], [3, [4]], {"k": [7]}]]}
    tests = sandbox_tests(row_of(row, "row")["tests"]["base"], "f")
    assert tests.inputs == [[[(1, 2)], (3, [4]), {"k": (7,)}]]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"task_id": "x", "prompt": "p"}, "has no tests; expected a field named tests, base_input"),
        ({**STDIN, "input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs and 0 outputs"),
        ({**STDIN, "input_output": "{"}, "cannot be read"),
        ({**STDIN, "input_output": ""}, "has no tests, so nothing can be right"),
        ({**OWN, "tests": {"base": {"kind": "riddle"}}}, "asserts or calls or stdio"),
        ({**OWN, "tests": {"plus": {"kind": "asserts", "code": ["assert f"]}}}, "the keys base and plus"),
        ({**OWN, "tests": [1]}, "`code` is a list of texts"),
        ({**OWN, "tests": ["assert f(1) == 1", "assert f("]}, "'(' was never closed (tests, line 2)"),
        ({**OWN, "tests": "assert f(1)"}, "list of assert statements"),
        ({**OWN, "tests": {"kind": "calls", "inputs": "[[{}]]"}}, "calls"),
        ({**OWN, "tests": {"kind": "calls", "inputs": [[1]]}}, "`inputs` and `expected` are texts"),
        ({**OWN, "tests": {"kind": "calls", "expected": "[]"}}, "'inputs'"),
        ({**OWN, "tests": {"kind": "calls", "inputs": "[1]", "expected": "[1]"}}, "a list of arguments"),
        ({**OWN, "tests": {"kind": "calls", "inputs": "[]", "expected": "[]"}}, "every program would pass"),
        ({**OWN, "tests": {"kind": "stdio", "cases": []}}, "every program would pass"),
        ({**OWN, "tests": {"kind": "stdio", "cases": ["ab"]}}, "pairs of texts, input and output"),
        ({**OWN, "entry_point": "a b"}, "the name of a function, not 'a b'"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, row, words):
    with pytest.raises(DataError, match=r"humaneval\.jsonl:1") as caught:
        problem_of(tmp_path, row)
    assert words in str(caught.value)


def test_rows_without_tests_are_left_out_of_apps(tmp_path):
    write_rows(tmp_path / "apps.jsonl", ({**STDIN, "input_output": ""}, CALLED))
    assert [problem.id for problem in load_problems(str(tmp_path / "apps.jsonl"))] == ["4"]


def test_a_copy_of_code_is_kept_with_its_tests(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    rows = [{**MBPP, "split": split, "task_id": number} for number, split in enumerate(("train", "test"))]
    write_rows(tmp_path / "mbpp.jsonl", rows)
    fetched = fetch(registry()["mbpp"].model_copy(update={"count": 2}), file=tmp_path / "mbpp.jsonl")[0]
    assert [problem.id for problem in load_problems("mbpp")] == ["Mbpp/1"]  # of the test split
    assert local_problems("mbpp") == fetched == load_problems(str(tmp_path / "mbpp.jsonl"))


def test_tests_are_part_of_the_content_and_other_columns_are_not():
    def digest(**extra: object) -> str:
        return content_hash([Problem("b", "1", "p", None, extra)])

    assert digest() == digest(level=3) != digest(tests={"base": {}})
    assert digest(tests={"base": {}}) != digest(tests={"base": {}}, entry_point="f")


def test_the_grader_of_a_benchmark():
    found = {
        name: grader_of(name) for name in ("math500", "countdown", "countdown-hard", "mbppplus", "HumanEval-X", "own")
    }
    assert list(found.values()) == ["math", "countdown", "countdown", "code", "code", "math"]


def test_values_that_cannot_be_written_down_are_refused():
    with pytest.raises(ValueError, match="cannot be saved as JSON"):
        as_json(Calls(entry_point="f", inputs=[[object()]], expected=[1]))


@pytest.mark.skipif(not os.environ.get("QUATRO_DATA"), reason="QUATRO_DATA names no folder")
def test_humaneval_is_not_taken_for_humanevalplus(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="holds the problems and tests of humaneval;"):
        fetch(registry()["humanevalplus"], file=Path(os.environ["QUATRO_DATA"]) / "humaneval.jsonl")
    assert not list(tmp_path.iterdir())
