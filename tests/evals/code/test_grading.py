"""Completions of code with their grades: which tests are run, how often, and what counts as right."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import evals.sandbox.pool
from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem
from evals.code.grading import ALLOW_UNSAFE, Answer, CodeGrader, asserts, isolation
from evals.errors import MissingError
from evals.sandbox import Tier, probe
from tests.kit import read_rows

needs_sandbox = pytest.mark.skipif(probe().name == "none", reason="no isolation here")
EXTRA = {
    "entry_point": "f",
    "tests": {"base": asserts(["assert f(1) == 1", "assert f(2) == 2"]), "plus": asserts(["assert f(-3) == 3"])},
}
RIGHT = "def f(x):\n    return abs(x)"
BASE_ONLY = "def f(x):\n    return x"
HALF = "def f(x):\n    return 1"


@pytest.fixture(scope="module")
def grader():
    with closing(CodeGrader(workers=1, timeout_s=1.0)) as found:
        yield found


@needs_sandbox
def test_plus_counts_only_if_base_passes(grader):
    found = grader.grade([Answer(1, text, EXTRA) for text in (RIGHT, BASE_ONLY, HALF, "no program")])
    statuses = [{name: verdict.status for name, verdict in one.verdicts.items()} for one in found]
    assert statuses == [{"base": "pass", "plus": "pass"}, {"base": "pass", "plus": "fail"}, {"base": "fail"}, {}]
    assert [one.is_right for one in found] == [True, False, False, False]
    assert [one.program is None for one in found] == [False, False, False, True]


@needs_sandbox
@pytest.mark.parametrize(
    "program",
    [
        "class Solution:\n    def f(self, x: List[int]):\n        return abs(x) + len(Counter()) + math.floor(0.5)",
        "from __future__ import annotations\nclass Solution:\n    def f(self, x: List[int]):\n        return abs(x)",
        "# class Solution is not needed\nf = abs",
    ],
)
def test_a_class_solution_has_the_imports_of_its_site(grader, program):
    [found] = grader.grade([Answer(1, program, EXTRA)])
    assert found.is_right, found.failed


@needs_sandbox
def test_equal_programs_of_a_problem_are_run_once(grader, monkeypatch):
    given = []
    run = evals.sandbox.pool.Sandbox.run
    monkeypatch.setattr(evals.sandbox.pool.Sandbox, "run", lambda self, jobs: run(self, map(seen(given), jobs)))
    progress = []
    answers = [Answer(key, text, EXTRA) for key in (1, 2) for text in (RIGHT, f"```\n{RIGHT}\n```", HALF, RIGHT)]
    found = grader.grade(answers, lambda done, total: progress.append((done, total)))
    assert len(given) == 2 * (2 + 1)  # both programs with base, the right one with plus
    assert [one.is_right for one in found] == [True, True, False, True] * 2
    assert progress[-1] == (8, 8)


def seen(given: list):
    def note(job):
        given.append(job)
        return job

    return note


@needs_sandbox
def test_every_test_is_counted_where_that_is_asked_for():
    with closing(CodeGrader(workers=1, timeout_s=1.0, every_test=True)) as grader:
        [half] = grader.grade([Answer(1, HALF, EXTRA)])
    assert {name: (one.num_passed, one.num_tests) for name, one in half.verdicts.items()} == {
        "base": (1, 2),
        "plus": (0, 1),
    }


@needs_sandbox
def test_a_completion_that_continues_its_prompt_is_run_with_it(grader):
    prompt = "def g(x):\n    return abs(x)\n\ndef f(x):\n    '''The size of x.'''\n"
    [found] = grader.grade([Answer(1, "    return g(x)\n", EXTRA, prompt)])
    assert found.is_right


def test_without_isolation_nothing_runs_unless_it_is_allowed(monkeypatch):
    monkeypatch.setattr("evals.sandbox.pool.probe", lambda: Tier("none", ()))
    monkeypatch.delenv(ALLOW_UNSAFE, raising=False)
    with pytest.raises(MissingError, match="--allow-unsafe-code") as caught:
        CodeGrader()
    assert caught.value.exit_code == 3
    monkeypatch.setenv(ALLOW_UNSAFE, "1")
    with closing(CodeGrader(workers=1, timeout_s=1.0)) as grader:
        [found] = grader.grade([Answer(1, RIGHT, EXTRA)])
    assert found.is_right
    assert found.verdicts["base"].tier == "none"


def test_the_isolation_in_results():
    assert isolation().startswith(f"{probe().name}, version ")


# --- real programs ----------------------------------------------------------------------------------------------------

DATA = Path(os.environ.get("QUATRO_DATA", "-"))
STORED = Path(os.environ.get("QUATRO_COMPLETIONS", "-")) / "completions_qwen_coder_evalplus.jsonl"
# Where a stored status differs, and why ours stands.
EXPLAINED = {
    # The asserts ask for set(...) == set(...), and the program gives another order or a set; the stored run asked for
    # the order of the canonical solution.
    *((model, id) for model in ("1.5b", "7b") for id in ("Mbpp/2", "Mbpp/232")),
    ("1.5b", "Mbpp/249"),
    ("7b", "Mbpp/111"),
    # The canonical solution contradicts the asserts of its own problem, so evalplus accepts any answer.
    ("1.5b", "Mbpp/164"),
    # A test function of the model's own breaks off behind a right function; the stored run took the text as it was.
    ("7b", "Mbpp/803"),
}
# Right and slow: some seconds, where the stored run allowed about one. A busy machine may stop it too.
SLOW = {("1.5b", "Mbpp/123")}

# Twelve problems of mbppplus take five sixths of the time of all.
LONG_SUMS = {f"Mbpp/{n}" for n in (84, 123, 271, 300, 389, 392, 583, 589, 592, 599, 603, 630)}


def stored(benchmark: str) -> list[dict]:
    with STORED.open(encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["benchmark"] == benchmark]


def differing(rows: list[dict], name: str) -> set[tuple[str, str]]:
    """(model, id) of the rows whose base verdict is not the stored one."""
    problems = {problem.id: problem for problem in load_problems(str(DATA / f"{name}.jsonl"))}
    base = {id: {**one.extra, "tests": {"base": one.extra["tests"]["base"]}} for id, one in problems.items()}
    answers = [Answer(row["id"], row["completion"], base[row["id"]], problems[row["id"]].problem) for row in rows]
    with closing(CodeGrader()) as grader:
        found = grader.grade(answers)
    return {
        (row["model"].split("-")[2], row["id"])
        for row, one in zip(rows, found, strict=True)
        if one.is_right != (row["base_status"] == "pass")
    }


@pytest.mark.slow
@needs_sandbox
@pytest.mark.skipif(not (STORED.exists() and DATA.exists()), reason="QUATRO_COMPLETIONS or QUATRO_DATA names no folder")
@pytest.mark.parametrize(("benchmark", "name"), [("humaneval", "humaneval"), ("mbpp", "mbppplus")])
def test_base_verdicts_agree_with_the_stored_ones_but_for_what_is_explained(benchmark, name):
    rows = stored(benchmark)
    assert len(rows) == {"humaneval": 328, "mbpp": 798}[benchmark]
    assert differing(rows, name) - SLOW == (EXPLAINED if benchmark == "mbpp" else set())


def with_few_calls(problem: Problem) -> Problem:
    """The problem with every twentieth of its `plus` tests, where its solution counts for seconds."""
    if problem.benchmark != "mbppplus" or problem.id not in LONG_SUMS:
        return problem
    plus = dict(problem.extra["tests"]["plus"])
    plus["inputs"] = json.dumps(json.loads(plus["inputs"])[::20])
    return replace(problem, extra={**problem.extra, "tests": {**problem.extra["tests"], "plus": plus}})


@needs_sandbox
@pytest.mark.skipif(not DATA.exists(), reason="QUATRO_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "adapt", "every"),
    [
        pytest.param("humaneval", with_few_calls, 1, marks=pytest.mark.slow),
        *(pytest.param(name, with_few_calls, 3, marks=pytest.mark.slow) for name in ("mbpp", "mbppplus")),
        *(pytest.param(name, lambda problem: problem, 1, marks=pytest.mark.long) for name in ("mbpp", "mbppplus")),
    ],
)
def test_solutions_that_come_with_a_benchmark_are_right(name, adapt, every):
    rows = read_rows(DATA / f"{name}.jsonl")
    solution_of = {row["id"]: row["canonical_solution"] for row in rows}
    problems = list(map(adapt, load_problems(str(DATA / f"{name}.jsonl"))))[::every]
    with closing(CodeGrader(timeout_s=60.0)) as grader:
        found = grader.grade([Answer(one.id, solution_of[one.id], one.extra, one.problem) for one in problems])
        wrong = {problem.id: one.failed for problem, one in zip(problems, found, strict=True) if not one.is_right}
        assert wrong == {}
        nothing = [
            Answer(one.id, f"def {one.extra['entry_point']}(*args):\n    return None", one.extra) for one in problems
        ]
        passed = [problem.id for problem, one in zip(problems, grader.grade(nothing), strict=True) if one.is_right]
    assert len(passed) <= {"humaneval": 0, "mbpp": 0, "mbppplus": 0}[name]
