"""math-verify, another grader, with which ours is compared: `quatro eval grade --grader math-verify`."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from evals.errors import MissingError, how_to_install
from evals.grading import Grade
from evals.grading.extraction import ExtractionPolicy, extract

MATH_VERIFY = "math-verify"
# It has limits of time, of 5 s each; longer answers would often meet them.
MAX_CHARS = 1000


def math_verify_grades(
    pairs: Iterable[tuple[str, str | float | None]], extraction: ExtractionPolicy = "boxed"
) -> list[Grade]:
    """Its grades of (completion, reference), with the answer where our grader finds it.

    Raises:
        MissingError: math-verify is not installed.
    """
    try:
        from math_verify import parse, verify
    except ModuleNotFoundError as error:
        raise MissingError(f"--grader math-verify: it is not installed; run {how_to_install(MATH_VERIFY)}") from error
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it reports each answer that takes too long
    known: dict[tuple[str, str], Grade] = {}

    def judged(answer: str, reference: str) -> Grade:
        if len(answer) > MAX_CHARS:
            return Grade(False, "incorrect", answer, MATH_VERIFY, f"longer than {MAX_CHARS:,} characters")
        is_right = bool(verify(parse(f"${reference}$"), parse(f"\\boxed{{{answer}}}")))
        return Grade(is_right, "correct" if is_right else "incorrect", answer, MATH_VERIFY)

    grades = []
    for completion, reference in pairs:
        if not (answer := extract(completion, extraction).text):
            grades.append(Grade(False, "no_answer", answer, "extraction"))
            continue
        pair = (answer, str(reference))
        if pair not in known:
            known[pair] = judged(*pair)
        grades.append(known[pair])
    return grades
