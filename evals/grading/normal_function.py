r"""Whether a function is identically zero, proved by writing it as a polynomial in symbols, exponentials and the like.

Trigonometric functions become exponentials, factorials the gamma function, roots and logarithms those of the factors of
their arguments. What is then left is a fraction; its numerator is expanded, and it is zero if the algebraic
coefficients of each product of symbols, exponentials, logarithms ... are (see `algebraic`). Every step is an identity,
so that the answer yes is certain; the answer no says only that this was no proof.

Only worker processes import this file (see `worker`).
"""

from __future__ import annotations

import itertools
from typing import Any

import sympy
from sympy.core.function import expand_power_exp
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import TrigonometricFunction

from evals.grading import algebraic

MAX_SIMPLIFIED_OPERATIONS = 100
MAX_EXPANSIONS = 4
MAX_SIGNED = 4
MAX_PRIME = 10_000
MAX_FACTORED_OPERATIONS = 60
_ANGLES = (sympy.asin, sympy.acos, sympy.atan)


def vanishes(function: Any, *, is_real: bool) -> bool:
    """Whether ``function`` is proved to be zero.

    ``is_real``: over the reals, wherever all of it has a value; else as sympy's complex function.
    """
    if function == 0 or _is_zero_for_all_signs(_Normal(function, is_real)()):
        return True
    if not function.free_symbols:
        return is_real and _is_zero_combination(function)
    if function.count_ops() > MAX_SIMPLIFIED_OPERATIONS:
        return False
    simple = sympy.simplify(function)
    return bool(simple == 0) or (simple != function and _is_zero_for_all_signs(_Normal(simple, is_real)()))


def _is_zero_for_all_signs(normal: Any) -> bool:
    if _is_zero(normal):
        return True
    signed = sorted({part.args[0] for part in normal.atoms(sympy.Abs, sympy.sign)}, key=sympy.default_sort_key)
    if not 0 < len(signed) <= MAX_SIGNED:
        return False
    for signs in itertools.product((1, -1), repeat=len(signed)):
        values = {sympy.sign(base): sympy.Integer(sign) for base, sign in zip(signed, signs, strict=True)}
        values |= {sympy.Abs(base): sign * base for base, sign in zip(signed, signs, strict=True)}
        if not _is_zero(normal.xreplace(values)):
            return False
    return True


def _is_zero(function: Any) -> bool:
    numerator = sympy.fraction(sympy.together(function))[0]
    for _ in range(MAX_EXPANSIONS):  # the product of two roots is expanded in the next round
        expanded = expand_power_exp(sympy.expand(numerator))
        if expanded == numerator:
            break
        numerator = expanded
    coefficients: dict[Any, list[Any]] = {}
    for term in sympy.Add.make_args(numerator):
        constants, rest = list[Any](), list[Any]()
        for factor in sympy.Mul.make_args(term):
            (constants if algebraic.is_algebraic(factor) else rest).append(factor)
        coefficients.setdefault(sympy.Mul(*rest), []).append(sympy.Mul(*constants))
    return all(algebraic.is_zero(sympy.Add(*terms)) is True for terms in coefficients.values())


def _is_zero_combination(constant: Any) -> bool:
    r"""Whether a real combination of logarithms, or of angles, is zero: `\ln(2+\sqrt3)+\ln(2-\sqrt3)`, as e to it is 1.

    An angle that is so small, and no less a multiple of 2 \pi, is zero.
    """
    numerator = sympy.expand(sympy.fraction(sympy.together(constant))[0])
    terms = [term.as_independent(sympy.log, *_ANGLES, sympy.pi) for term in sympy.Add.make_args(numerator)]
    unit = terms[0][0]
    parts = [(sympy.radsimp(factor / unit), part) for factor, part in terms]
    order = sympy.ilcm(1, *(factor.q for factor, _ in parts if factor.is_Rational))
    power = sympy.S.One
    for factor, part in parts:
        base = _exponential(part)
        if base is None or not factor.is_Rational or (part.func is sympy.log) != (parts[0][1].func is sympy.log):
            return False
        power *= base ** (factor * order)
    is_small = abs(sympy.N(numerator / unit)) * order < 1
    return bool(is_small) and algebraic.is_zero(power - 1) is True


def _exponential(part: Any) -> Any:
    """e to a logarithm, or to i times an angle, of an algebraic number; None for anything else."""
    if part is sympy.pi:
        return sympy.S.NegativeOne
    number = part.args[0] if len(part.args) == 1 else None
    if number is None or not algebraic.is_algebraic(number) or not number.is_real:
        return None
    if isinstance(part, sympy.log):
        return number
    leg = sympy.sqrt(1 - number**2)
    if isinstance(part, sympy.asin):
        return leg + sympy.I * number
    if isinstance(part, sympy.acos):
        return number + sympy.I * leg
    hypotenuse = sympy.sqrt(1 + number**2)
    return (1 + sympy.I * number) / hypotenuse if isinstance(part, sympy.atan) else None


class _Normal:
    """The normal form of one function."""

    def __init__(self, function: Any, is_real: bool) -> None:
        self.function = function
        self.is_real = is_real
        self.known: dict[Any, Any] = {}
        self.signs: dict[Any, Any] = {}  # |f| of those f whose sign follows from what a root or logarithm is taken of

    def __call__(self) -> Any:
        normal = self.of(self.function)
        return normal.xreplace(self.signs) if self.signs else normal

    def of(self, part: Any) -> Any:
        if not part.args or part.is_Rational:
            return part
        if part not in self.known:
            self.known[part] = self.step(part.func(*map(self.of, part.args)))
        return self.known[part]

    def step(self, part: Any) -> Any:
        if isinstance(part, (TrigonometricFunction, HyperbolicFunction)):
            part = part.rewrite(sympy.exp)
            return part.replace(sympy.exp, lambda argument: expand_power_exp(sympy.exp(sympy.expand(argument))))
        if isinstance(part, sympy.exp):
            return expand_power_exp(sympy.exp(sympy.expand(part.args[0])))
        if isinstance(part, (sympy.factorial, sympy.binomial, sympy.gamma)):
            part = part.rewrite(sympy.gamma)
            return part.replace(sympy.gamma, lambda argument: sympy.expand_func(sympy.gamma(sympy.expand(argument))))
        if isinstance(part, sympy.acos):
            return sympy.pi / 2 - sympy.asin(part.args[0])
        if isinstance(part, sympy.acot):
            return sympy.atan(1 / part.args[0])
        if isinstance(part, sympy.log):
            return self.logarithm(part)
        if isinstance(part, (sympy.Abs, sympy.sign)):
            return sympy.Mul(*(part.func(base) ** exponent for base, exponent in _factors(part.args[0])))
        if part.is_Pow and not part.exp.is_Integer:
            return self.power(part)
        return part

    def logarithm(self, part: Any) -> Any:
        factors = _factors(part.args[0])
        if not self.is_real and not all(base.is_positive for base, _ in factors):
            return part
        self.learn_sign(factors)
        return sympy.Add(*(exponent * _log(sympy.Abs(base)) for base, exponent in factors))

    def power(self, part: Any) -> Any:
        base, exponent = part.args
        if base.is_Rational and base != 0:
            if exponent.is_Rational:
                return part
            primes = sympy.factorrat(base, limit=MAX_PRIME)  # -1 among them
            return sympy.Mul(*(expand_power_exp(prime ** sympy.expand(exponent * n)) for prime, n in primes.items()))
        if not exponent.is_Rational:
            powers = [root ** sympy.expand(exponent * n) for root, n in _factors(base)]
            return sympy.Mul(*map(expand_power_exp, powers)) if self.is_real else expand_power_exp(part)
        factors = _factors(base)
        if self.is_real and exponent.q % 2 == 0:
            self.learn_sign(factors)
            return sympy.Mul(*(sympy.Abs(root) ** (exponent * n) for root, n in factors))
        if all(root.is_nonnegative for root, _ in factors):
            return sympy.Mul(*(root ** (exponent * n) for root, n in factors))
        return part

    def learn_sign(self, factors: list[tuple[Any, Any]]) -> None:
        """What stands under an even root is not negative."""
        odd = [base for base, exponent in factors if exponent.is_odd and not base.is_nonnegative]
        sign = -1 if sum(bool(base.is_negative) for base in odd) % 2 else 1
        unknown = [base for base in odd if not base.is_negative]
        if len(unknown) == 1:
            self.signs |= {sympy.Abs(unknown[0]): sign * unknown[0], sympy.sign(unknown[0]): sympy.Integer(sign)}


def _factors(expression: Any) -> list[tuple[Any, Any]]:
    """``(base, exponent)`` of the factors of ``expression``; exponents other than integers stay with their base."""
    if expression.count_ops() <= MAX_FACTORED_OPERATIONS and not expression.is_number:
        expression = sympy.factor(sympy.together(expression))
    pairs = []
    for factor in sympy.Mul.make_args(expression):
        base, exponent = factor.as_base_exp()
        if isinstance(factor, sympy.exp) or not exponent.is_Integer:
            base, exponent = factor, sympy.S.One
        pairs.append((base, exponent))
    return pairs


def _log(argument: Any) -> Any:
    if not argument.is_Rational or argument == 0:
        return sympy.log(argument)
    return sympy.Add(*(times * sympy.log(prime) for prime, times in sympy.factorrat(argument, limit=MAX_PRIME).items()))
