"""Numbers and arithmetic in words: `twenty-one`, `two thirds`, and behind a number `dozen`, `squared`, `minus one`."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

_TO_NINE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_CARDINALS = (*_TO_NINE, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {word: value for value, word in enumerate(_CARDINALS)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_POWERS = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_POWERS |= {"quadrillion": 10**15, "quintillion": 10**18}
_MULTIPLIERS = {**_POWERS, "dozen": 12, "score": 20, "gross": 144}
_PLURAL_FRACTIONS = {"halves": 2, "quarters": 4} | {
    f"{name}s": value
    for value, name in enumerate(("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), 3)
}
_PLURAL_FRACTIONS |= {"hundredths": 100, "thousandths": 1000}
_FRACTIONS = _PLURAL_FRACTIONS | {name.removesuffix("s"): value for name, value in _PLURAL_FRACTIONS.items()}
_FRACTIONS["half"] = _FRACTIONS.pop("halve")
_RAISED = {"squared": 2, "cubed": 3}
_OPERATORS = {"plus": ("+", 1), "minus": ("+", -1), "times": ("*", 1), "multiplied by": ("*", 1), "over": ("/", 1)}
_OPERATORS |= {"divided by": ("/", 1)}


class Reckoned(NamedTuple):
    """What words behind a number do to it: the operation, its second operand, and the words that remain."""

    op: str
    operand: Fraction
    rest: str = ""


def reckoned(phrase: str) -> Reckoned | None:
    """Plain arithmetic in words behind a number: `dozen eggs`, `squared`, `minus one`; None for any other words."""
    words = phrase.casefold().strip(" .").split()
    if not words:
        return None
    first, rest = words[0], " ".join(words[1:])
    if first in _MULTIPLIERS:
        return Reckoned("*", Fraction(_MULTIPLIERS[first]), rest)
    if not rest and first in _RAISED:
        return Reckoned("^", Fraction(_RAISED[first]))
    if not rest and first in _PLURAL_FRACTIONS:
        return Reckoned("/", Fraction(_PLURAL_FRACTIONS[first]))
    for name, (op, sign) in _OPERATORS.items():
        operand = " ".join(words).removeprefix(f"{name} ")
        if operand != " ".join(words) and (value := number_in_words(operand)) is not None:
            return Reckoned(op, sign * value)
    return None


def number_in_words(phrase: str) -> Fraction | None:
    """The number that words say: `twenty-one`, `two hundred five`, `minus four`, `two thirds`; None if none."""
    words = phrase.casefold().replace("-", " ").split()
    if len(words) > 1 and words[0] in ("minus", "negative"):
        value = number_in_words(" ".join(words[1:]))
        return None if value is None else -value
    denominator = _FRACTIONS.get(words[-1]) if len(words) > 1 else None
    cardinal = _cardinal(words[:-1] if denominator else words)
    return None if cardinal is None else Fraction(cardinal, denominator or 1)


def _cardinal(words: list[str]) -> int | None:
    total = group = 0
    room = 10**21  # what follows must be smaller than the place of the word before it
    for word in words:
        if word in _SMALL and _SMALL[word] < room and (_SMALL[word] or len(words) == 1):
            group += _SMALL[word]
            room = 10 if _SMALL[word] >= 20 else 1
        elif word == "hundred" and 0 < group < 10:
            group, room = group * 100, 100
        elif word in _POWERS and word != "hundred" and group and (not total or total % (_POWERS[word] * 1000) == 0):
            total, group, room = total + group * _POWERS[word], 0, 1000
        else:
            return None
    return total + group if words else None
