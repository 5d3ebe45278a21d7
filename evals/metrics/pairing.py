"""Whether two sets of samples are of the same problems, so that they can be compared problem by problem."""

from __future__ import annotations

from collections.abc import Sequence

from evals.errors import DataError
from evals.files.strict_json import shown
from evals.grading import same_answer
from evals.metrics.counted import Counted
from evals.samples.about import Sampled
from evals.samples.types import GradedProblem

_BEFORE = 15  # characters that are shown before the place where two texts begin to differ
_MOST = 60


def check_comparable(a: Sequence[Sampled], b: Sequence[Sampled], *, names: tuple[str, str]) -> None:
    """Raises DataError, which names the first problem that only one side has, or whose n differs."""
    n_a = {(problem.benchmark, problem.id): problem.n for problem in a}
    n_b = {(problem.benchmark, problem.id): problem.n for problem in b}
    for here, there, (name, other) in ((n_a, n_b, names), (n_b, n_a, names[::-1])):
        missing = [key for key in here if key not in there]
        if missing:
            benchmark, id = missing[0]
            raise DataError(
                f"{name} holds {shown(id)} of {benchmark} and {other} does not ({len(missing)} such problem(s)); a "
                "comparison needs the same problems on both sides: sample what is missing, or choose with -b"
            )
    for (benchmark, id), n in n_a.items():
        if n != n_b[benchmark, id]:
            raise DataError(
                f"{shown(id)} of {benchmark} has n = {n} samples in {names[0]} and n = {n_b[benchmark, id]} in "
                f"{names[1]}; a comparison needs equal n: draw what is missing with `quatro sample`, or use "
                f"fewer (`quatro eval ... --n {min(n, n_b[benchmark, id])}`)"
            )


def check_pairs(a: Counted, b: Counted, *, names: tuple[str, str]) -> list[str]:
    """`check_comparable`, and raises DataError if an id means two problems; warnings where only references differ."""
    check_comparable(a.problems, b.problems, names=names)
    others = namesakes(a, b)
    if others:
        one, other = others[0]
        raise DataError(
            f"{shown(one.id)} of {one.benchmark} is another problem in {names[1]} than in {names[0]} ({len(others)} of "
            f"{len(b.problems)} ids are): {_told(one, other, names)}; an id must mean the same problem in both: "
            "`quatro eval import` makes ids from the prompts where rows have none, or takes them from any field, such "
            "as that of the prompt (`--column id=FIELD`)"
        )
    reference_of = {(problem.benchmark, problem.id): problem.reference for problem in a.problems}
    spelled = [one for one in b.problems if one.reference != reference_of[one.benchmark, one.id]]
    if not spelled:
        return []
    return [
        f"{len(spelled)} of {len(b.problems)} problems have another reference answer in {names[1]} than in {names[0]}, "
        f"such as {shown(spelled[0].id)} of {spelled[0].benchmark}"
    ]


def told_of_sides(a: Sequence[str], b: Sequence[str], *, names: tuple[str, str]) -> list[str]:
    """The warnings of both sides; one of a single side names it."""
    return list(
        dict.fromkeys(
            warning if warning in other or name in warning else f"{name}: {warning}"
            for name, own, other in ((names[0], a, b), (names[1], b, a))
            for warning in own
        )
    )


def namesakes(a: Counted, b: Counted) -> list[tuple[GradedProblem, GradedProblem]]:
    """The problems of both sides that share an id and no more.

    Prompts may differ by their template. So a problem is another one if its prompt is that of another id on the other
    side; else if the prompts differ, or are unknown, and the reference answers are not equal.
    """
    problems_a = {(one.benchmark, one.id): one for one in a.problems}
    prompts_a = {(one.benchmark, one.prompt) for one in a.problems if one.prompt}
    moved, doubtful = [], []
    for other in b.problems:
        key = other.benchmark, other.id
        one = problems_a.get(key)
        if one is None or (one.prompt and one.prompt == other.prompt):
            continue
        if one.prompt and (other.benchmark, other.prompt) in prompts_a:
            moved.append(key)
        elif one.reference != other.reference:
            doubtful.append(key)
    if not moved and not doubtful:
        return []
    full_a, full_b = a.with_texts(), b.with_texts()
    found = {*moved, *(key for key in doubtful if _is_unequal(full_a[key], full_b[key]))}
    return [(full_a[key], full_b[key]) for key in full_b if key in found]


def _is_unequal(one: GradedProblem, other: GradedProblem) -> bool:
    if one.kind.grader != "math":
        return str(one.answer) != str(other.answer)
    return not same_answer(str(one.answer), str(other.answer))


def _told(one: GradedProblem, other: GradedProblem, names: tuple[str, str]) -> str:
    """The prompts, or else the reference answers, of both sides; long ones from where they begin to differ."""
    if one.prompt is None or other.prompt is None or one.prompt == other.prompt:
        what, texts = "reference answer", [str(one.answer), str(other.answer)]
    else:
        pairs = enumerate(zip(one.prompt, other.prompt, strict=False))
        place = next((place for place, (char, other_char) in pairs if char != other_char), 0)
        begin = max(0, place - _BEFORE)
        dots = "..." if begin else ""
        what, texts = "prompt", [f"{dots}{text[begin : begin + _MOST]}" for text in (one.prompt, other.prompt)]
    return f"the {what} is " + " and ".join(f"{shown(text)} in {name}" for text, name in zip(texts, names, strict=True))
