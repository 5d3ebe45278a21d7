r"""What an answer with equals signs says: the names before its value, and the values that must all be the same.

``x = 3``, ``f(n)=n``, ``(p, q) = (3, 2)`` and ``x \in [0, 1]`` name a value. ``x = 2+3 = 5`` is a chain: it says 5 only
if each of its links does, so that ``x=6=5`` says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from evals.grading.numbers import parse_number
from evals.grading.typography import RELATION, canonical
from evals.grading.words import is_closed

# A macro has all of its letters: if they could also be read alone, backtracking would try all ways.
_NAME = re.compile(r"(?:\(-?\d+\)|[A-Za-z'(){}\[\]:|,]|\\[A-Za-z]+(?![A-Za-z]) ?|_\{[^{}]*\}|_\d)+")
_SIMPLE_NAME = re.compile(r"(?:\(-?\d+\)|[A-Za-z]|\\[A-Za-z]+)(?:_\{[^{}]*\}|_\w)?'*(?:\([A-Za-z,]+\))?")
_NEGATED = re.compile(r"[^A-Za-z\\]*(?:\\[a-z]+\s*\{\s*)?(?:not|never)(?![A-Za-z])", re.IGNORECASE)
# What no quantity is named: constants, functions that an unknown would have to be solved out of, and the size of a
# number. `\sin A`, `|AB|` and `\frac{AB}{CD}` are names.
_NO_NAME = re.compile(
    r"[ei]|[({]*\\(?:pi|infty|emptyset)[)}]*|\|\(?[a-z]\)?(?:_\w)?\|"
    r"|(?=.*?\\(?:(?:ln|log|lg|exp|sqrt|binom|lfloor|lceil|pm|mp|mathbb)(?![A-Za-z])|frac(?!\{[A-Z]{2})"
    r"|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?[ ({]*[a-z])).*"
)
# `m+n = 3+4 = 7`: behind a sum of letters, what is computed.
_SUM_OF_LETTERS = re.compile(r"[A-Za-z](?:_\w)?(?:[-+][A-Za-z](?:_\w)?)+")
# A sign that turns what it stands beside into its opposite, or into a statement of its own.
_STATEMENT = re.compile(r"\\(?:not|neg|lnot|implies|Rightarrow|iff|Leftrightarrow|therefore|because|land)(?![A-Za-z])")
_CHOICE_LETTER = re.compile(r"\(?[A-Z]\)?|\(?[a-h]\)?")
# What remains are the variables of an expression.
_CONSTANTS = re.compile(r"\\[A-Za-z]+|(?<![A-Za-z])[ei](?![A-Za-z])")
_LAST_WORD = re.compile(r"(?<![A-Za-z])([A-Za-z]+)[^A-Za-z]*$")

# `\\frac{1}{3} \\approx 0.33`: one part in so many may be lost.
ROUNDING = 20

Split = Callable[[str, tuple[str, ...]], list[str]]


class Said(NamedTuple):
    """``links`` are the other values of a chain. ``is_void``: it says no one thing, so that only its text counts."""

    name: str
    value: str
    links: tuple[str, ...] = ()
    is_void: bool = False


def read_chain(text: str, split: Split) -> Said:
    """The name, value and links of ``text``; an equation has no name. ``split`` cuts outside of brackets."""
    if "\\in " in text or "\\in[" in text or "\\in(" in text:
        name, _, rest = text.partition("\\in")
        if _SIMPLE_NAME.fullmatch(name.strip()) and rest[:1] != "f":
            is_of_letters = _are_choices(canonical(name), canonical(rest))
            return Said("", text, is_void=True) if is_of_letters else Said(canonical(name), rest.strip())
    if "\\approx" in text and (exact := _exact_side(text)) is not None:
        if not exact:
            return Said("", text, is_void=True)
        text = exact
    if "=" not in text or RELATION.search(text):
        return Said("", text)
    if _STATEMENT.search(text):
        return Said("", text, is_void=True)
    parts = [part.strip() for part in split(text, ("=",))]
    if len(parts) < 2 or not all(parts):
        return Said("", text, is_void=len(parts) > 1)
    return _read_pair(text, *parts) if len(parts) == 2 else _read_links(text, parts)


def _exact_side(text: str) -> str | None:
    r"""What stands before the last `\approx` of two numbers, empty if the second is no rounding of the first.

    A name before it has the value behind it.
    """
    exact, _, rounded = text.rpartition("\\approx")
    if _SIMPLE_NAME.fullmatch(canonical(exact)):
        return f"{exact} = {rounded}"
    number, other = parse_number(canonical(exact.rpartition("=")[2])), parse_number(canonical(rounded))
    if number is None or other is None:
        return None
    return exact.strip() if abs(number.value - other.value) <= abs(number.value) / ROUNDING else ""


def _read_pair(text: str, left: str, right: str) -> Said:
    name, value = canonical(left), canonical(right)
    result = parse_number(value)
    if result and parse_number(name) == result:
        return Said("", right)  # 2+3=5
    if name == value:
        return Said("", text, is_void=True)  # x=x is true of every x
    if _SIMPLE_NAME.fullmatch(value) and parse_number(name):
        return Said(value, left)  # 5 = x
    if not _is_name(left, name):
        return Said("", text)
    if _are_choices(name, value):
        return Said("", text, is_void=True)
    # `MR=SRMC` is an equation between two quantities; `f(n)=n` and `k=m` say what f(n) and k are.
    if _NAME.fullmatch(value) and not _SIMPLE_NAME.fullmatch(name):
        return Said("", text)
    return Said(name, right)


def _read_links(text: str, parts: list[str]) -> Said:
    forms = [canonical(part) for part in parts]
    if any(_are_choices(form, forms[-1]) for form in forms[:-1]):
        return Said("", text, is_void=True)
    names = [form for part, form in zip(parts[:-1], forms, strict=False) if _is_name(part, form)]
    if _SUM_OF_LETTERS.fullmatch(forms[0]) and forms[1] != forms[-1] and not _letters("".join(forms[1:])):
        names.insert(0, forms[0])
    if _SIMPLE_NAME.fullmatch(forms[-1]) and len(names) < len(forms) - 1:  # 5 = x, 2+3 = 5 = x
        names.append(forms[-1])
        forms, parts = forms[:-1], parts[:-1]
    values = [part for part, form in zip(parts, forms, strict=True) if form not in names]
    if not values:
        return Said("", text, is_void=True)
    *links, value = values
    # `S = \frac{1}{2}ab = 6`: behind a name, a formula in letters that the value has not is one more name of it.
    if forms[0] in names:
        known = _letters(value)
        links = [link for link in links if _letters(link) <= known]
    result = parse_number(canonical(value))
    undecided = [link for link in links if not (result and parse_number(canonical(link)) == result)]
    return Said(names[0] if names else "", value, tuple(undecided))


def sides(text: str, split: Split) -> list[str]:
    """What stands between the equals signs of ``text``; empty where it is no equation."""
    if "=" not in text or RELATION.search(text) or _STATEMENT.search(text):
        return []
    parts = [part.strip() for part in split(text, ("=",))]
    return parts if len(parts) > 1 and all(parts) else []


def _is_name(text: str, form: str) -> bool:
    r"""Whether a side of an equals sign is a label; `x \text{ is not}`, `less than` and `\ln x` are statements."""
    last_word = _LAST_WORD.search(text)
    if last_word is None or not _NAME.fullmatch(form) or _NO_NAME.fullmatch(form):
        return False
    return (len(last_word[1]) < 2 or not is_closed(last_word[1])) and not _NEGATED.match(text)


def _are_choices(name: str, value: str) -> bool:
    """Whether both sides are letters of choices: `A = B` is right for neither."""
    return bool(_CHOICE_LETTER.fullmatch(name) and _CHOICE_LETTER.fullmatch(value) and name != value)


def _letters(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]", _CONSTANTS.sub(" ", text)))
