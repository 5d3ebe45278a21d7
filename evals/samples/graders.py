"""The grader of each benchmark, and the grades that it gives to samples."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evals.errors import DataError, UsageError
from evals.files.strict_json import shown
from evals.grading import Grade, grade_many
from evals.grading.compare import Policy
from evals.grading.extraction import ExtractionPolicy
from evals.samples.types import Sample

GRADERS = ("math", "countdown")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GradingSettings:
    """How to grade. ``grader`` None means the registry's choice for each benchmark."""

    policy: Policy = "strict"
    extraction: ExtractionPolicy = "boxed"
    grader: str | None = None


def grade_rows(
    rows: Sequence[Sample],
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
    grader: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Grade]:
    """A grade for each row, whatever its ``correct`` says, by the grader of its benchmark (or by ``grader``).

    ``policy`` and ``extraction`` concern maths; ``on_progress(done, total)`` counts what computer algebra grades.

    Raises:
        UsageError: there is no such grader.
        DataError: a row is code, or is not the countdown problem that its benchmark says.
    """
    if grader is not None and grader not in GRADERS:
        raise UsageError(f"unknown grader {grader!r}; choose {' or '.join(GRADERS)}")
    kinds = {name: grader or grader_name(name) for name in {row.benchmark for row in rows}}
    grades: dict[int, Grade] = {}
    maths = []
    for index, row in enumerate(rows):
        kind = kinds[row.benchmark]
        if kind == "countdown":
            grades[index] = _grade_countdown(row)
        elif kind == "math" and row.answer is not None:
            if not str(row.answer).strip():
                raise DataError(
                    f"{row.benchmark} {shown(row.id)} has an empty reference answer: nothing can be correct; "
                    "add the answer, or leave the problem out"
                )
            maths.append(index)
        else:
            raise DataError(
                f"{row.benchmark} {shown(row.id)} sample {row.sample_index} is code and has no `correct`: this version "
                "runs no tests, and `quatro eval grade` grades maths and countdown"
            )
    if maths:
        pairs = ((rows[index].completion, rows[index].answer) for index in maths)
        found = grade_many(pairs, policy=policy, extraction=extraction, on_progress=on_progress)
        grades.update(zip(maths, found, strict=True))
    return [grades[index] for index in range(len(rows))]


def _grade_countdown(row: Sample) -> Grade:
    from evals.benchmarks.countdown import solves

    try:
        is_correct = solves(str(row.answer), row.completion, row.finish_reason)
    except ValueError as error:
        raise DataError(f"{shown(row.id)} of {row.benchmark}: {error}") from error
    return Grade(is_correct, "correct" if is_correct else "incorrect", row.completion, "countdown")


def missing_box_hint(outcomes: Mapping[str, int], extraction: str) -> str | None:
    """What to try if more than half of the graded samples hold no box; else None."""
    num_rows = sum(outcomes.values())
    missing = outcomes.get("no_answer", 0)
    if extraction != "boxed" or 2 * missing <= num_rows:
        return None
    return (
        f"{missing} of {num_rows} graded samples hold no \\boxed answer (no_answer) and count as wrong; if their "
        "prompt asked for none, as GSM8K's does not, grade with `quatro eval grade --extraction last-number`"
    )


def refuse_infra_errors(outcomes: Iterable[tuple[Sample, str]]) -> None:
    """Raises DataError for a sample whose outcome is `infra_error`: the machine failed, not the model."""
    for row, outcome in outcomes:
        if outcome == "infra_error":
            raise DataError(
                f"sample {row.sample_index} of {shown(row.id)} ({row.benchmark}) has outcome infra_error: grading "
                "failed on this machine, so it is neither right nor wrong; grade the file again with "
                "`quatro eval grade`"
            )


def log_failures(grades: Sequence[Grade]) -> None:
    """Logs a warning if the grader gave up on samples, which then count as wrong."""
    counts = Counter(grade.outcome for grade in grades)
    failed = {name: counts[name] for name in ("timeout", "error", "infra_error") if counts[name]}
    if failed:
        _log.warning(
            "%s of %d graded samples count as wrong; `quatro eval grade --explain` shows them",
            ", ".join(f"{name} {count}" for name, count in failed.items()),
            len(grades),
        )


def grader_name(benchmark: str) -> str:
    """`math`, `countdown`, or another name of the registry."""
    if is_countdown(benchmark):
        return "countdown"
    from evals.benchmarks.catalogue import registry

    known = registry().get(benchmark)
    return known.grader if known is not None else "math"


def is_countdown(benchmark: str) -> bool:
    """Whether ``benchmark`` is countdown, or one of its variants by name."""
    return benchmark == "countdown" or benchmark.startswith("countdown-")
