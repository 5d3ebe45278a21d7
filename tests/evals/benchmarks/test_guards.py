"""Problems that two sets share, and references that may mean another thing than the grader reads."""

import os
from pathlib import Path

import pytest

from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem, odd_references, shared_problems
from evals.grading import grade
from tests.kit import says


def problems(*texts: str, answers: str = "", ids: str = "p") -> list[Problem]:
    """Problems with these texts, of which letter i of ``answers`` is the answer, called p0, p1 ..."""
    answers = answers or "x" * len(texts)
    return [
        Problem("b", f"{ids}{at}", text, answer) for at, (text, answer) in enumerate(zip(texts, answers, strict=True))
    ]


@pytest.mark.parametrize(
    "copy", ["find  x\nsuch that $x^2 = 4$", "Find x, such that x^2 = 4.", "FIND X SUCH THAT “x^2 = 4”?"]
)
def test_case_blanks_and_punctuation_make_no_other_problem(copy):
    [(one, other)] = shared_problems(problems(copy, ids="e"), problems("Too", "Find x such that x^2 = 4", ids="t"))
    assert (one.id, other.id) == ("e0", "t1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 3+4", "What is 3-4"),
        ("Find f'(2)", "Find f(2)"),
        ("5! + 1", "5 + 1"),
        ("(2+3)*4", "2+(3*4)"),
        ("1.5", "15"),
    ],
)
def test_what_changes_a_formula_makes_another_problem(one, other):
    assert shared_problems(problems(one, ids="e"), problems(other, ids="t")) == []


def test_equal_ids_are_one_problem_if_their_answers_are_equal_too():
    texts, others = ["A", "B", "C"], ["Say A", "Say B", "Say C"]
    shared = shared_problems(problems(*texts, answers="123"), problems(*others, answers="123"))
    assert [(one.problem, other.problem) for one, other in shared] == [("A", "Say A"), ("B", "Say B"), ("C", "Say C")]


@pytest.mark.parametrize("answers", ["321", "111"])
def test_ids_that_count_rows_share_nothing(answers):
    """Where the answers differ, or all are one, the ids of two files are p0, p1 ... by chance."""
    first = "123" if answers == "321" else answers
    found = shared_problems(problems("A", "B", "C", answers=first), problems("D", "E", "F", answers=answers))
    assert found == []


def test_programs_with_one_name_are_one_problem_if_their_tests_are():
    def programs(text: str, *tests: str) -> list[Problem]:
        return [Problem("b", f"HumanEval/{at}", f"{text} {at}", None, {"tests": [one]}) for at, one in enumerate(tests)]

    ours = programs("Write", "assert f(1) == 1", "assert g(2) == 2")
    assert len(shared_problems(ours, programs("Code", "assert f(1) == 1", "assert g(2) == 2"))) == 2
    assert shared_problems(ours, programs("Code", "assert h(1) == 1", "assert i(2) == 2")) == []


def test_the_splits_of_the_embedded_task_share_nothing():
    assert shared_problems(load_problems("countdown"), load_problems("countdown", split="train")) == []


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("3/4/2024", "as year 2024, month 3, day 4"),
        ("10:30", "as a time"),
        ("5-7", "as a range"),
        ("3:1", "as a ratio"),
        ("2-1-3", "as 2 - 1 - 3"),
        ("4\\!:\\!51 \\text{ p.m.}", "as a time"),
    ],
)
def test_references_of_several_meanings_are_named_as_they_are_read(reference, said):
    (line,) = odd_references(problems("A", "B", answers="23") + [Problem("b", "c", "C", reference)], ["math"])
    says(line, "1 of the 3 references of b", f"'{reference}' {said}")
    assert grade(f"\\boxed{{{reference}}}", reference).correct


def test_each_kind_is_named_once_and_controls_are_shown():
    found = [Problem("b", str(at), "p", text) for at, text in enumerate(["1-2", "1-3", "1-4", "3:1", "2-3-\x1c4"])]
    (line,) = odd_references(found, ["math"])
    says(line, "5 of the 5", "'1-2'", "'3:1'")
    assert "1-3" not in line
    assert r"\x1c4" in line


@pytest.mark.parametrize(
    "reference", ["3/4", "-5", "0.5", "x-3", "3-2\\sqrt{2}", "2-3i", "(1-3)", "1{,}000", "10-3x", "2^{5-3}"]
)
def test_usual_references_are_not_named(reference):
    assert odd_references([Problem("b", "a", "p", reference)], ["math"]) == []


def test_only_maths_is_told_of():
    assert odd_references([Problem("b", "a", "p", "10:30")], ["countdown"]) == []
    assert odd_references([], ["math"]) == []


@pytest.mark.parametrize("name", ["math500", "aime24", "aime25", "amc23", "minerva", "olympiad"])
def test_no_reference_of_the_six_benchmarks_is_named(name):
    file = Path(os.environ.get("QUATRO_DATA", "-")) / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"QUATRO_DATA names no folder with {file.name}")
    assert odd_references(load_problems(str(file)), ["math"]) == []
