"""Grading of mathematical answers: is the answer in this completion the reference answer?

Stages: extraction of the boxed answer, equality of normal forms, exact rational numbers and structures of them. No
floating point decides anything, nothing is evaluated as code, and the cost is bounded whatever the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from evals.grading.compare import Policy, compare
from evals.grading.extraction import EXTRACTION_POLICIES, ExtractionPolicy, extract

__all__ = ["GRADER_VERSION", "Grade", "Outcome", "grade"]

# Part of every result: raise it whenever a grade may come out differently.
GRADER_VERSION = "1"

Outcome = Literal["correct", "incorrect", "no_answer", "timeout", "error", "infra_error"]
POLICIES: tuple[Policy, ...] = ("strict", "simko")


@dataclass(frozen=True, slots=True)
class Grade:
    """``stage`` is where the outcome was decided: extraction, string, exact, or undecided.

    `undecided` answers count as incorrect: neither equal as text nor comparable as exact numbers.
    """

    correct: bool
    outcome: Outcome
    extracted: str | None
    stage: str


def grade(
    completion: str,
    answer: str | float | None,
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
    relative_tolerance: float = 0.0,
) -> Grade:
    """The grade of ``completion`` (never with its prompt: prompts can hold boxes) against the raw reference ``answer``.

    `simko` is lenient as SimKO's grader is, for comparison with published numbers: numbers agree within 1e-4 relative,
    also after a factor of 100 either way, and lists agree if the shorter begins the longer. ``relative_tolerance``
    applies, under `strict`, to references that are not integers. An empty reference gives the outcome `error`.

    Raises:
        ValueError: ``policy`` or ``extraction`` is unknown. No completion and no answer raises.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown grading policy {policy!r}; expected one of {', '.join(POLICIES)}")
    if extraction not in EXTRACTION_POLICIES:
        raise ValueError(f"unknown extraction {extraction!r}; expected one of {', '.join(EXTRACTION_POLICIES)}")
    reference = "" if answer is None else str(answer).strip()
    if not reference:
        return Grade(False, "error", None, "reference")
    found = extract(completion if isinstance(completion, str) else "", extraction)
    if not found.text:
        is_wrong = found.is_truncated or found.text is not None
        return Grade(False, "incorrect" if is_wrong else "no_answer", found.text, "extraction")
    is_correct, stage = _graded_pair(found.text, reference, policy, relative_tolerance)
    return Grade(is_correct, "correct" if is_correct else "incorrect", found.text, stage)


# Thousands of completions of one problem hold a handful of different answers.
@lru_cache(maxsize=20_000)
def _graded_pair(extracted: str, reference: str, policy: Policy, relative_tolerance: float) -> tuple[bool, str]:
    decision = compare(extracted, reference, policy, relative_tolerance)
    # The symbolic stage belongs here: it takes the pairs on which `compare` has no verdict.
    return (decision.is_equal is True, decision.stage)
