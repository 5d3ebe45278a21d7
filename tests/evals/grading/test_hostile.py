"""Texts made to harm or to cost much, and whole files of completions: none raises, none takes long."""

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.grading import Grade, grade, grade_many


def boxed(answer: str, gold: str) -> Grade:
    return grade(f"So the answer is $\\boxed{{{answer}}}$.", gold)


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Process time, not wall time: a busy machine must not fail a test."""
    start = time.process_time()
    yield
    assert time.process_time() - start < seconds


def folder(variable: str) -> Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set")
    return Path(os.environ[variable])


PIECES = [
    r"\frac",
    r"\boxed{",
    "{",
    "}",
    r"\{",
    r"\}",
    "(",
    ")",
    "[",
    ",",
    "$",
    r"\text{",
    "5",
    "x",
    "=",
    r"\\",
    "^",
    " ",
]
latex = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join)


@settings(deadline=None)
@given(st.text() | latex, (st.text() | latex).filter(lambda text: text.strip()), st.sampled_from(["strict", "simko"]))
def test_no_text_raises(completion: str, gold: str, policy: str) -> None:
    for extraction in ("boxed", "answer-is", "last-number"):
        grade(completion, gold, policy=policy, extraction=extraction)
    grade(f"\\boxed{{{completion}}}", gold, policy=policy)


REPEATED = [
    *PIECES,
    r"\boxed",
    r"\sqrt",
    r"\frac1",
    "1,",
    "1,111,",
    "a=",
    "=",
    r"\pm",
    r"\cup",
    " and ",
    "aa ",
    "12aa ",
    "½",
    "²",
]
REPEATED += [
    r"\text{a}",
    r"\begin{pmatrix}",
    "&",
    "%",
    r"\in",
    "_{a}",
    "1+",
    "2^",
    "{,}",
    "$,$",
    "9",
    "1e",
    "answer is ",
]


@pytest.mark.parametrize("command", ["text", "mathrm", "mathbf", "underline"])
def test_commands_nested_hundreds_of_times_are_no_formula(command: str) -> None:
    answer = f"\\{command}{{" * 300 + "6" + "}" * 300
    assert not grade(f"The answer is $\\boxed{{{answer}}}$.", "7").correct
    deepest = f"\\{command}{{" * (4000 // (len(command) + 3)) + "}" * (4000 // (len(command) + 3))
    assert not grade(f"The answer is $\\boxed{{{deepest}}}$.", "7").correct


@pytest.mark.slow
def test_the_cost_of_hostile_answers_is_bounded():
    pairs = []
    for piece in REPEATED:
        for length in (500, 4000, 19_000):
            text = (piece * length)[:length]
            forms = (f"\\boxed{{{text}}}", f"\\boxed{{x={text}}}", f"\\boxed{{5 {text}5}}", text)
            pairs += [(completion, "123456") for completion in forms] + [("\\boxed{5}", text)]
    with cpu_limit(30):
        grades = grade_many(pairs)
    assert not any(found.correct for found in grades)
    assert {found.outcome for found in grades} <= {"incorrect", "no_answer", "timeout", "error"}


@pytest.mark.parametrize(
    "answer", ["5 " + "\\text{to} " * 24 + "x", f"5\\text{{ {'a.m.' * 24}@}}", f"5\\text{{ {'a2 * ' * 24}@}}"]
)
def test_words_that_could_be_cut_in_many_ways_are_read_once(answer):
    with cpu_limit(2):
        assert not boxed(answer, "7").correct


@pytest.mark.parametrize("piece", ["\\boxed{", "\\boxed ", "{", "\\", "answer is ", "1,", "answer is $"])
def test_a_megabyte_is_read_in_linear_time(piece):
    text = piece * (10**6 // len(piece))
    with cpu_limit(5):
        for extraction in ("boxed", "answer-is", "last-number"):
            grade(text, "5", extraction=extraction)


def prediction_of(case: dict[str, object]) -> str:
    if case.get("prediction") is not None:
        return str(case["prediction"])
    return "".join(text * times for text, times in case.get("prediction_rle") or [])


def test_labelled_cases_are_graded_as_labelled():
    path = folder("QUATRO_GRADING_CASES")
    lines = [line for file in sorted(path.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").split("\n")]
    cases = [json.loads(line) for line in lines if line]
    with cpu_limit(30):
        grades = grade_many((prediction_of(case), case["gold"]) for case in cases)
    graded = [(case, found.correct) for case, found in zip(cases, grades, strict=True)]
    settled = [(case, correct) for case, correct in graded if not case["convention"]]
    false_positives = [
        case["id"] for case, correct in graded if correct and not case["correct"] and not case["convention"]
    ]
    hostile = [(case, correct) for case, correct in graded if case["kind"] == "adversarial"]
    assert settled
    assert [case["id"] for case, correct in hostile if correct and not case["correct"]] == []
    assert len(false_positives) <= 0.005 * len(settled)
    # Measured on the public half: 426 of 426.
    assert sum(correct == case["correct"] for case, correct in settled) >= 0.975 * len(settled)
    assert {found.outcome for found in grades} <= {"correct", "incorrect", "no_answer", "timeout"}


def test_dangerous_sample_files_are_wrong_cheap_and_harmless():
    files = sorted(folder("QUATRO_BAD_INPUTS").glob("samples/grader_*.jsonl"))
    assert files
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with cpu_limit(10):
        for file in files:
            for line in file.read_text(encoding="utf-8").split("\n"):
                if line:
                    row = json.loads(line)
                    assert not grade(row["completion"], row["answer"]).correct
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 2**20


def test_every_reference_of_the_benchmarks_equals_itself_in_a_box():
    for file in sorted(folder("QUATRO_DATA").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").split("\n"):
            gold = json.loads(line)["answer"] if line else None
            if gold:
                assert boxed(gold, gold).correct, (file.name, gold)
