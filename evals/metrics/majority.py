"""The votes behind maj@k: how often each wrong answer was given, two answers being one if their normal forms agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import lru_cache

from evals.errors import UsageError
from evals.files.strict_json import shown
from evals.grading.extraction import ExtractionPolicy, extract
from evals.grading.normal_form import parse_answer
from evals.grading.numbers import Number
from evals.samples.graders import grader_name
from evals.samples.types import GradedProblem, Problem


def wrong_votes(problem: Problem, graded: GradedProblem, *, extraction: ExtractionPolicy = "boxed") -> tuple[int, ...]:
    """How many samples gave each wrong answer, most frequent first; samples without an answer do not vote.

    Raises:
        UsageError: the benchmark's answers are not mathematical, so that no two samples vote for the same one.
    """
    grader = grader_name(problem.benchmark)
    if grader != "math":
        raise UsageError(
            f"maj@k counts equal final answers, which {problem.benchmark} does not have (grader {shown(grader)}); "
            "leave `maj` out, or name the mathematical benchmarks with -b"
        )
    # What is not among the correct completions is wrong, whoever graded.
    wrong = Counter(sample.completion for sample in problem.samples)
    wrong.subtract(graded.completions)
    votes: Counter[Hashable] = Counter()
    for completion, times in wrong.items():
        answer = extract(completion, extraction).text if times else None
        if answer:
            votes[_normal_form(answer)] += times
    return tuple(sorted(votes.values(), reverse=True))


@lru_cache(maxsize=20_000)
def _normal_form(answer: str) -> Hashable:
    reading = parse_answer(answer)[0]
    # 1/2 and 0.5 are one vote.
    return (
        (reading.value.value, reading.unit, reading.is_percent) if isinstance(reading.value, Number) else reading.text
    )
