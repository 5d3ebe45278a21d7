"""No regular expression of the packages reads a text in ever more ways, and nothing that reads answers is quadratic."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from ambiguity import ambiguity  # noqa: E402
from collecting import patterns  # noqa: E402


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"(a|a)*b",
        r"a*a*b",
        r"\s*\s*x",
        r"(?:\d+,?)+$",
        r"(?:a*)*b",
        r"(a|ab|b)*c",
        r"a*b?a*c",
        r"(?:a|b)*(?:b|c)*",
        r"(x\s*|\s+)*",
        r"(\d+)\1*x",
        r"(?i)(?:a|[^b])*",
        r"(?=(a+)+b)c",
        r"(?>(a+)+b)",
        r"(?:(?:(?>a))*)*b",
        r"(?:a++|a)*b",
        r"a{2,}a{5,100}b",
        r"\d+\.?\d*x",
        # The first of a grader that took 20 seconds for an answer of 24 words.
        r"\\text\s*\{[^{}]*\}(?:\s*\^\s*\d\s*)?(?:\s*[*/]?\s*\\text\s*\{[^{}]*\}(?:\s*\^\s*\d\s*)?)*\s*$",
        r"(?:[ap]\.m\.?|[a-z]+\.?)(?:(?:\s+|(?<=\.))(?:[ap]\.m\.?|[a-z]+\.?))*",
    ],
)
def test_a_pattern_that_reads_a_text_in_ever_more_ways_is_found(pattern):
    assert ambiguity(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:a|b)*c",
        r"[^x]*x",
        r"a*ba*c",
        r"(?:a+b)*",
        r"(?:a{1,3})b",
        r"(?:a++)+b",
        r"\s*+\s*x",
        r"\s*+,?\s*x",
        r"(?>a+)b*a",
        r"(?:(?>a))*",
        r"(?>a|ab|[^,])+",
        r"(?>.*?x).*",
        r"\d+(?!\d)x?\d*",
        r"\d*\b.*",
        r"(?:\\[A-Za-z]+(?![A-Za-z]) ?|[A-Za-z])+",
        r"(?:[^{}]|\{[^{}]*\})*\}",
        r'"(?:[^"\\]|\\.)*"',
    ],
)
def test_a_pattern_that_reads_a_text_in_one_way_is_none(pattern):
    assert ambiguity(pattern) is None


def test_the_text_that_is_found_can_be_repeated():
    text = ambiguity(r"(?:ab|a|b)*c")
    assert text
    assert re.fullmatch(r"(?:ab|a|b)*", text * 5)


def test_every_pattern_of_the_packages_reads_a_text_in_one_way():
    found = list(patterns())
    assert len(found) > 100
    ambiguous = {one.where: ambiguity(one.pattern.pattern, one.pattern.flags) for one in found}
    assert {where: text for where, text in ambiguous.items() if text is not None} == {}


def _output(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, HERE / program], env=environment, capture_output=True, text=True)
    at = done.stderr.strip().rsplit("\n", 1)[-1]
    assert done.returncode == 0, f"{program} ended with {done.returncode} at {at}"
    return done.stdout


@pytest.mark.slow
def test_no_search_for_a_pattern_takes_more_than_time_linear_in_the_text():
    assert _output("pumping.py") == ""


@pytest.mark.slow
def test_what_reads_answers_takes_steps_in_proportion_to_them():
    assert _output("reading.py") == ""
