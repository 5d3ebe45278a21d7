"""Metrics beside Pass@k and UCC@k: their names, what they can be asked for, and the votes behind maj@k."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from evals.errors import QuatroError, UsageError
from evals.files.strict_json import shown
from evals.grading import grade_many
from evals.grading.compare import Policy, compare
from evals.grading.extraction import ExtractionPolicy, extract
from evals.grading.normal_form import parse_answer
from evals.grading.numbers import Number
from evals.samples.types import GradedProblem, Problem
from evals.similarity.catalogue import SIMILARITIES, has_vendi_score

BESIDE_PASS = ("maj", "g-pass", "cover")
BESIDE_UCC = ("vendi", "distinct")
# Of one problem's wrong answers, the most frequent ones that others are compared with, exactly and by computer algebra.
MOST_COMPARED = 32
MOST_PROVED = 12
_INTEGER = re.compile(r"-?[0-9]{1,18}")


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


@dataclass
class _Candidate:
    """Samples of one problem that vote for one wrong answer: the first of them, its answer, and how many there are."""

    completion: str
    answer: str
    times: int


def wrong_votes(
    pairs: Sequence[tuple[Problem, GradedProblem]],
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
    jobs: int | None = None,
) -> list[tuple[int, ...]]:
    """How many samples of each problem gave each wrong answer, most frequent first; those without one do not vote.

    Two wrong answers are one candidate if the grader, under ``policy``, calls one of them correct for the other as a
    reference. That need not be transitive, and comparing all with all would cost too much. So equal normal forms are
    counted first. Then each form, in the order of its votes (then of its text), joins the first candidate to whose
    first form it is equal by text and exact numbers; it is compared with the `MOST_COMPARED` most frequent ones. At
    last computer algebra compares the `MOST_PROVED` most frequent candidates, in up to ``jobs`` processes. So a problem
    of 256 different answers takes at most 66 of these slow comparisons.

    Raises:
        UsageError: a benchmark's answers are not mathematical, so that no two samples vote for the same one.
        QuatroError: a comparison failed on this machine.
    """
    by_problem = [_candidates(*pair, policy, extraction) for pair in pairs]
    undecided = [
        (one.completion, leader.answer)
        for candidates in by_problem
        for leader, one in combinations(candidates[:MOST_PROVED], 2)
        if _is_equal(one, leader, policy) is None
    ]
    grades = grade_many(undecided, policy=policy, extraction=extraction, jobs=jobs)
    if any(grade.outcome == "infra_error" for grade in grades):
        raise QuatroError("maj@k: comparing two wrong answers failed on this machine (memory?); try again")
    proved = {pair for pair, grade in zip(undecided, grades, strict=True) if grade.correct}
    votes = []
    for candidates in by_problem:
        leaders: list[_Candidate] = []
        for one in candidates:
            _join(leaders, one, lambda one, leader: (one.completion, leader.answer) in proved)
        votes.append(tuple(sorted((one.times for one in leaders), reverse=True)))
    return votes


def _candidates(
    problem: Problem, graded: GradedProblem, policy: Policy, extraction: ExtractionPolicy
) -> list[_Candidate]:
    """The wrong answers as far as text and exact numbers tell them apart, those with the most votes first."""
    grader = graded.kind.grader
    if grader != "math":
        raise UsageError(
            f"maj@k counts equal final answers, which {problem.benchmark} does not have (grader {shown(grader)}); "
            "leave `maj` out, or name the mathematical benchmarks with -b"
        )
    # What is not among the correct completions is wrong, whoever graded.
    wrong = Counter(sample.completion for sample in problem.samples)
    wrong.subtract(graded.completions)
    forms: dict[Hashable, _Candidate] = {}
    for completion in sorted(+wrong):  # so that the order of samples decides nothing
        answer = extract(completion, extraction).text
        if answer:
            form = forms.setdefault(_normal_form(answer), _Candidate(completion, answer, 0))
            form.times += wrong[completion]
    candidates: list[_Candidate] = []
    for one in sorted(forms.values(), key=lambda one: (-one.times, one.answer)):
        _join(candidates, one, lambda one, leader: _is_equal(one, leader, policy) is True)
    return sorted(candidates, key=lambda one: (-one.times, one.answer))


def _join(leaders: list[_Candidate], one: _Candidate, is_same: Callable[[_Candidate, _Candidate], bool]) -> None:
    """Gives the votes of ``one`` to the first of the leaders that it is the same as, or makes it another leader."""
    leader = next((leader for leader in leaders[:MOST_COMPARED] if is_same(one, leader)), None)
    if leader is None:
        leaders.append(one)
    else:
        leader.times += one.times


def _is_equal(one: _Candidate, other: _Candidate, policy: Policy) -> bool | None:
    """Whether the grader calls one answer correct for the other; None if only computer algebra can tell."""
    if policy == "strict" and _INTEGER.fullmatch(one.answer) and _INTEGER.fullmatch(other.answer):
        return False  # of one normal form they are not; most wrong answers are integers
    found = [compare(*pair, policy).is_equal for pair in ((one.answer, other.answer), (other.answer, one.answer))]
    return True if True in found else False if False in found else None


@lru_cache(maxsize=20_000)
def _normal_form(answer: str) -> Hashable:
    """Equal for answers that are spelled differently and have the same value, name and unit."""
    reading = parse_answer(answer)[0]
    return replace(reading, text="", equation="") if isinstance(reading.value, Number) else reading
