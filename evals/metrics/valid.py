"""Right answers with a false derivation, as a checker finds them; where it does not know, an answer counts as valid."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evals.benchmarks.catalogue import maker_of
from evals.errors import UsageError
from evals.estimators import Floats
from evals.files.own_code import file_of, is_own, own_function
from evals.files.strict_json import shown
from evals.samples.types import GradedProblem

CHECKERS = ("word-problems", "codegrammar")  # embedded benchmarks whose module has `validities`
Checker = Callable[[Sequence[GradedProblem]], list[list[bool | None]]]


class Checked(NamedTuple):
    """A problem without its false right answers; the numbers say what there was."""

    problem: GradedProblem
    num_right: int
    num_false: int
    num_unknown: int


def checker_of(name: str) -> Checker:
    """Whether each completion of problems is valid, None where it is unknown: by one of `CHECKERS` or an own function.

    The user's own gets a text and its problem, with `benchmark`, `id`, `prompt` and `answer`. Raises UsageError if it
    cannot be imported, and from the checker if it raises or returns something else than True, False or None.
    """
    if name in CHECKERS:
        checker: Checker = maker_of(name).validities
        return checker
    if not is_own(name):
        known = ", ".join(CHECKERS)
        raise UsageError(f"--valid {name!r}: expected {known} or a function of your own as module:function")
    function = own_function(name, "checker", "of a response and its problem")

    def validity(text: str, problem: GradedProblem) -> Any:
        where = f"a right answer to {shown(problem.id)}"
        found = function(where, text, problem)
        if found is None or isinstance(found, bool | np.bool_):
            return found if found is None else bool(found)
        told = f"checker {name!r} returned {found!r:.80} for {where}; expected True, False or None (unknown)"
        raise UsageError(f"{told}. Look at {file_of(name)}")

    return lambda problems: [[validity(text, one) for text in one.completions] for one in problems]


def checked(problems: Sequence[GradedProblem], checker: str) -> list[Checked]:
    """Each problem without the right answers that ``checker`` calls false; it sees each different text once."""
    asked = [one._replace(completions=sorted(set(one.completions))) for one in problems]
    found = []
    for problem, one, told in zip(problems, asked, checker_of(checker)(asked), strict=True):
        valid = dict(zip(one.completions, told, strict=True))
        kept = [text for text in problem.completions if valid[text] is not False]
        counts = problem.correct, problem.correct - len(kept), sum(valid[text] is None for text in kept)
        found.append(Checked(problem._replace(completions=kept), *counts))
    return found


def shares_of_right(some_P: Sequence[int], right_P: Sequence[int]) -> Floats:
    """Numbers (P,) whose mean is the share r of all right answers that ``some_P`` of each problem are; 0 without any.

    Their spread is that of r, a ratio of two means, by the delta method: r + (some - r right) / mean(right).
    """
    num_right = max(sum(right_P), 1)
    share = sum(some_P) / num_right
    found: Floats = share + (np.array(some_P) - share * np.array(right_P)) * len(right_P) / num_right
    return found
