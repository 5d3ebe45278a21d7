"""Grading of mathematical answers: is the answer in this completion the reference answer?

The way of a text: `extraction` finds the answer, `tokens` and `parse` make a tree of it, `read` gives its readings, and
`decide` compares them with those of the reference. Nothing is evaluated as code, no process is started, and the time
grows linearly with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from evals.grading.decide import Decision, Policy, decide
from evals.grading.extraction import EXTRACTION_POLICIES, ExtractionPolicy, extract
from evals.grading.read import read, why_words
from evals.grading.tree import written

# Part of every result: raise it whenever a grade may come out differently.
GRADER_VERSION = "7"
Outcome = Literal["correct", "incorrect", "no_answer", "timeout", "error", "infra_error"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "incorrect", "no_answer", "timeout", "error", "infra_error")
POLICIES: tuple[Policy, ...] = ("strict", "simko")
MAX_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Grade:
    """``stage`` is where the outcome was decided, ``detail`` the rule that decided or what went wrong.

    Mathematics has the stages reference (there is none), extraction, text and tree, and the outcomes correct,
    incorrect, no_answer and error (there is no reference). Of code the stage is `sandbox`, and ``verdicts`` has the
    sandbox's status of each set of tests that was run; there `timeout` ran out of CPU time, `error` means tests that
    cannot be run, and `infra_error` that this machine failed twice. A function of the user's own has the stage `own`.
    """

    correct: bool
    outcome: Outcome
    extracted: str | None
    stage: str
    detail: str = ""
    verdicts: Mapping[str, str] = field(default_factory=dict)


def grade(
    completion: str,
    answer: str | float | None,
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
) -> Grade:
    """The grade of ``completion`` (never with its prompt: prompts can hold boxes) against the raw reference ``answer``.

    `simko` is lenient as SimKO's grader is, for comparison with published numbers: numbers agree within 1e-4 relative,
    also after a factor of 100 either way, and lists agree if the shorter begins the longer. An empty reference gives
    the outcome `error`.

    Raises:
        ValueError: ``policy`` or ``extraction`` is unknown. No completion and no answer raises.
    """
    return grade_many([(completion, answer)], policy=policy, extraction=extraction)[0]


def grade_many(
    pairs: Iterable[tuple[str, str | float | None]],
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Grade]:
    """`grade` of every (completion, answer), each different pair of extracted answer and reference graded once.

    ``on_progress(done, total)`` is called as pairs are graded.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown grading policy {policy!r}; expected one of {', '.join(POLICIES)}")
    if extraction not in EXTRACTION_POLICIES:
        raise ValueError(f"unknown extraction {extraction!r}; expected one of {', '.join(EXTRACTION_POLICIES)}")
    known: dict[tuple[str, str], Grade] = {}
    grades: list[Grade] = []
    all_pairs = list(pairs)
    for completion, answer in all_pairs:
        reference = "" if answer is None else str(answer).strip()
        found = _without_comparison(completion, reference, extraction)
        if isinstance(found, str):
            if (found, reference) not in known:
                known[found, reference] = _compared(found, reference, policy)
                if on_progress is not None:
                    on_progress(len(grades) + 1, len(all_pairs))
            found = known[found, reference]
        grades.append(found)
    return grades


def same_answer(found: str, reference: str, *, policy: Policy = "strict") -> Decision:
    """Whether two answers, as they stand in their boxes, say the same, with the rule that decided and what was read."""
    return decide(found, reference, policy)


def readings(text: str) -> str:
    """The trees of an answer as they are compared, the most literal first, or why it is none, for a person."""
    trees = read(text)
    found = " or ".join(dict.fromkeys(map(written, trees)))
    if trees[0].node.op == "words":
        found += f" (as words only: {why_words(text)})"
    return found if len(found) <= MAX_SHOWN_CHARS else f"{found[: MAX_SHOWN_CHARS - 3]}..."


def _without_comparison(completion: str, reference: str, extraction: ExtractionPolicy) -> Grade | str:
    """The extracted answer, or the grade where there is nothing to compare."""
    if not reference:
        return Grade(False, "error", None, "reference", "no reference answer")
    found = extract(completion if isinstance(completion, str) else "", extraction)
    if found.text:
        return found.text
    is_wrong = found.is_truncated or found.text is not None
    return Grade(False, "incorrect" if is_wrong else "no_answer", found.text, "extraction")


# Thousands of completions of one problem hold a handful of different answers.
@lru_cache(maxsize=20_000)
def _compared(extracted: str, reference: str, policy: Policy) -> Grade:
    decision = decide(extracted, reference, policy)
    outcome: Outcome = "correct" if decision else "incorrect"
    stage = "text" if decision and decision.said is None else "tree"
    return Grade(decision.is_equal, outcome, extracted, stage, decision.rule)


__all__ = [
    "GRADER_VERSION",
    "OUTCOMES",
    "Grade",
    "Outcome",
    "Policy",
    "grade",
    "grade_many",
    "readings",
    "same_answer",
]
