"""What the symbolic stage decides by: exact zero tests of algebraic numbers, and points that follow from the texts."""

import random

import pytest

from evals.grading.points import Points

sympy = pytest.importorskip("sympy")


def test_sums_of_roots_are_zero_exactly_when_they_are() -> None:
    from evals.grading.algebraic import is_zero

    rng = random.Random(0)
    for _ in range(25):
        a, b, c = (sympy.sqrt(rng.randrange(2, 40)) + rng.randrange(5) for _ in range(3))
        root = sympy.root(rng.randrange(2, 30), rng.choice([2, 3]))
        rationalised = a * (b - root) / sympy.expand((b - root) * (b + root))
        for zero in (a / (b + root) - rationalised, sympy.sqrt(sympy.expand((a + b) ** 2)) - a - b):
            assert is_zero(zero) is True
            assert is_zero(zero + sympy.Rational(1, 10 ** rng.randrange(40, 300))) is not True
        assert is_zero(a + b - sympy.sqrt(sympy.expand((a + b) ** 2)) + c * sympy.Rational(1, 10**90)) is False
    turn = sympy.exp(2 * sympy.I * sympy.pi / 7)
    assert is_zero(sum((turn**k for k in range(7)), start=sympy.S.Zero)) is True
    assert is_zero(turn + 1 / turn - sympy.Rational(12469796037174670, 10**16)) is False
    assert is_zero(sympy.pi - 3) is None


def test_points_follow_from_both_texts_and_share_no_denominators() -> None:
    x, y = sympy.symbols("x y")
    first = Points("x+1", "x+2").at([x, y], 0)
    assert first == Points("x+1", "x+2").at([x, y], 0)
    others = [Points("x+1", "x+3").at([x], 0), Points("x+3", "x+2").at([x], 0), Points("x+1", "x+2").at([x], 1)]
    denominators = [point[x].q for point in [first, *others]] + [first[y].q]
    assert all(q > 2**50 for q in denominators)
    assert all(sympy.gcd(q, other) < 2**20 for q in denominators for other in denominators if q != other)
    assert len(set(denominators)) == len(denominators)
    assert Points("a", "b").at([x, y], 0, frozenset([x]))[x] < 0 < Points("a", "b").at([x, y], 0, frozenset([x]))[y]
