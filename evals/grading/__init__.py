r"""Grading of mathematical answers: is the answer in this completion the reference answer?

The way of a text: `extract` finds the answer (the last complete ``\boxed`` or ``\fbox``), `tokens` and `parse` make a
tree of it, `read` gives its readings, and `same_answer` compares them with those of the reference. Nothing is evaluated
as code, no process is started, and the time grows linearly with the text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from evals.grading.decide import Policy
from evals.grading.decide import same_answer as same_answer
from evals.grading.read import read, why_words
from evals.grading.tree import written

# Part of every result: raise it whenever a grade may come out differently.
GRADER_VERSION = "8"
Outcome = Literal["correct", "incorrect", "no_answer", "timeout", "error", "infra_error"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
POLICIES: tuple[Policy, ...] = get_args(Policy)
MAX_SHOWN_CHARS = 200
ExtractionPolicy = Literal["boxed", "answer-is", "last-number"]
EXTRACTION_POLICIES: tuple[ExtractionPolicy, ...] = get_args(ExtractionPolicy)
OnProgress = Callable[[int, int], None] | None  # called with what is done, and with all that there is to do

# No honest answer is this long; what comes after stays cheap because of it.
MAX_ANSWER_CHARS = 20_000

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*")
_TOKEN = re.compile(rf"(?P<box>{_BOX.pattern})(?P<opening>\{{)?|\\[{{}}]|\\\\(?!boxed|fbox)|[{{}}]")
_UNBRACED = re.compile(r"[^\s{}$\\,;.]+")
# What hides or strikes out the box that it stands before.
_HIDDEN = re.compile(r"\\(?:[hv]?phantom|[bx]?cancel|sout|st)\s*\{\s*$")
_MAX_HIDING_CHARS = 40
_ANSWER_IS = re.compile(r"\banswer(?:\s+is(?:\s*:)?|\s*:)\s*(?:\*+\s*)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|\.(?=\s|$)|\$\$?(?!\d)(?=[\s.,]|$)")
# Of the text after "answer is": a number of dollars in a sentence with no dollar sign that could close a formula.
_DOLLARS = re.compile(r"\$\d(?:[^\n.$]|\.(?!\s|$)|(?<=\s)\$(?=\d))*(?:\n|\.(?=\s|$)|$)")
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?")


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

    Raises ValueError if ``policy`` or ``extraction`` is unknown. No completion and no answer raises.
    """
    return grade_many([(completion, answer)], policy=policy, extraction=extraction)[0]


def grade_many(
    pairs: Iterable[tuple[str, str | float | None]],
    *,
    policy: Policy = "strict",
    extraction: ExtractionPolicy = "boxed",
    on_progress: OnProgress = None,
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
    decision = same_answer(extracted, reference, policy)
    outcome: Outcome = "correct" if decision else "incorrect"
    stage = "text" if decision and decision.said is None else "tree"
    return Grade(decision.is_equal, outcome, extracted, stage, decision.rule)


class Extracted(NamedTuple):
    """``text`` None: there is no answer. ``is_truncated``: the completion ends inside its last box."""

    text: str | None
    is_truncated: bool = False


class _Box(NamedTuple):
    """A complete box: where it begins and ends, and what it holds, without the boxes that are all of it."""

    start: int
    end: int
    content: tuple[int, int]


def extract(completion: str, policy: ExtractionPolicy = "boxed") -> Extracted:
    """The answer as it stands in ``completion``.

    `answer-is` takes, where there is no box, what follows the last "answer is" up to the end of the sentence;
    `last-number` takes, where that is missing too, the last number of the text.
    """
    first = _BOX.search(completion)
    if first is not None:
        box = _last_box(completion, first.start())
        if box is not None:
            content = completion[slice(*box.content)].strip()
            return Extracted(content if len(content) <= MAX_ANSWER_CHARS else None)
        if policy == "boxed":
            return Extracted(None, is_truncated=True)
    if policy != "boxed" and (phrase := _after_answer_is(completion)):
        return Extracted(phrase)
    if policy == "last-number" and (numbers := _NUMBER.findall(completion)):
        return Extracted(numbers[-1] if len(numbers[-1]) <= MAX_ANSWER_CHARS else None)
    return Extracted(None, is_truncated=first is not None)


def last_boxed(text: str) -> str | None:
    """The content of the last complete box; None if there is none."""
    return extract(text).text


def _last_box(text: str, start: int) -> _Box | None:
    """The last complete box that stands in no other complete one and is neither hidden nor in a comment."""
    boxes: list[_Box] = []
    open_braces: list[tuple[int, int] | None] = []  # of a box: where it begins, and where its content does
    for token in _TOKEN.finditer(text, start):
        if token["box"]:
            if token["opening"]:
                open_braces.append((token.start(), token.end()))
            elif (word := _UNBRACED.match(text, token.end())) and text[token.end() - 1] in " \t":  # \boxed 80
                boxes.append(_Box(token.start(), word.end(), word.span()))
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces and (opening := open_braces.pop()):
            box_start, content_start = opening
            content = (content_start, token.start())
            num_outside = len(boxes)
            while num_outside and boxes[num_outside - 1].start > box_start:
                num_outside -= 1
            inner = boxes[num_outside:]
            del boxes[num_outside:]
            if (
                len(inner) == 1
                and not (text[content_start : inner[0].start] + text[inner[0].end : token.start()]).strip()
            ):
                content = inner[0].content
            boxes.append(_Box(box_start, token.end(), content))
    return _last_visible(text, boxes)


def _last_visible(text: str, boxes: list[_Box]) -> _Box | None:
    line_start, is_comment = len(text), False
    for box in reversed(boxes):
        if box.start < line_start:
            line_start = text.rfind("\n", 0, box.start) + 1
            is_comment = text[line_start : box.start].lstrip().startswith("%")
        if not is_comment and not _HIDDEN.search(text, max(0, box.start - _MAX_HIDING_CHARS), box.start):
            return box
    return None


def _after_answer_is(completion: str) -> str | None:
    phrases = list(_ANSWER_IS.finditer(completion))
    if not phrases:
        return None
    start = phrases[-1].end()
    rest = completion[start : start + MAX_ANSWER_CHARS]
    is_money = _DOLLARS.match(rest) is not None
    opening = re.match(r"\$\$?|\\\(|\\\[", rest)
    if opening and not is_money:
        closing = {"\\(": "\\)", "\\[": "\\]"}.get(opening.group(), opening.group())
        formula, separator, _ = rest[opening.end() :].partition(closing)
        return formula.strip() if separator else None
    stop = _SENTENCE_END.search(rest, 1 if is_money else 0)
    phrase = (rest[: stop.start()] if stop else rest).strip().rstrip("*")
    return f"\\{phrase}" if is_money else phrase or None
