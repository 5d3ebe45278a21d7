"""Equality of what latex2sympy reads: expressions, equations and inequalities and chains of them, sets, matrices.

Two expressions inside are equal only with a proof (see `identity`). True, False, or None where neither can be shown.
Only worker processes import this file (see `worker`): what happens here can take any time and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from sympy.core.relational import Relational
from sympy.matrices.expressions.matexpr import MatrixExpr

from evals.grading.identity import is_tame, over_the_reals, same_value
from evals.grading.points import Points, differ, is_nonzero, value
from evals.grading.three_valued import all_of, any_of, same_unordered

_MATRIX = (sympy.MatrixBase, MatrixExpr)
_MIRRORED = {sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le}
# Where two multiples of one expression are compared to find the factor; any point will do that both have a value at.
_SIMPLE_POINTS = ((3, 2), (1, 3), (5, 7))


def same(found: Any, expected: Any, points: Points) -> bool | None:
    """Whether two parsed answers are equal; None where neither that nor the contrary can be shown."""
    found, expected = (_definition(side, points) for side in (found, expected))
    if _is_equation(found) != _is_equation(expected):
        # An equation is a value only if it says what a symbol is: x^2+y^2=1 is not 1.
        found, expected = (_defined_value(side) for side in (found, expected))
    if isinstance(found, sympy.FiniteSet) != isinstance(expected, sympy.FiniteSet):
        found, expected = (_only_element(side) for side in (found, expected))
    if isinstance(found, _MATRIX) and isinstance(expected, _MATRIX):
        return _same_matrices(found, expected, points)
    if isinstance(found, sympy.Expr) and isinstance(expected, sympy.Expr):
        return same_value(found, expected, points)
    if isinstance(found, (And, Relational)) and isinstance(expected, (And, Relational)):
        links, others = _links(found), _links(expected)
        if len(links) != len(others):
            return False
        orders = [others] if len(others) < 2 else [others, others[::-1]]
        return any_of(all_of(map(_same_relations, links, order, [points] * len(order))) for order in orders)
    if isinstance(found, sympy.Set) and isinstance(expected, sympy.Set):
        return same_sets(found, expected, points)
    return bool(found == expected)


def same_sets(found: sympy.Set, expected: sympy.Set, points: Points) -> bool | None:
    """Whether two sets in the same form have equal parts."""
    if found == expected:
        return True
    if type(found) is not type(expected) or len(found.args) != len(expected.args) or not found.args:
        return False
    if isinstance(found, (sympy.FiniteSet, sympy.Union, sympy.Intersection)):
        return same_unordered(found.args, expected.args, lambda one, other: same(one, other, points))
    return all_of(same(*pair, points) for pair in zip(found.args, expected.args, strict=True))


def _same_matrices(found: Any, expected: Any, points: Points) -> bool | None:
    found, expected = (side if isinstance(side, sympy.MatrixBase) else side.doit() for side in (found, expected))
    if not (isinstance(found, sympy.MatrixBase) and isinstance(expected, sympy.MatrixBase)):
        return bool(found == expected)
    if found.shape != expected.shape:
        return False
    return all_of(same(*cells, points) for cells in zip(found.flat(), expected.flat(), strict=True))


def _links(parsed: Any) -> list[Any]:
    """The relations of a chain, in the order in which they are written."""
    if isinstance(parsed, And):
        return [link for part in parsed._unsorted_args for link in _links(part)]
    return [parsed]


def _is_equation(parsed: Any) -> bool:
    return isinstance(parsed, (And, sympy.Eq)) and all(isinstance(link, sympy.Eq) for link in _links(parsed))


def _definition(parsed: Any, points: Points) -> Any:
    """A chain x=a=b as x=b, if a is b; anything else as it is."""
    if not isinstance(parsed, And) or not _is_equation(parsed):
        return parsed
    first, *others = _links(parsed)
    if not isinstance(first.lhs, sympy.Symbol) or not all(same(link.lhs, link.rhs, points) for link in others):
        return parsed
    return sympy.Eq(first.lhs, others[-1].rhs, evaluate=False)


def _defined_value(parsed: Any) -> Any:
    return parsed.rhs if isinstance(parsed, sympy.Eq) and isinstance(parsed.lhs, sympy.Symbol) else parsed


def _only_element(parsed: Any) -> Any:
    return parsed.args[0] if isinstance(parsed, sympy.FiniteSet) and len(parsed.args) == 1 else parsed


def _same_relations(found: Any, expected: Any, points: Points) -> bool | None:
    """Whether one relation between the same symbols says what the other does.

    It does if its sides are the other's, or if their difference, or the numerator of that, is a multiple.
    """
    if type(found) in _MIRRORED:
        found = _MIRRORED[type(found)](found.rhs, found.lhs, evaluate=False)
    if type(expected) in _MIRRORED:
        expected = _MIRRORED[type(expected)](expected.rhs, expected.lhs, evaluate=False)
    sides = (*getattr(found, "args", ()), *getattr(expected, "args", ()))
    if type(found) is not type(expected) or not all(isinstance(side, sympy.Expr) for side in sides):
        return False
    is_tame_pair = all(is_tame(side, points) for side in sides)
    if not is_tame_pair or not found.free_symbols or found.free_symbols != expected.free_symbols:
        return all_of(same(*pair, points) for pair in zip(found.args, expected.args, strict=True))
    residuals = [over_the_reals((side.lhs - side.rhs).doit()) for side in (found, expected)]
    is_inequality = isinstance(found, (sympy.Lt, sympy.Le))
    is_equal = _is_multiple(residuals, points, is_positive=is_inequality)
    if is_equal is False and not is_inequality:
        numerators = [sympy.fraction(sympy.together(residual))[0] for residual in residuals]
        is_equal = _is_multiple(numerators, points, is_positive=False)
    return is_equal


def _is_multiple(both: Sequence[Any], points: Points, *, is_positive: bool) -> bool | None:
    """Whether one expression is a constant multiple of the other, by a positive factor if ``is_positive``."""
    residual, other = both
    symbols = sorted(residual.free_symbols | other.free_symbols, key=str)
    pairs = [[value(side, points.at(symbols, index)) for side in both] for index in (0, 3)]
    if all(None not in pair for pair in pairs) and differ(pairs[0][0] * pairs[1][1], pairs[0][1] * pairs[1][0]):
        return False
    for numerator, denominator in _SIMPLE_POINTS:
        point = {symbol: sympy.Rational(numerator + 2 * at, denominator) for at, symbol in enumerate(symbols)}
        if is_nonzero(residual, point) and is_nonzero(other, point):
            factor, divisor = residual.subs(point), other.subs(point)
            if is_positive and not value(factor / divisor, {}) > 0:
                return False
            return same_value(residual * divisor, other * factor, points)
    return None
