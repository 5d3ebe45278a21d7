"""Which part of a completion is the answer, and which texts are numbers."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.grading import EXTRACTION_POLICIES, extract, grade
from evals.grading.read import read


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} done", r"\frac{1}{2}"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\fbox{15}", "15"),
        (r"\boxed{ 3 }", "3"),
        (r"\boxed 80", "80"),
        (r"\boxed {80}", "80"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{5} and then \boxed{7", "5"),  # the last complete one
        (r"\boxed{a \boxed{7 }", "7"),
        (r"\boxed{54", None),
        (r"\boxed", None),
        (r"\boxedx{5}", None),
        ("the answer is 5", None),
        ("", None),
    ],
)
def test_the_last_complete_box_is_the_answer(completion, text):
    assert extract(completion).text == text


def test_a_truncated_box_is_wrong_and_a_missing_one_is_no_answer():
    assert grade(r"\boxed{54", "54").outcome == "incorrect"
    assert grade("It is 54.", "54").outcome == "no_answer"
    assert grade("", "54").outcome == "no_answer"


def test_an_answer_beyond_20_kb_is_not_an_answer():
    assert extract("\\boxed{" + "1" * 20_000 + "}").text == "1" * 20_000
    assert extract("\\boxed{" + "1" * 20_001 + "}").text is None


@pytest.mark.parametrize(
    ("completion", "answer_is", "last_number"),
    [
        (r"The answer is 3, no: \boxed{4}", "4", "4"),
        ("We get 7. The answer is $\\frac{1}{2}$.", "\\frac{1}{2}", "\\frac{1}{2}"),
        ("**Answer:** 12 apples\nBye 3", "12 apples", "12 apples"),
        ("Final Answer: The final answer is 3.5. I hope it is correct.", "3.5", "3.5"),
        ("We get 7 and then 1,234.5 in total", None, "1,234.5"),
        ("The answer is $17.", r"\$17", r"\$17"),
        ("So the answer is **$1,234.50** per day. So $x$ is it", r"\$1,234.50** per day", r"\$1,234.50** per day"),
        ("The answer is $5 or $6.", r"\$5 or $6", r"\$5 or $6"),
        ("The answer is $5$ or $6$.", "5", "5"),
        ("The answer is $5 + 1$.", "5 + 1", "5 + 1"),
        ("nothing", None, None),
    ],
)
def test_other_extractions_are_only_asked_for_where_there_is_no_box(completion, answer_is, last_number):
    assert extract(completion, "answer-is").text == answer_is
    assert extract(completion, "last-number").text == last_number


@pytest.mark.parametrize("said", ["is $17.", "is: $17.00", "is **$17**", "is $17 per day.\nThen $x$ is 3."])
def test_a_lone_dollar_sign_before_the_answer_is_a_currency_sign(said):
    assert grade(f"The answer {said}", "17", extraction="answer-is").outcome == "correct"
    assert grade(f"The answer {said}", "1700", extraction="answer-is").outcome == "incorrect"
    assert grade("The answer is $17 or $18.", "17", extraction="answer-is").outcome == "incorrect"


def exact(text: str) -> Fraction | None:
    return read(text)[-1].node.exact


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("007", Fraction(7)),
        ("-3./2", Fraction(-3, 2)),
        (".5", Fraction(1, 2)),
        ("8.7e8", Fraction(870_000_000)),
        ("8.7*10^{8}", Fraction(870_000_000)),
        ("1.5*10^-2", Fraction(3, 200)),
        ("\\frac{\\frac{1}{2}}{\\frac{3}{4}}", Fraction(2, 3)),
        ("-6\\frac{1}{2}", Fraction(-13, 2)),
        ("-2^2", Fraction(-4)),
        ("1/2/3", Fraction(1, 6)),
        ("(1+2)*3-4", Fraction(5)),
        ("10^3", Fraction(1000)),
        ("1/0", None),
        ("9^{9^{9}}", None),
        ("10^{10000}", None),
        ("1e999999999", None),
        ("2(3)", Fraction(6)),
        ("2x", None),
        ("٣", None),
        ("", None),
        ("(" * 500 + "5" + ")" * 499, None),
    ],
)
def test_numbers_are_exact_and_bounded(text, value):
    assert exact(text) == value


@given(st.fractions(), st.booleans())
def test_every_fraction_is_read_back(value: Fraction, as_command: bool) -> None:
    sign = "-" if value < 0 else ""
    top, bottom = abs(value.numerator), value.denominator
    text = f"{sign}\\frac{{{top}}}{{{bottom}}}" if as_command else f"{sign}{top}/{bottom}"
    assert exact(text) == value


def test_the_page_on_grades_says_of_each_extraction_when_to_choose_it():
    page = (Path(__file__).parents[3] / "docs/grading.md").read_text(encoding="utf-8")
    table = page.split("| `--extraction` |")[1].split("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    assert [row[1].split("`")[1] for row in rows] == list(EXTRACTION_POLICIES)
    assert all(row[2].strip() and row[3].strip() for row in rows)
