"""The votes behind maj@k: how many samples of a problem gave each wrong answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from evals.errors import UsageError
from evals.files.strict_json import shown
from evals.grading import ExtractionPolicy, extract, same_answer
from evals.grading.decide import Policy
from evals.samples.types import GradedProblem, Problem

# Of one problem's wrong answers, the most frequent ones that others are compared with.
MOST_COMPARED = 32
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def wrong_votes(
    pairs: Sequence[tuple[Problem, GradedProblem]],
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
) -> list[tuple[int, ...]]:
    """How many samples of each problem gave each wrong answer, most frequent first; those without one do not vote.

    Two wrong answers are one candidate if the grader, under ``policy``, calls one of them correct for the other as a
    reference. That need not be transitive: each spelling, in the order of its votes (then of its text), joins the first
    candidate to whose first spelling it is equal, of the `MOST_COMPARED` most frequent ones.

    Raises:
        UsageError: a benchmark's answers are not mathematical, so that no two samples vote for the same one.
    """
    votes = []
    for problem, graded in pairs:
        times: dict[str, int] = {}  # of each candidate, by its first spelling
        for answer, count in _spellings(problem, graded, extraction):
            compared = islice(times, MOST_COMPARED)
            first = next((one for one in compared if _is_equal(answer, one, policy)), answer)
            times[first] = times.get(first, 0) + count
        votes.append(tuple(sorted(times.values(), reverse=True)))
    return votes


def _spellings(problem: Problem, graded: GradedProblem, extraction: ExtractionPolicy) -> list[tuple[str, int]]:
    """The wrong answers as they are written, and how many samples gave each, those with the most votes first."""
    grader = graded.kind.grader
    if grader != "math":
        raise UsageError(
            f"maj@k counts equal final answers, which {problem.benchmark} does not have (grader {shown(grader)}); "
            "leave `maj` out, or name the mathematical benchmarks with -b"
        )
    # What is not among the correct completions is wrong, whoever graded.
    wrong = Counter(sample.completion for sample in problem.samples)
    wrong.subtract(graded.completions)
    times: Counter[str] = Counter()
    for completion, count in (+wrong).items():
        if answer := extract(completion, extraction).text:
            times[answer] += count
    return sorted(times.items(), key=lambda pair: (-pair[1], pair[0]))


def _is_equal(one: str, other: str, policy: Policy) -> bool:
    if policy == "strict" and _INTEGER.fullmatch(one) and _INTEGER.fullmatch(other):
        return int(one) == int(other)  # most wrong answers are integers
    return bool(same_answer(one, other, policy=policy) or same_answer(other, one, policy=policy))
