r"""Where in a completion the answer stands: its last complete ``\boxed`` or ``\fbox``, in time linear in the text."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

ExtractionPolicy = Literal["boxed", "answer-is", "last-number"]
EXTRACTION_POLICIES: tuple[ExtractionPolicy, ...] = ("boxed", "answer-is", "last-number")

# No honest answer is this long; what comes after stays cheap because of it.
MAX_ANSWER_CHARS = 20_000

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"[^\s{}$\\,;.]+")
_ANSWER_IS = re.compile(r"\banswer(?:\s+is\s*:?|\s*:)\s*\**\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|\.(?=\s|$)|\$\$?(?!\d)(?=[\s.,]|$)")
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?")


class Extracted(NamedTuple):
    """``text`` None: there is no answer. ``is_truncated``: the completion ends inside its last box."""

    text: str | None
    is_truncated: bool = False


def extract(completion: str, policy: ExtractionPolicy = "boxed") -> Extracted:
    """The answer as it stands in ``completion``.

    `answer-is` takes, where there is no box, what follows the last "answer is" up to the end of the sentence;
    `last-number` takes, where that is missing too, the last number of the text.
    """
    last_start = None
    end = len(completion)
    for box in reversed(list(_BOX.finditer(completion))):
        last_start = box.start()
        content = _box_content(completion, box.end(), end)
        if content is not None:
            return Extracted(content if len(content) <= MAX_ANSWER_CHARS else None)
        # A box that is open at `end` hides nothing: one further left that is still open here stays open there too.
        end = box.start()
    if last_start is not None and policy == "boxed":
        return Extracted(None, is_truncated=True)
    if policy != "boxed" and (phrase := _after_answer_is(completion)):
        return Extracted(phrase)
    if policy == "last-number" and (numbers := _NUMBER.findall(completion)):
        return Extracted(numbers[-1] if len(numbers[-1]) <= MAX_ANSWER_CHARS else None)
    return Extracted(None, is_truncated=last_start is not None)


def last_boxed(text: str) -> str | None:
    """The content of the last complete box; None if there is none."""
    return extract(text).text


def _box_content(text: str, start: int, end: int) -> str | None:
    if start >= end:
        return None
    if text[start] != "{":  # \boxed 80
        word = _UNBRACED.match(text, start, end)
        return word.group() if word and text[start - 1] in " \t" else None
    depth = 0
    for token in _BRACE.finditer(text, start, end):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : token.start()].strip()
    return None


def _after_answer_is(completion: str) -> str | None:
    phrases = list(_ANSWER_IS.finditer(completion))
    if not phrases:
        return None
    start = phrases[-1].end()
    rest = completion[start : start + MAX_ANSWER_CHARS]
    opening = re.match(r"\$\$?|\\\(|\\\[", rest)
    if opening:
        closing = {"\\(": "\\)", "\\[": "\\]"}.get(opening.group(), opening.group())
        formula, separator, _ = rest[opening.end() :].partition(closing)
        return formula.strip() if separator else None
    stop = _SENTENCE_END.search(rest)
    return (rest[: stop.start()] if stop else rest).strip().rstrip("*") or None
