"""Graders of the user's own, `module:function`: whether a response is correct, from its text and the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from evals.errors import UsageError
from evals.files.own_code import file_of, import_own, line_of_own, source_digest

OWN = "own"  # the stage of such a grade

Verdict = Callable[[str, str | float | None, str], bool]


def own_grader(spec: str) -> Verdict:
    """A function from a response, its reference and words for the sample, which stand in errors, to a verdict.

    The user's function gets the response and the reference as text, None where there is no reference.

    Raises:
        UsageError: it cannot be imported or is no function; and from the function, if the user's raises, or returns
            something else than True, False, 1 or 0.
    """
    function = import_own(spec, "grader")
    if not callable(function):
        raise UsageError(
            f"grader {spec!r} is of type {type(function).__name__}; expected a function of a response and a reference. "
            f"Look at {file_of(spec)}"
        )

    def verdict(completion: str, answer: str | float | None, where: str) -> bool:
        try:
            found = function(completion, None if answer is None else str(answer))
        except (Exception, SystemExit) as error:  # whatever a user's own code does
            raised = f"raised {type(error).__name__} on {where}: {error!s:.300}"
            raise UsageError(f"grader {spec!r} {raised}\n  {line_of_own(error, spec)}") from error
        if not isinstance(found, bool | int | float | np.bool_ | np.number) or found not in (0, 1):
            raise UsageError(
                f"grader {spec!r} returned {found!r:.80} for {where}; expected True or False, or 1 or 0. "
                f"Look at {file_of(spec)}"
            )
        return bool(found)

    return verdict


def sources_of(specs: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of the file of each own grader whose file is found."""
    return {spec: digest for spec in sorted(set(specs)) if (digest := source_digest(spec)) is not None}


def changed_since(sources: object) -> str:
    """The own grader whose file is another one than when ``sources`` (`sources_of`) was made; empty if there is none.

    A file that is not here has not changed: whoever only reads grades need not have it.
    """
    known = sources if isinstance(sources, dict) else {}
    return next((spec for spec, digest in known.items() if source_digest(spec) not in (None, digest)), "")
