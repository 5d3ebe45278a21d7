"""Grading of mathematical answers: is the answer in this completion the reference answer?

Stages: extraction of the boxed answer, equality of normal forms, exact rational numbers and structures of them, and for
what is left, behind a guard, computer algebra in worker processes with hard limits. No floating point decides anything,
nothing is evaluated as code, and the cost is bounded whatever the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from evals.grading.cache import GRADER_VERSION, close_workers, shared_cache
from evals.grading.compare import Equality, Policy, compare
from evals.grading.extraction import EXTRACTION_POLICIES, ExtractionPolicy, extract
from evals.grading.pool import Pair

__all__ = ["GRADER_VERSION", "OUTCOMES", "Grade", "Outcome", "close_workers", "grade", "grade_many"]

Outcome = Literal["correct", "incorrect", "no_answer", "timeout", "error", "infra_error"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "incorrect", "no_answer", "timeout", "error", "infra_error")
POLICIES: tuple[Policy, ...] = ("strict", "simko")


@dataclass(frozen=True, slots=True)
class Grade:
    """``stage`` is where the outcome was decided: reference, extraction, string, exact, symbolic, unparsed or guard.

    `unparsed` and `guard` are answers that no stage could compare, because one side is no formula or because it was not
    sent to the symbolic stage; they count as incorrect. Outcomes: `timeout` ran out of CPU time, `error` broke the
    symbolic stage (or there is no reference), `infra_error` says that this machine failed twice. ``detail`` says why;
    it begins with `undecided` for an answer that was neither proved to be equal nor found to differ, and is incorrect.
    Of code the stage is `sandbox`, and ``verdicts`` has the sandbox's status of each set of tests that was run; there
    `error` means tests that cannot be run. A function of the user's own has the stage `own`.
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
    relative_tolerance: float = 0.0,
) -> Grade:
    """The grade of ``completion`` (never with its prompt: prompts can hold boxes) against the raw reference ``answer``.

    `simko` is lenient as SimKO's grader is, for comparison with published numbers: numbers agree within 1e-4 relative,
    also after a factor of 100 either way, and lists agree if the shorter begins the longer. ``relative_tolerance``
    applies, under `strict`, to references that are not integers. An empty reference gives the outcome `error`.

    The first pair that needs computer algebra starts a worker process, which ends with the interpreter; any thread may
    call this.

    Raises:
        ValueError: ``policy`` or ``extraction`` is unknown. No completion and no answer raises.
        MissingError: the worker process cannot be started.
    """
    pair = [(completion, answer)]
    return grade_many(pair, policy=policy, extraction=extraction, relative_tolerance=relative_tolerance)[0]


def grade_many(
    pairs: Iterable[tuple[str, str | float | None]],
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
    relative_tolerance: float = 0.0,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Grade]:
    """`grade` of every (completion, answer), each different pair of extracted answer and reference graded once.

    Up to ``jobs`` processes do computer algebra (None: one a usable core); ``on_progress(done, total)`` is called as
    pairs of this stage are graded, which takes most of the time.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown grading policy {policy!r}; expected one of {', '.join(POLICIES)}")
    if extraction not in EXTRACTION_POLICIES:
        raise ValueError(f"unknown extraction {extraction!r}; expected one of {', '.join(EXTRACTION_POLICIES)}")
    grades: list[Grade | None] = []
    waiting: dict[Pair, list[int]] = {}
    known: dict[tuple[str, str], Grade] = {}
    for index, (completion, answer) in enumerate(pairs):
        reference = "" if answer is None else str(answer).strip()
        settled = _without_comparison(completion, reference, extraction)
        if isinstance(settled, Grade):
            grades.append(settled)
            continue
        key = (settled, reference)
        if key not in known:
            equality = _compared(settled, reference, policy, relative_tolerance)
            if equality.is_equal is None:
                waiting.setdefault(Pair(settled, reference, policy, relative_tolerance), []).append(index)
                grades.append(None)
                continue
            outcome: Outcome = "correct" if equality.is_equal else "incorrect"
            known[key] = Grade(equality.is_equal, outcome, settled, equality.stage)
        grades.append(known[key])
    if waiting:
        found = shared_cache().grade(list(waiting), on_progress, jobs=jobs)
        for (pair, indices), one in zip(waiting.items(), found, strict=True):
            symbolic = Grade(one.outcome == "correct", one.outcome, pair.answer, one.stage, one.detail)
            for index in indices:
                grades[index] = symbolic
    return [one for one in grades if one is not None]


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
def _compared(extracted: str, reference: str, policy: Policy, relative_tolerance: float) -> Equality:
    return compare(extracted, reference, policy, relative_tolerance)
