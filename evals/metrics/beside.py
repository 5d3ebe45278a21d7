"""The votes behind maj@k: how many samples of a problem gave each wrong answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evals.errors import UsageError
from evals.files.strict_json import shown
from evals.grading import Policy, same_answer
from evals.grading.extraction import ExtractionPolicy, extract
from evals.samples.types import GradedProblem, Problem

# Of one problem's wrong answers, the most frequent ones that others are compared with.
MOST_COMPARED = 32
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@dataclass
class _Candidate:
    """A wrong answer to one problem, in its most frequent spelling, and how many samples gave it."""

    answer: str
    times: int


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
        candidates: list[_Candidate] = []
        for one in _spellings(problem, graded, extraction):
            leader = next((c for c in candidates[:MOST_COMPARED] if _is_equal(one.answer, c.answer, policy)), None)
            if leader is None:
                candidates.append(one)
            else:
                leader.times += one.times
        votes.append(tuple(sorted((one.times for one in candidates), reverse=True)))
    return votes


def _spellings(problem: Problem, graded: GradedProblem, extraction: ExtractionPolicy) -> list[_Candidate]:
    """The wrong answers as they are written, those with the most votes first."""
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
    return [_Candidate(answer, times[answer]) for answer in sorted(times, key=lambda text: (-times[text], text))]


def _is_equal(one: str, other: str, policy: Policy) -> bool:
    if policy == "strict" and _INTEGER.fullmatch(one) and _INTEGER.fullmatch(other):
        return int(one) == int(other)  # most wrong answers are integers
    return bool(same_answer(one, other, policy=policy) or same_answer(other, one, policy=policy))
