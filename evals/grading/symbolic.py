"""Equality by computer algebra: latex2sympy parses, values at fixed points refute or agree, math-verify does the rest.

Only worker processes import this file (see `worker`): what happens here can take any time and memory.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.logic import And
from math_verify import verify

from evals.grading.identifiers import TRIGONOMETRY, Names, is_words, rewrite
from evals.grading.normal_form import Item
from evals.grading.solution_sets import describes_set, same_set

# Two formulas that agree to so many digits at several points are the same formula.
DIGITS = 60
DIGITS_OF_CONSTANTS = 150
MIN_POINTS = 3
SCALES = (1.0, 0.3, 7.0, 1.7, 0.6, 30.0)
_CONVERSION = ConversionConfig(lowercase_symbols=False)


class Oracle:
    """Decides pairs of items that neither text nor exact numbers decide; counts what it could not read."""

    def __init__(self) -> None:
        self.num_unparsed = 0

    def __call__(self, item: Item, gold: Item) -> bool:
        if item.is_prose or gold.is_prose or is_words(item.text) or is_words(gold.text):
            return item.text.casefold() == gold.text.casefold()
        if _is_in_degrees(item) != _is_in_degrees(gold) and self._is_same(_in_radians(item), _in_radians(gold)):
            return True
        if "rad" in (item.unit, gold.unit) and item.unit != gold.unit:
            return False  # 2 radians are not 2 degrees
        readings = [(item.text, gold.text)]
        if item.equation or gold.equation:
            readings.append((item.equation or item.text, gold.equation or gold.text))
        if any(self._is_same(*reading) for reading in readings):
            return True
        return (describes_set(item) or describes_set(gold)) and self._is_same_set(item, gold)

    def _is_same_set(self, item: Item, gold: Item) -> bool:
        names = Names()
        try:
            return same_set(item, gold, lambda text: _parse(rewrite(text, names)))
        except RecursionError:
            raise
        except Exception:  # as below; sympy solves no inequality but those in one variable
            return False

    def _is_same(self, text: str, gold: str) -> bool:
        if not text or not gold:
            return False
        names = Names()
        try:
            expected = _parse(rewrite(gold, names))
            found = _parse(rewrite(text, names))
        except RecursionError:
            raise
        except Exception:  # latex2sympy raises Exception itself; a text that is no formula equals none
            self.num_unparsed += 1
            return False
        return same(found, expected)


def same(found: Any, expected: Any) -> bool:
    """Whether two parsed answers (expressions, relations, sets, tuples, matrices) are equal; exact, no tolerance."""
    if isinstance(found, sympy.Expr) and isinstance(expected, sympy.Expr):
        verdict = _same_values(found, expected)
        if verdict is not None:
            return verdict
    if isinstance(found, (sympy.Eq, sympy.Ne)) and type(found) is type(expected):
        if _same_equations(found, expected):
            return True
        # math-verify calls two equations without solutions the same.
        if not found.free_symbols or found.free_symbols != expected.free_symbols:
            return False
    if _is_equation(found) != _is_equation(expected) and not _is_definition(found if _is_equation(found) else expected):
        # math-verify compares the right-hand side alone: x^2+y^2=1 would be 1.
        return False
    return bool(verify(expected, found, allow_set_relation_comp=True, timeout_seconds=None))


def _is_in_degrees(item: Item) -> bool:
    return (item.is_degrees or "\\circ" in item.text) and not TRIGONOMETRY.search(item.text)


def _in_radians(item: Item) -> str:
    if not _is_in_degrees(item):
        # A number alone says neither: 30 is not compared with 30 degrees here but as it stands.
        return item.text if "\\pi" in item.text or item.unit == "rad" else ""
    degrees = item.text.replace("^\\circ", "").replace("^{\\circ}", "")
    return f"\\frac{{\\pi}}{{180}}({degrees})"


def _is_equation(parsed: Any) -> bool:
    return isinstance(parsed, sympy.Eq) or (isinstance(parsed, And) and all(map(_is_equation, parsed.args)))


def _is_definition(equation: Any) -> bool:
    """Whether an equation, or the first of a chain, says what a symbol is."""
    while isinstance(equation, And):
        equation = equation._unsorted_args[0]
    return isinstance(equation.lhs, sympy.Symbol)


@lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    # Symbols of ours are real; the imaginary unit is sympy's own.
    return latex2sympy(text, is_real=True, normalization_config=None, conversion_config=_CONVERSION)


def _same_values(found: sympy.Expr, expected: sympy.Expr) -> bool | None:
    """Equality of two scalar expressions by their values at fixed points; None where they have none to compare."""
    symbols = sorted(found.free_symbols | expected.free_symbols, key=lambda symbol: str(symbol))
    if not symbols:
        return _same_constants(found, expected)
    is_complex = found.has(sympy.I) or expected.has(sympy.I)
    num_agreeing = 0
    for index in range(len(SCALES) * 2):
        point = {symbol: _coordinate(index, position) for position, symbol in enumerate(symbols)}
        values = [_value(expression, point, DIGITS, is_complex) for expression in (found, expected)]
        if values[0] is None or values[1] is None:
            continue
        if not _is_near(values[0], values[1], DIGITS - 10):
            return False
        num_agreeing += 1
    return True if num_agreeing >= MIN_POINTS else None


def _coordinate(index: int, position: int) -> sympy.Rational:
    """Positive in the first half of the points, of mixed signs in the second, where |x| and x differ."""
    fraction = ((index + 1) * 0.6180339887 + (position + 1) * 0.7548776662) % 1
    sign = -1 if index >= len(SCALES) and (index + position) % 2 == 0 else 1
    return sympy.Rational(round(1009 * (0.2 + fraction) * SCALES[index % len(SCALES)]) * sign, 1009)


def _same_constants(found: sympy.Expr, expected: sympy.Expr) -> bool | None:
    difference = found - expected
    if difference.is_Rational:
        return bool(difference == 0)
    is_complex = found.has(sympy.I) or expected.has(sympy.I)
    values = [_value(expression, {}, DIGITS_OF_CONSTANTS, is_complex) for expression in (found, expected)]
    if values[0] is None or values[1] is None:
        return None
    return _is_near(values[0], values[1], DIGITS_OF_CONSTANTS - 10)


def _value(expression: sympy.Expr, point: dict[Any, Any], digits: int, is_complex: bool) -> Any:
    """The finite value of ``expression`` at ``point``, real unless ``is_complex``; None if it has none.

    Among real numbers the cube root of -8 is -2; sympy's is the principal one, which is complex.
    """
    try:
        value = expression.subs(point).doit()
        value = (value if is_complex else value.replace(_is_odd_root, _real_root)).evalf(digits)
    except (ArithmeticError, ValueError, TypeError, NotImplementedError, AttributeError):
        return None
    if not value.is_number or value.has(sympy.oo, sympy.nan, sympy.zoo):
        return None
    return value if is_complex or value.is_comparable else None


def _is_odd_root(power: Any) -> bool:
    return bool(
        power.is_Pow and power.exp.is_Rational and power.exp.q > 1 and power.exp.q % 2 and power.base.is_negative
    )


def _real_root(power: Any) -> Any:
    return (-1) ** power.exp.p * (-power.base) ** power.exp


def _is_near(value: Any, other: Any, digits: int) -> bool:
    scale = max(abs(value), abs(other))
    return bool(scale == 0 or abs(value - other) <= scale * sympy.Float(10) ** -digits)


def _same_equations(found: Any, expected: Any) -> bool:
    """Whether left minus right of one equation is a constant multiple of the other's."""
    sides = (found.lhs, found.rhs, expected.lhs, expected.rhs)
    if not all(isinstance(side, sympy.Expr) for side in sides) or found.free_symbols != expected.free_symbols:
        return False
    residual, other = found.lhs - found.rhs, expected.lhs - expected.rhs
    origin = {symbol: _coordinate(1, at) for at, symbol in enumerate(sorted(found.free_symbols, key=str))}
    factor = _value(residual, origin, DIGITS, False)
    divisor = _value(other, origin, DIGITS, False)
    if not factor or not divisor:
        return False
    return _same_values(residual * divisor, other * factor) is True


def warm_up() -> None:
    """Loads what the first pairs would load: sympy's lazy parts, and the parser's tables, which it learns by use."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    oracle = Oracle()
    for text, gold in _EXAMPLES:
        oracle(Item(text, text), Item(gold, gold))


_EXAMPLES = (
    (r"\frac{1}{2}x^2+\sin x-3", r"-3+x^{2}/2+\sin(x)"),
    (r"2\sqrt{5}", r"\sqrt{20}"),
    (r"\frac{-b+\sqrt{3}}{2a}", r"(\sqrt{3}-b)/(2a)"),
    (r"e^{-x}\ln 2", r"\frac{\ln(2)}{e^{x}}"),
    (r"2^{n+1}(n-1)!", r"\binom{5}{2}"),
    (r"(1,x]", "x>1"),
    (r"(-\infty,1]\cup[2,5)", r"[3,\infty)"),
    (r"|x|\le 2", r"-2\le x\le 2"),
    (r"y=2x+1", r"x^2+y^2=4"),
    (r"(1,\sqrt{2},\pi)", r"\{1,2\}"),
    (r"\frac{3\pi}{4}+2i", r"1.5\pi-i"),
)
