r"""Whether an algebraic constant is zero, decided exactly: `\sqrt{5+2\sqrt6}-\sqrt2-\sqrt3` is, whatever it looks like.

A sum of roots that is not zero cannot be arbitrarily small: a bound on the conjugates of its numerator and denominator
bounds it from below (the bound of Burnikel, Funke, Mehlhorn, Schirra and Schmitt, here with complex roots too). What is
smaller than the bound is zero.

Only worker processes import this file (see `worker`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import sympy
from mpmath import mp

MAX_BITS = 30_000
MAX_ORDER = 400


class _Bound(NamedTuple):
    """Logarithms (base 2) of bounds on all conjugates of two algebraic integers, one ``over`` the other."""

    over: float
    under: float

    def inverse(self) -> _Bound:
        return _Bound(self.under, self.over)

    def power(self, exponent: int) -> _Bound:
        base = self if exponent > 0 else self.inverse()
        return _Bound(base.over * abs(exponent), base.under * abs(exponent))

    def root(self, order: int) -> _Bound:
        return _Bound((self.over + (order - 1) * self.under) / order, self.under)


class _NotAlgebraicError(Exception):
    pass


def is_zero(constant: sympy.Expr) -> bool | None:
    """Whether ``constant`` is zero; None if it is not built of rationals and roots, or too large to be decided."""
    try:
        radicals = _radicals(constant)
        bound = _bound(constant)
    except _NotAlgebraicError:
        return None
    unity = math.lcm(*(order for base, order in radicals if base is sympy.S.NegativeOne))
    degree = int(sympy.totient(2 * unity)) if unity > 1 else 1
    for base, order in radicals:
        degree *= 1 if base is sympy.S.NegativeOne else order
        if degree > MAX_ORDER:
            return None
    bits = math.ceil((degree - 1) * max(bound.over, 0.0) + max(bound.under, 0.0)) + 8
    if bits > MAX_BITS:
        return None
    # Intermediate values lie above the same bound, so that rounding cannot bridge more than it twice.
    with mp.workprec(3 * bits + 100):
        return bool(abs(_value(constant)) < mp.ldexp(1, -bits))


@lru_cache(maxsize=4096)
def is_algebraic(constant: sympy.Expr) -> bool:
    """Whether ``constant`` is built of rationals and roots alone."""
    try:
        _radicals(constant)
    except _NotAlgebraicError:
        return False
    return True


def _radicals(constant: Any) -> frozenset[tuple[Any, int]]:
    """The (radicand, order) of every root in ``constant``; roots of -1 stand for all roots of unity."""
    if constant.is_Rational:
        return frozenset()
    if constant is sympy.I:
        return frozenset([(sympy.S.NegativeOne, 2)])
    if constant.is_Add or constant.is_Mul:
        return frozenset().union(*map(_radicals, constant.args))
    if constant.is_Pow and constant.exp.is_Rational:
        inner = _radicals(constant.base)
        return inner if constant.exp.q == 1 else inner | {(constant.base, constant.exp.q)}
    if (angle := _angle(constant)) is not None:
        return frozenset([(sympy.S.NegativeOne, angle.q)])
    raise _NotAlgebraicError


def _angle(constant: Any) -> Any:
    r"""The rational r of e^{i \pi r}; None for everything else."""
    if not isinstance(constant, sympy.exp):
        return None
    angle = constant.args[0] / (sympy.I * sympy.pi)
    return angle if angle.is_Rational else None


def _bound(constant: Any) -> _Bound:
    if constant.is_Rational:
        return _Bound(math.log2(max(1, abs(constant.p))), math.log2(constant.q))
    if constant.is_Add:
        parts = [_bound(part) for part in constant.args]
        under = sum(part.under for part in parts)
        return _Bound(max(part.over - part.under for part in parts) + under + math.log2(len(parts)), under)
    if constant.is_Mul:
        parts = [_bound(part) for part in constant.args]
        return _Bound(sum(part.over for part in parts), sum(part.under for part in parts))
    if constant.is_Pow:
        return _bound(constant.base).power(int(constant.exp.p)).root(int(constant.exp.q))
    return _Bound(0.0, 0.0)  # a root of unity


def _value(constant: Any) -> Any:
    if constant.is_Rational:
        return mp.mpf(int(constant.p)) / int(constant.q)
    if constant is sympy.I:
        return mp.mpc(0, 1)
    if constant.is_Add:
        return mp.fsum(map(_value, constant.args))
    if constant.is_Mul:
        return mp.fprod(map(_value, constant.args))
    if constant.is_Pow:
        base = _value(constant.base)
        if constant.exp.q == 1:
            return base ** int(constant.exp.p)
        return mp.root(base, int(constant.exp.q)) ** int(constant.exp.p)
    angle = _angle(constant)
    return mp.expjpi(mp.mpf(int(angle.p)) / int(angle.q))
