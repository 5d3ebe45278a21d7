"""Scores of answers: by the library's own checkers, in the sandbox where a checker evaluates what a model wrote."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

from evals.benchmarks.gym import IN_PROCESS, Reference, dataset, entry, quiet
from evals.benchmarks.gym.items import form_of
from evals.code.grading import open_sandbox
from evals.errors import require
from evals.grading import Grade, OnProgress, Outcome, last_boxed
from evals.sandbox import Job, Limits, Number, Sandbox, Verdict

# A longer answer is wrong. No task asks for one, and some checkers need time that grows with the square of the length.
MOST_CHARACTERS = 10_000
# CPU time of a checker in the sandbox, which also draws the problem again. It is the same in training and in
# evaluation, so that a reward of 1 and a "correct" never differ.
TIMEOUT_S = 10.0
# The checker of spell_backward adds up 1/n for each right letter and takes this off a sum of exactly 1, which a wrong
# word has that begins with the right one. By rounding the sum may be a little less or more; it is taken off there too.
_SPELL_PENALTY = 0.2
_ROUNDING = 1e-9
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_INSIDE = "evals.benchmarks.gym.inside"
_PROGRAM = f"from {_INSIDE} import score"

# What the library gives an answer, from 0 to 1, and its grade, which is correct for the whole score. With `error` the
# checker raised, with `timeout` or `infra_error` the sandbox ended it; then the score is 0.
Score = tuple[float, Grade]


def _graded(value: float, outcome: Outcome, answer: str | None, detail: str) -> Score:
    return value, Grade(outcome == "correct", outcome, answer, "reasoning-gym", detail)


class Asked(NamedTuple):
    """A response to the problem that ``reference`` names; ``is_cut`` where the length limit ended it."""

    reference: Reference
    response: str
    is_cut: bool = False


def answer_in(response: str, *, is_cut: bool = False) -> str:
    """The last <answer> block, else the content of the last \\boxed, else the whole text; stripped.

    A response that was cut off has no answer but in a block or a box.
    """
    blocks = _TAGGED.findall(response)
    if blocks:
        return str(blocks[-1]).strip()
    box = last_boxed(response)
    if box is not None:
        return box.strip()
    return "" if is_cut else response.strip()


class GymGrader:
    """Scores answers; ``workers`` processes of a sandbox (0: one a core) start when a task needs them."""

    def __init__(self, *, workers: int = 0) -> None:
        self._workers = workers
        self._sandbox: Sandbox | None = None

    def score(self, asked: Sequence[Asked], on_progress: OnProgress = None) -> list[Score]:
        """The score of each answer; equal answers to one problem are judged once.

        Raises:
            MissingError: the library is not installed, or a task needs a sandbox and there is none.
            UsageError: the installed library draws another problem than the one that was answered.
        """
        require("reasoning_gym", "grading answers to a task of reasoning-gym")
        places = [(one.reference, _checked(one)) for one in asked]
        found: dict[tuple[Reference, str], Score] = {}
        isolated: list[tuple[Reference, str]] = []
        for place in dict.fromkeys(places):
            reference, text = place
            if not text:
                found[place] = _graded(0.0, "no_answer", None, "no answer in the response")
            elif len(text) > MOST_CHARACTERS:
                found[place] = _graded(0.0, "incorrect", text, f"the answer has more than {MOST_CHARACTERS} characters")
            elif reference.task in IN_PROCESS:
                found[place] = _judged(reference, text)
            else:
                entry(reference)  # an installed library that draws another problem is an error, not a wrong answer
                isolated.append(place)
        if isolated:
            verdicts = self._open().run(_jobs(isolated))
            for number, (place, verdict) in enumerate(zip(isolated, verdicts, strict=True), 1):
                found[place] = _of_verdict(verdict, place[1])
                if on_progress is not None:
                    on_progress(number, len(isolated))
        return [found[place] for place in places]

    def _open(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = open_sandbox(
                self._workers,
                refusal="the checker of this task of reasoning-gym evaluates what the model wrote, and nothing "
                "isolates it here",
                preload=[_INSIDE],
                packages=["reasoning-gym"],
            )
        return self._sandbox

    def close(self) -> None:
        """Ends the workers; scoring again starts new ones."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


def _checked(one: Asked) -> str:
    """The answer in the form that the checker takes."""
    text = answer_in(one.response, is_cut=one.is_cut)
    form = form_of(one.reference.form)
    return text if form is None or len(text) > MOST_CHARACTERS else form.long(text)


def _judged(reference: Reference, text: str) -> Score:
    about = entry(reference)
    try:
        with quiet():
            checker = dataset(reference.task, reference.settings, reference.seed)
            value = float(checker.score_answer(text, deepcopy(about)))
    except Exception as error:
        return _graded(0.0, "error", text, f"the checker raised {type(error).__name__}: {str(error)[:200]}")
    if reference.task == "spell_backward" and value != 1 and abs(value - 1) < _ROUNDING:
        value -= _SPELL_PENALTY
    return _scored(value, text)


def _scored(value: float, text: str) -> Score:
    """Solved is a score of 1 or more: checkers give an answer that is right exactly 1."""
    if not math.isfinite(value):
        return _graded(0.0, "error", text, f"the checker gave {value}")
    value = min(1.0, max(0.0, value))
    return _graded(value, "correct" if value == 1.0 else "incorrect", text, f"score {value:.4g}")


def _jobs(asked: Iterable[tuple[Reference, str]]) -> Iterator[Job]:
    for reference, text in asked:
        tests = Number(entry_point="score", arguments=[list(vars(reference).values()), text])
        yield Job(program=_PROGRAM, tests=tests, limits=Limits(timeout_s=TIMEOUT_S))


def _of_verdict(verdict: Verdict, text: str) -> Score:
    if verdict.status == "pass" and verdict.number is not None:
        return _scored(verdict.number, text)
    outcome = verdict.status if verdict.status in ("timeout", "infra_error") else "error"
    return _graded(0.0, outcome, text, f"{verdict.status}: {verdict.detail}")
