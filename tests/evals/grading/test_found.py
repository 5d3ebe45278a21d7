"""Answers that were misread when the grader was attacked: their grades, and the list of nouns that a unit is one of."""

import re
from pathlib import Path

from evals import grading
from evals.grading import grade_many
from tests.kit import read_rows

ROWS = read_rows(Path(__file__).parent / "found.jsonl")
NOUNS = Path(grading.__file__).parent / "nouns.txt"
NO_NOUNS = ("multiplier words", "words that are no nouns", "multipliers of other languages")


def check(rows: list[dict]) -> None:
    grades = grade_many((f"The answer is $\\boxed{{{row['answer']}}}$.", row["reference"]) for row in rows)
    assert [row for row, grade in zip(rows, grades, strict=True) if grade.correct != row["right"]] == []


def test_everything_that_was_found_is_graded_as_labelled():
    check(ROWS)


def test_every_kind_has_right_and_wrong_answers_and_each_pair_stands_once():
    assert len({(row["reference"], row["answer"]) for row in ROWS}) == len(ROWS)
    kinds = {row["kind"] for row in ROWS}
    assert {(row["kind"], row["right"]) for row in ROWS} == {(kind, right) for kind in kinds for right in (True, False)}


def nouns() -> list[str]:
    return [line for line in NOUNS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def test_the_nouns_are_lower_case_sorted_and_few_and_say_whose_they_are():
    words = nouns()
    assert words == sorted(set(words))
    assert all(re.fullmatch("[a-z]{3,}", word) for word in words)
    assert NOUNS.stat().st_size < 200_000
    head = NOUNS.read_text(encoding="utf-8").partition("\naardvark")[0]
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in head
    assert "Copyright 2000-2011 by Kevin Atkinson" in head


def test_no_noun_is_a_number_or_a_multiplier():
    numbers = "zero one two twelve twenty hundred thousand million quadrillion googol dozen score gross pair half"
    numbers += " couple quarter third double triple twice"
    numbers += " percent mille mil lakh crore grand giga mega myriad second root base"
    assert not set(numbers.split()) & set(nouns())


def test_the_words_of_wrong_answers_are_no_nouns_and_those_of_right_answers_are():
    known = set(nouns())
    for row in ROWS:
        tail = re.fullmatch(r"5\\text\{ ([a-z]+)\}", row["answer"])
        if tail and row["kind"] in NO_NOUNS and row["reference"] == "5":
            word = tail[1]
            forms = {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}
            assert bool(forms & known) == row["right"], word
