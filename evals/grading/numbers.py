r"""Exact rational numbers: integers, decimals, fractions, e-notation, ``\times 10^{8}``, mixed numbers, and small sums.

The text is in the normal form of `typography.canonical`: no spaces, ``*`` for every multiplication sign, braced
arguments. Every step is bounded, so that ``9^{9^{9}}`` costs nothing: it is not a number here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARS = 400
MAX_DEPTH = 30
MAX_EXPONENT = 10_000
MAX_BITS = 20_000
# Digits of a float64 as programs print it: enough to tell a rounded quotient from a guess.
PRINTED_FLOAT_DIGITS = 15

_NUMERIC = re.compile(r"(?:[\d.+\-*/^(){}eE]|\\frac)+", re.ASCII)
_TOKEN = re.compile(r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<symbol>\\frac|[-+*/^(){}])", re.ASCII)
_PLAIN_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_DECIMAL = re.compile(r"-?(\d*)\.(\d+)", re.ASCII)


# 0.1\overline{6}: digits before the point, after it, and those that repeat.
_REPEATING = re.compile(r"(\d{0,20})\.(\d{0,20})\\(?:overline|bar|dot)\{(\d{1,20})\}", re.ASCII)


# 0.1666\ldots: digits before the point and after it, the last of which repeat at least once.
_CONTINUED = re.compile(r"(\d{0,20})\.(\d{0,20}?)(\d{1,20}?)\3+\\ldots", re.ASCII)


def _as_fraction(match: re.Match[str]) -> str:
    whole, start, period = match.groups()
    numerator = int(whole + start + period) - int((whole + start) or "0")
    return f"({numerator}/{10 ** len(start) * (10 ** len(period) - 1)})"


@dataclass(frozen=True)
class Number:
    """``resolution``: one unit in the last place of a decimal that shows as many digits as a printed float, else 0."""

    value: Fraction
    resolution: Fraction = Fraction(0)


class _NotANumberError(Exception):
    pass


def parse_number(text: str) -> Number | None:
    """The exact value of ``text``, or None if it is not an expression over numbers (or one that is too large)."""
    if _PLAIN_INTEGER.fullmatch(text):
        return Number(Fraction(int(text)))
    if len(text) <= MAX_CHARS and "\\" in text:
        text = _REPEATING.sub(_as_fraction, text)
        if "\\ldots" in text:
            text = _CONTINUED.sub(_as_fraction, text)
    if len(text) > MAX_CHARS or not _NUMERIC.fullmatch(text):
        return None
    try:
        value = _Parser(text).whole()
    except (_NotANumberError, ZeroDivisionError):
        return None
    decimal = _DECIMAL.fullmatch(text)
    if decimal and len((decimal[1] + decimal[2]).lstrip("0")) >= PRINTED_FLOAT_DIGITS:
        return Number(value, Fraction(1, 10 ** len(decimal[2])))
    return Number(value)


def same_number(first: Number, second: Number) -> bool:
    """Equality, exact but for one case: a printed float stands for a fraction that no decimal can write, as 1/12."""
    if first.value == second.value:
        return True
    for printed, other in ((first, second), (second, first)):
        if printed.resolution and not _has_finite_decimal(other.value):
            return abs(printed.value - other.value) <= printed.resolution
    return False


def _has_finite_decimal(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


class _Parser:
    """Recursive descent: sum of products of signed powers of atoms."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise _NotANumberError
            self.tokens.append(token.group())
            position = token.end()
        self.next = 0
        self.depth = 0

    def whole(self) -> Fraction:
        value = self.sum()
        if self.next != len(self.tokens):
            raise _NotANumberError
        return value

    def peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.next += 1
        return token

    def sum(self) -> Fraction:
        value = self.product()
        while self.peek() in ("+", "-"):
            is_plus = self.take() == "+"
            if self.peek() == "+" or (self.peek() == "-" and not is_plus):
                raise _NotANumberError  # 2--3 is a slip of the pen; 2+-3 can only mean one thing
            value = _bounded(value + self.product() if is_plus else value - self.product())
        return value

    def product(self) -> Fraction:
        value = self.signed()
        while self.peek() in ("*", "/"):
            value = _bounded(value * self.signed() if self.take() == "*" else value / self.signed())
        return value

    def signed(self) -> Fraction:
        if self.peek() not in ("+", "-"):
            return self.power()
        is_negative = self.take() == "-"
        if self.peek() in ("+", "-"):
            raise _NotANumberError
        return -self.power() if is_negative else self.power()

    def power(self) -> Fraction:
        base = self.atom()
        if self.peek() != "^":
            return base
        self.take()
        is_negative = self.peek() == "-"
        if is_negative:
            self.take()
        exponent = -self.atom() if is_negative else self.atom()
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT or size * abs(exponent) > MAX_BITS:
            raise _NotANumberError
        return base ** int(exponent)

    def atom(self) -> Fraction:
        token = self.take()
        if token in ("(", "{"):
            self.deeper()
            value = self.sum()
            if self.take() != {"(": ")", "{": "}"}[token]:
                raise _NotANumberError
            self.depth -= 1
            return value
        if token == "\\frac":
            return self.fraction()
        if not token or not (token[0].isdigit() or token[0] == "."):
            raise _NotANumberError
        value = _literal(token)
        if self.peek() == "\\frac" and token.isdigit():  # a mixed number
            self.take()
            value += self.fraction()
        return value

    def fraction(self) -> Fraction:
        if self.peek() != "{":
            raise _NotANumberError
        numerator = self.atom()
        if self.peek() != "{":
            raise _NotANumberError
        return _bounded(numerator / self.atom())

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NotANumberError


def _literal(token: str) -> Fraction:
    _, _, exponent = token.lower().partition("e")
    if len(exponent.lstrip("+-")) > 3:
        raise _NotANumberError
    return Fraction(token)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise _NotANumberError
    return value
