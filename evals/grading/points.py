"""Points at which two formulas are compared, and their values there: enough to refute equality, never to prove it.

The points follow from both texts, so that a pair has the same ones everywhere, and nobody can write an answer for the
points that this answer would have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import sympy

DIGITS = 60
TRUSTED_DIGITS = 40
_CERTAIN_BITS = 40
_SCALES = (1.0, 0.3, 7.0, 1.7, 0.6, 30.0, 1e3, 1e6)
_BITS = 60
# What sympy raises where an expression has no value at a point.
_NO_VALUE = (ArithmeticError, ValueError, TypeError, NotImplementedError, AttributeError)

Point = Mapping[Any, Any]


class Points:
    """The points of one pair of texts."""

    NUM_SCALES = len(_SCALES)

    def __init__(self, *texts: str) -> None:
        self._seed = "\0".join(texts)

    def at(self, symbols: Iterable[Any], index: int, negative: frozenset[Any] = frozenset()) -> dict[Any, Any]:
        """A point with positive coordinates but for the symbols in ``negative``; further out or in with ``index``."""
        return {symbol: (-1 if symbol in negative else 1) * self._coordinate(str(symbol), index) for symbol in symbols}

    def _coordinate(self, name: str, index: int) -> Any:
        digest = hashlib.sha256(f"{self._seed}\0{name}\0{index}".encode("utf-8", "surrogatepass")).digest()
        numerator, denominator = (int.from_bytes(digest[start : start + 8], "big") >> 4 for start in (0, 8))
        # Between 0.2 and 1.2 times the scale; two coordinates have no denominator in common.
        fraction = sympy.Rational(numerator, (1 << _BITS) + denominator) + sympy.Rational(1, 5)
        return fraction * sympy.Rational(str(_SCALES[index % len(_SCALES)]))


def value(expression: Any, point: Point, *, is_complex: bool = False) -> Any:
    """The finite value of ``expression`` at ``point``, real unless ``is_complex``; None if it has none."""
    try:
        found = expression.evalf(DIGITS, subs=point)
    except _NO_VALUE:
        return None
    if not found.is_number or found.has(sympy.oo, sympy.nan, sympy.zoo):
        return None
    if found.is_Float and found._prec == 1:
        return sympy.S.Zero  # no digit that evaluation vouches for
    return found if is_complex or found.is_Float or found.is_Rational else None


def differ(first: Any, second: Any) -> bool:
    """Whether two values cannot be the same number, whatever rounding did."""
    return bool(abs(first - second) > sympy.Float(10) ** -TRUSTED_DIGITS * max(abs(first), abs(second)))


def is_nonnegative(expression: Any, point: Point) -> bool:
    """Whether ``expression`` has a real value at ``point`` that is not below zero."""
    found = value(expression, point)
    return found is not None and bool(found >= 0)


def is_nonzero(expression: Any, point: Point) -> bool:
    """Whether ``expression`` has a value at ``point`` that is certainly not zero."""
    try:
        parts = expression.evalf(15, subs=point).as_real_imag()
    except _NO_VALUE:
        return False
    return any((part.is_Rational and part != 0) or (part.is_Float and part._prec >= _CERTAIN_BITS) for part in parts)
