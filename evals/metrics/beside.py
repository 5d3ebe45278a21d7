"""Metrics beside Pass@k and UCC@k: their names, what they can be asked for, and the votes behind maj@k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache

from evals.errors import UsageError
from evals.files.strict_json import shown
from evals.grading.extraction import ExtractionPolicy, extract
from evals.grading.normal_form import parse_answer
from evals.grading.numbers import Number
from evals.samples.types import GradedProblem, Problem
from evals.similarity.catalogue import SIMILARITIES, has_vendi_score

BESIDE_PASS = ("maj", "g-pass", "cover")
BESIDE_UCC = ("vendi", "distinct")


def check_beside_pass(also: Sequence[str], taus: Sequence[float]) -> None:
    """Raises UsageError for an unknown name in ``also`` or a tau outside [0, 1]."""
    unknown = [name for name in also if name not in BESIDE_PASS]
    if unknown:
        where = " (it is one of `quatro eval ucc --also`)" if unknown[0] in BESIDE_UCC else ""
        raise UsageError(f"unknown metric {unknown[0]!r}{where}; choose from {', '.join(BESIDE_PASS)}")
    outside = [tau for tau in taus if not 0 <= tau <= 1]
    if outside:
        raise UsageError(f"tau is the required share of correct draws, in [0, 1]; found {outside[0]}")


def check_beside_ucc(also: Sequence[str], similarities: Sequence[str] | None) -> None:
    """Raises UsageError for an unknown name in ``also``, or if no similarity asked for has a Vendi score."""
    unknown = [name for name in also if name not in BESIDE_UCC]
    if unknown:
        where = " (it is one of `quatro eval passk --also`)" if unknown[0] in BESIDE_PASS else ""
        raise UsageError(f"unknown metric {unknown[0]!r}{where}; choose from {', '.join(BESIDE_UCC)}")
    if "vendi" in also and similarities and not any(map(has_vendi_score, similarities)):
        known = " or ".join(filter(has_vendi_score, SIMILARITIES))
        raise UsageError(
            f"the Vendi score needs a positive semi-definite similarity, {known}; found {', '.join(similarities)}"
        )


def wrong_votes(problem: Problem, graded: GradedProblem, *, extraction: ExtractionPolicy = "boxed") -> tuple[int, ...]:
    """How many samples gave each wrong answer, most frequent first; samples without an answer do not vote.

    Two answers are one if their normal forms agree.

    Raises:
        UsageError: the benchmark's answers are not mathematical, so that no two samples vote for the same one.
    """
    grader = graded.kind.grader
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
