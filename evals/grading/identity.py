r"""Whether two expressions are the same function, or the same number: True only with a proof, False only at a point.

A proof is exact: the difference is brought to a form (see `normal_function`) of which every coefficient can be shown
to be zero (see `algebraic`). No rounding, no list of points and no habit of taking small for zero makes two formulas
equal.

Only worker processes import this file (see `worker`): what happens here can take any time and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from evals.grading.normal_function import vanishes
from evals.grading.points import Points, differ, is_nonnegative, is_nonzero, value

# Points where both sides have a value, in all of those tried; the last lie far out, for what has none nearby.
NUM_POINTS = 4
MAX_POINTS = 8
_INFINITE = (sympy.oo, sympy.zoo, sympy.nan)
_HYPERBOLIC = (sympy.sinh, sympy.cosh, sympy.tanh, sympy.coth, sympy.sech, sympy.csch)
_ELEMENTARY = (sympy.exp, sympy.log, sympy.Abs, sympy.factorial, sympy.binomial, sympy.gamma)
_FUNCTIONS = (
    *_ELEMENTARY,
    *_HYPERBOLIC,
    sympy.functions.elementary.trigonometric.TrigonometricFunction,
    sympy.functions.elementary.trigonometric.InverseTrigonometricFunction,
    sympy.functions.elementary.hyperbolic.InverseHyperbolicFunction,
)


def same_value(found: Any, expected: Any, points: Points) -> bool | None:
    """Whether two expressions are equal wherever both have a value; None where neither can be shown.

    Values are real unless the imaginary unit occurs: the cube root of -8 is then -2.
    """
    if found.has(*_INFINITE) or expected.has(*_INFINITE):
        return bool(found.doit() == expected.doit() and found.doit() in (sympy.oo, -sympy.oo))
    opaque, positive = _Opaque(), _positive_symbols(expected)
    raw = [opaque(side).xreplace(positive) for side in (found, expected)]
    both = [side.doit() for side in raw]
    if any(side.has(*_INFINITE) for side in both):
        return False
    is_real = not any(side.has(sympy.I) for side in both)
    compared = [over_the_reals(side) for side in both] if is_real else both
    not_negative = _not_negative(compared) if is_real else []
    symbols = sorted(raw[0].free_symbols | raw[1].free_symbols, key=str)
    num_agreeing = 0
    for index in range(MAX_POINTS if symbols else 1):
        negative = frozenset(s for at, s in enumerate(symbols) if index >> at % 3 & 1 and not s.is_positive)
        point = opaque.completed(points.at(symbols, index, negative))
        values = [value(side, point, is_complex=not is_real) for side in compared]
        if None not in values and all(is_nonnegative(base, point) for base in not_negative):
            if differ(*values):
                return False
            num_agreeing += 1
        if index == 0 and not all(_is_defined(side, point) for side in raw):
            return None
        if index == 0 and sympy.expand(compared[0] - compared[1]) == 0:
            return True
        if num_agreeing == NUM_POINTS:
            break
    # Without any real value they are compared as complex ones.
    if is_real and num_agreeing:
        return vanishes(compared[0] - compared[1], is_real=True) or None
    return vanishes(both[0] - both[1], is_real=False) or None


def _positive_symbols(expected: Any) -> dict[Any, Any]:
    """The symbols of a reference that stand for positive quantities.

    In the root of g/l, for example, nobody asks whether both g and l could be negative.
    """
    found: set[Any] = set()
    for base in _not_negative([expected]):
        factors = [factor.as_base_exp() for factor in sympy.Mul.make_args(base.doit())]
        if all(root.is_Symbol or root.is_positive for root, _ in factors):
            found |= {root for root, exponent in factors if root.is_Symbol and exponent.is_odd}
    return {symbol: sympy.Symbol(str(symbol), positive=True) for symbol in found}


def _not_negative(expressions: Sequence[Any]) -> list[Any]:
    """Of what the ``expressions`` take even roots and logarithms."""
    roots = {root for side in expressions for root in side.atoms(sympy.Pow) if root.exp.is_Rational}
    bases = {root.base for root in roots if root.exp.q % 2 == 0}
    bases |= {logarithm.args[0] for side in expressions for logarithm in side.atoms(sympy.log)}
    return [base for base in bases if not base.is_positive]


def is_tame(expression: Any, points: Points) -> bool:
    """Whether sympy may evaluate, solve and rewrite ``expression``: it is continuous, and defined almost everywhere.

    sympy rounds what it takes the floor of.
    """
    return _Opaque()(expression) is expression and _is_defined(expression, points.at(expression.free_symbols, 0))


def _is_defined(raw: Any, point: dict[Any, Any]) -> bool:
    """Whether nothing in ``raw`` divides by zero, takes its logarithm or raises it to a power of no fixed sign."""
    bases = [power.base for power in raw.atoms(sympy.Pow) if not power.exp.is_positive or not power.exp.is_number]
    bases += [logarithm.args[0] for logarithm in raw.atoms(sympy.log)]
    return all(base.is_Symbol or is_nonzero(base, point) for base in bases)


def over_the_reals(expression: Any) -> Any:
    """``expression`` with its odd roots as real ones: sympy's are principal ones, which are complex for x < 0.

    As it is where the imaginary unit occurs.
    """
    if expression.has(sympy.I):
        return expression
    return expression.replace(
        lambda part: part.is_Pow and part.exp.is_Rational and part.exp.q > 1 and part.exp.q % 2, _real_root
    )


def _real_root(power: Any) -> Any:
    base, exponent = power.args
    if base.is_nonnegative:
        return power
    if base.is_negative:
        return (-1) ** exponent.p * (-base) ** exponent
    flip = -1 if base.could_extract_minus_sign() else 1
    return (flip * sympy.sign(flip * base)) ** exponent.p * sympy.Abs(base) ** exponent


class _Opaque:
    """Replaces what is not continuous by symbols, the same part by the same one: nothing is known of it but its value.

    Elsewhere, two functions that agree but for single points are the same one; not so where a floor occurs.
    """

    def __init__(self) -> None:
        self._parts: dict[Any, Any] = {}
        self._symbols: dict[Any, Any] = {}

    def __call__(self, expression: Any) -> Any:
        if not expression.args:
            return expression
        if not (expression.is_Add or expression.is_Mul or expression.is_Pow or isinstance(expression, _FUNCTIONS)):
            return self._part(expression)
        args = [self(arg) for arg in expression.args]
        if all(new is old for new, old in zip(args, expression.args, strict=True)):
            return expression
        return expression.func(*args, evaluate=False)

    def _part(self, part: Any) -> Any:
        args = [sympy.expand(self(arg).doit()) for arg in part.args]
        if isinstance(part, (sympy.Max, sympy.Min)) and len(args) == 2:
            spread = sympy.Abs(args[0] - args[1])
            return (args[0] + args[1] + (spread if isinstance(part, sympy.Max) else -spread)) / 2
        if isinstance(part, (sympy.floor, sympy.ceiling)):
            if isinstance(part, sympy.ceiling):
                args = [-args[0]]
            whole = sum((term for term in sympy.Add.make_args(args[0]) if term.is_Integer), sympy.S.Zero)
            floor = self._floor(args[0] - whole) + whole
            return -floor if isinstance(part, sympy.ceiling) else floor
        return self._symbol(part.func, *args)

    def _floor(self, arg: Any) -> Any:
        if arg.is_Rational:
            return sympy.Integer(arg.p // arg.q)
        digits = value(arg, {})
        if digits is not None and is_nonzero(arg - round(digits), {}) and abs(digits - round(digits)) > 1e-20:
            return sympy.Integer(int(sympy.floor(digits)))
        return self._symbol(sympy.floor, arg)

    def _symbol(self, function: Any, *args: Any) -> Any:
        key = (function, *(sorted(args, key=str) if function in (sympy.Max, sympy.Min) else args))
        if key not in self._symbols:
            self._symbols[key] = sympy.Symbol(f"opaque_{len(self._symbols)}", real=True)
            self._parts[self._symbols[key]] = (function, args)
        return self._symbols[key]

    def completed(self, point: dict[Any, Any]) -> dict[Any, Any]:
        """``point`` with the values that the replaced parts have there."""
        found = dict(point)
        for symbol, (function, args) in self._parts.items():
            if symbol in found:
                numbers = [value(arg, found) for arg in args]
                whole = None if None in numbers else value(function(*numbers), {})
                found[symbol] = found[symbol] if whole is None else whole
        return found
