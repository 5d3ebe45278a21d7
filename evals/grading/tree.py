"""What an answer says, as a tree that is made once, and whether two trees have the same value.

Each node knows its exact value and the names in it. Two formulas have the same value by exact fractions where both have
one, else by values at points that follow from both texts: those that differ at a point, in 60 digits, differ, and those
that agree at all points in 1,000 digits are equal. What differs from zero by less than that, such as e^{-10000}, has no
value here, so that nothing can be hidden below the last digit. Values are real unless `i` occurs, and formulas are
equal where both have a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath

# No exact number has more bits than this; what is larger has no exact value, and none at a point either.
MAX_BITS = 20_000
# Refuted at the first, equal at the second.
DIGITS = (60, 1000)
# Powers of ten beyond which an intermediate value is none: far above the last digit.
GAP = 400
_SCALES = tuple(map(mpmath.mpf, ("1", "0.3", "7", "30")))
MAX_ARGUMENT = 10_000

_NO_NAMES: frozenset[str] = frozenset()
Point = Callable[[str], Any]


class Undefined(ArithmeticError):
    """There is no value at this point, or none within our bounds."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operation ``op`` on ``args``, which are nodes, answers or, of numbers, names and words, their value.

    ``exact`` is the rational value where the node has one of at most `MAX_BITS`; ``names`` are the unknowns below it.
    """

    op: str
    args: tuple[Any, ...] = ()
    exact: Fraction | None = field(init=False, compare=False, repr=False)
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", _exact(self.op, self.args))
        if self.op == "sym":
            names = frozenset(self.args)
        else:
            names = _NO_NAMES.union(*(below.names for below in self.nodes()))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "depth", 1 + max((below.depth for below in self.nodes()), default=0))

    def nodes(self) -> Iterator[Node]:
        """The nodes directly below this one, those in answers too."""
        for arg in self.args:
            if isinstance(arg, Node):
                yield arg
            elif isinstance(arg, Answer):
                yield arg.node

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for below in self.nodes():
            yield from below.walk()


@dataclass(frozen=True, slots=True)
class Answer:
    """A tree and what stands around it: the name before its equals sign, its unit, and its mark, `%` or `deg`.

    ``links`` are the other sides of a chain `x = 2+3 = 5`, which must all be equal to ``node``; ``equation`` is the
    whole of `x = 5`, for a reference that is an equation.
    """

    node: Node
    name: Node | None = None
    unit: str = ""
    mark: str = ""
    links: tuple[Node, ...] = ()
    equation: Node | None = None


def num(value: int | str | Fraction) -> Node:
    """A rational number."""
    return Node("num", (Fraction(value),))


def sym(name: str) -> Node:
    """A name; `e`, `i` and `π` are constants."""
    return _CONSTANTS.get(name) or Node("sym", (name,))


def call(function: str, *args: Node) -> Node:
    """A function by its name, applied to ``args``."""
    return Node("call", (function, *args))


def neg(node: Node) -> Node:
    """The negative of ``node``."""
    return Node("neg", (node,))


def _exact(op: str, args: tuple[Any, ...]) -> Fraction | None:
    if op in ("num", "float"):
        return args[0]
    if op not in ("+", "*", "/", "neg", "^"):
        return None
    values = [arg.exact for arg in args]
    if None in values:
        return None
    first, *rest = values
    if op == "neg":
        return -first
    if op == "+":
        return _bounded(sum(values, Fraction(0)))
    if op == "*":
        return _bounded(first * rest[0])
    if op == "/":
        return _bounded(first / rest[0]) if rest[0] else None
    exponent = rest[0]
    bits = max(first.numerator.bit_length(), first.denominator.bit_length())
    if exponent.denominator != 1 or bits * abs(exponent) > MAX_BITS or (not first and exponent <= 0):
        return None
    return first ** int(exponent)


def _bounded(value: Fraction) -> Fraction | None:
    return value if max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS else None


_CONSTANTS = {"e": Node("e"), "i": Node("i"), "π": Node("pi")}
OO = Node("oo")
MINUS_OO = Node("neg", (OO,))
REALS = Node("sym", ("mathbb:R",))


_AROUND = {"neg": "-{}", "pm": "±{}", "deg": "{}°", "pct": "{}%"}
_INFIX = {op: f" {op} " for op in ("+", "*", "/", "^", "cup", "cap", "setminus", "mod")} | {"ratio": " : "}


def written(said: Any) -> str:
    """``said`` as text that shows how it was read: `x = 2 * (y + 1) [cm]`, `[2, 5)`, `list(1, sqrt(2))`."""
    if isinstance(said, Answer):
        sides = [*(said.name,) * (said.name is not None), *said.links, said.node]
        mark = "°" if said.mark == "deg" else said.mark
        return " = ".join(map(written, sides)) + mark + (f" [{said.unit}]" if said.unit else "")
    if not isinstance(said, Node):
        return str(said)
    op, args = said.op, said.args
    if op in ("num", "float", "sym", "words"):
        return str(args[0])
    if op == "rel":
        signs, first, *sides = args
        return written(first) + "".join(f" {sign} {written(side)}" for sign, side in zip(signs, sides, strict=True))
    if op == "tuple":
        return args[0][0] + ", ".join(map(written, args[1:])) + args[0][-1]
    if op in _INFIX:
        return _INFIX[op].join(map(_bracketed, args)).replace(" + -", " - ")
    if op in _AROUND:
        return _AROUND[op].format(_bracketed(args[0]))
    if op == "call":
        op, args = args[0], args[1:]
    elif op == "root" and args[1].exact == 2:
        op, args = "sqrt", args[:1]
    return f"{op}({', '.join(map(written, args))})" if args else op


def _bracketed(arg: Any) -> str:
    """``arg`` as an operand: in brackets where it has operands itself."""
    node = arg.node if isinstance(arg, Answer) else arg
    return f"({written(arg)})" if isinstance(node, Node) and node.op in (*_INFIX, "rel") else written(arg)


def same_value(first: Node, second: Node) -> bool:
    """Whether two formulas are equal wherever both have a value, of which there must be at least two."""
    one, other = first.exact, second.exact
    if one is not None and other is not None:
        return one == other or _prints(first, one, other) or _prints(second, other, one)
    return in_all_digits(lambda: _agree(first, second))


def same_ratio(first: Node, second: Node, *, is_positive: bool = False) -> bool:
    """Whether one formula is a multiple of the other by a number that is not zero, or ``is_positive``."""
    return in_all_digits(lambda: _proportional(first, second, is_positive))


def in_all_digits(holds: Callable[[], bool]) -> bool:
    """Whether it holds in few digits and in many, in which mpmath works meanwhile."""
    for digits in DIGITS:
        with mpmath.workdps(digits):
            if not holds():
                return False
    return True


def value_of(node: Node, x: Any = None) -> Any:
    """The real value of a formula where its unknown is ``x``; None where it has none, or other unknowns.

    In the digits that mpmath works with.
    """
    if node.names and x is None:
        return None
    try:
        found = _value(node, lambda name: x, False)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return found if isinstance(found, mpmath.mpf) else None


def _agree(first: Node, second: Node) -> bool:
    num_agreeing = 0
    for one, other in _pairs(first, second):
        if not close(one, other):
            return False
        num_agreeing += 1
        if mpmath.mp.dps > DIGITS[0] and num_agreeing == 2:
            break
    return num_agreeing >= (2 if first.names or second.names else 1)


def _proportional(first: Node, second: Node, is_positive: bool) -> bool:
    ratios = [one / other for one, other in _pairs(first, second) if other]
    if is_positive and any(not isinstance(ratio, mpmath.mpf) or ratio < 0 for ratio in ratios):
        return False
    return len(ratios) > 1 and abs(ratios[0]) > 1e-30 and all(close(ratio, ratios[0]) for ratio in ratios)


def _pairs(first: Node, second: Node) -> Iterator[tuple[Any, Any]]:
    """The values of both formulas at each point where both have one."""
    is_complex = any(part.op == "i" for part in (*first.walk(), *second.walk()))
    for point in _points(first, second):
        try:
            yield _value(first, point, is_complex), _value(second, point, is_complex)
        except (ArithmeticError, ValueError, TypeError):
            continue


def close(first: Any, second: Any) -> bool:
    """Whether two values agree in all but the last digits that mpmath works with."""
    lost = 100 if mpmath.mp.dps > DIGITS[0] else 20
    smallest = mpmath.mpf(10) ** (-GAP - 50 if lost == 100 else -20)
    return bool(
        abs(first - second) <= mpmath.mpf(10) ** (lost - mpmath.mp.dps) * max(abs(first), abs(second), smallest)
    )


def _prints(node: Node, printed: Fraction, value: Fraction) -> bool:
    """Whether a printed float, of 15 digits or more, stands for a fraction that no decimal can write, as 1/12."""
    absolute = node.args[0] if node.op == "neg" else node
    if absolute.op != "float":
        return False
    is_decimal = pow(10, value.denominator.bit_length(), value.denominator) == 0
    return not is_decimal and abs(printed - value) <= absolute.args[1]


def _points(first: Node, second: Node) -> Iterator[_Point]:
    positive, whole = set[str](), set[str]()
    for part in (*first.walk(), *second.walk()):
        name = part.args[0] if part.op == "call" else part.op
        if name in ("factorial", "binom"):
            whole |= part.names
        elif name in ("root", "ln", "log"):
            inner = part.args[0 if name == "root" else 1]
            # Lengths, masses and the like: a root or logarithm is taken of their product or quotient.
            positive |= inner.names if inner.op in ("*", "/") and len(inner.names) > 1 else set()
    names = sorted(first.names | second.names)
    scales = [*_SCALES, *_SCALES, *[_far(first, second)] * 4]
    for index, scale in enumerate(scales if names else scales[:1]):
        turns = index - len(_SCALES) + 1  # no name is negative at the first points, each is at some of the others
        negative = {name for rank, name in enumerate(names) if turns > 0 and turns % 4 >> rank % 2 & 1}
        yield _Point(f"{first}\0{second}\0{index}", scale, frozenset(negative - positive), frozenset(whole), index)


def _far(first: Node, second: Node) -> Any:
    """Beyond every number in both formulas: |x+1000| is x+1000 nearby, and not everywhere."""
    constants = [value_of(part) for part in (*first.walk(), *second.walk()) if not part.names]
    return 3 * max([abs(one) for one in constants if one is not None], default=mpmath.mpf(1)) + 100


@dataclass(frozen=True)
class _Point:
    """A value for each name, which follows from both texts: nobody can write an answer for the points it will have.

    Names in ``negative`` are so, and those in ``whole`` are natural numbers, as those of factorials are.
    """

    seed: str
    scale: Any
    negative: Set[str]
    whole: Set[str]
    number: int

    def __call__(self, name: str) -> Any:
        digest = hashlib.sha256(f"{self.seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
        if name in self.whole:
            return mpmath.mpf(2 + 5 * self.number + digest[29] % 5)
        share = mpmath.mpf(int.from_bytes(digest[:24], "big")) / mpmath.mpf(2) ** 192
        found = (share + mpmath.mpf("0.2")) * self.scale
        return -found if name in self.negative else found


_CALLS: dict[str, Callable[..., Any]] = {
    "ln": mpmath.log,
    "log": mpmath.log,
    "log10": mpmath.log10,
    "abs": abs,
    **{f"arc{name}": getattr(mpmath, f"a{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
}
_ROUNDED: dict[str, Callable[..., Any]] = {"floor": mpmath.floor, "ceil": mpmath.ceil, "max": max, "min": min}


def _value(node: Node, point: Point, is_complex: bool) -> Any:
    found = _value_here(node, point, is_complex)
    if not is_complex and isinstance(found, mpmath.mpc):
        if found.imag:
            raise Undefined
        return found.real
    return found


def _value_here(node: Node, point: Point, is_complex: bool) -> Any:
    if node.exact is not None:
        return _in_bounds(mpmath.mpf(node.exact.numerator) / node.exact.denominator)
    op, args = node.op, node.args
    if op == "sym":
        return point(args[0])
    if op in ("pi", "e"):
        return getattr(mpmath, op) + 0
    if op == "i":
        return mpmath.mpc(0, 1)
    if op == "call":
        name, *arguments = args
        return _applied(name, [_value(arg, point, is_complex) for arg in arguments], point if node.names else None)
    if op == "deg":
        return _value(args[0], point, is_complex) * mpmath.pi / 180
    if op == "pct":
        return _value(args[0], point, is_complex) / 100
    if op not in ("+", "*", "/", "neg", "^", "root"):
        raise Undefined
    values = [_value(arg, point, is_complex) for arg in args]
    if op == "+":
        return _sum(values)
    if op == "*":
        return _in_bounds(values[0] * values[1])
    if op == "neg":
        return -values[0]
    if op == "/":
        if not values[1]:
            raise Undefined
        return _in_bounds(values[0] / values[1])
    if op == "^":
        return _power(values[0], values[1], node)
    return _root(values[0], values[1], args[1].exact)


def _power(base: Any, exponent: Any, node: Node) -> Any:
    if not base:
        if exponent.real <= 0 or node.args[1].names:  # 0^|x| is one at a single point
            raise Undefined
        return mpmath.mpf(0)
    if abs(exponent) * (1 + abs(mpmath.log(abs(base)))) > 1e6:
        raise Undefined
    rational = node.args[1].exact
    if not isinstance(base, mpmath.mpc) and base < 0 and rational is not None and rational.denominator % 2:
        return _in_bounds((-1) ** rational.numerator * (-base) ** exponent)
    return _in_bounds(base**exponent)


def _root(base: Any, order: Any, rational: Fraction | None) -> Any:
    if not order:
        raise Undefined
    is_odd = rational is not None and rational.denominator == 1 and rational.numerator % 2
    if not isinstance(base, mpmath.mpc) and base < 0 and is_odd:
        return -_in_bounds((-base) ** (1 / order))  # the cube root of -8 is -2
    return _in_bounds(base ** (1 / order)) if base else base


def _applied(name: str, values: list[Any], point: Point | None) -> Any:
    if name in ("factorial", "binom"):
        if not all(mpmath.isint(value) and 0 <= value <= MAX_ARGUMENT for value in values):
            raise Undefined
        return _in_bounds(mpmath.factorial(values[0]) if name == "factorial" else mpmath.binomial(*values))
    if name in (*_ROUNDED, "gcd", "lcm"):
        return _opaque(name, values, point)
    if name not in _CALLS or (
        name not in ("ln", "log", "log10", "abs") and abs(values[0]) > (700 if name.endswith("h") else 1e9)
    ):
        raise Undefined
    if name == "abs":
        return mpmath.mpf(abs(values[0]))
    found = _CALLS[name](*values)
    is_rounding = name in ("sin", "cos", "tan", "cot") and abs(found) < mpmath.mpf(10) ** (20 - mpmath.mp.dps)
    return mpmath.mpf(0) if is_rounding and abs(values[0]) > 0.1 else _in_bounds(found)


def _opaque(name: str, values: list[Any], point: Point | None) -> Any:
    """What jumps or has a corner: where it depends on unknowns, a number that only its arguments have.

    Points nearby could lie on one step; so `floor(x)` is x minus something that only the fraction of x decides, and the
    larger and the smaller of two numbers are their mean plus and minus something.
    """
    if not isinstance(point, _Point) or not all(map(mpmath.isfinite, values)):
        if name not in _ROUNDED:
            raise Undefined
        return mpmath.mpf(_ROUNDED[name](*values))
    if name == "ceil":
        return -_opaque("floor", [-values[0]], point)
    if name == "floor":
        rest = values[0] - mpmath.floor(values[0])
        return values[0] - (point(f"rest of {mpmath.nstr(rest, 30)}") if rest else 0)
    if name in ("max", "min") and len(values) == 2:
        first, second = values
        if close(first, second):
            return (first + second) / 2
        distance = point(f"between {mpmath.nstr(abs(first - second), 30)}")
        return (first + second + (distance if name == "max" else -distance)) / 2
    return point(name + " ".join(mpmath.nstr(value, 30) for value in sorted(values)))


def _in_bounds(number: Any) -> Any:
    """``number``, if it is neither infinite nor so small that the digits would not show it beside others."""
    if not mpmath.isfinite(number):
        raise Undefined
    if number and abs(mpmath.mag(number)) > 3.33 * GAP and mpmath.mp.dps > DIGITS[0]:
        raise Undefined
    return number


def _sum(terms: list[Any]) -> Any:
    """A sum: zero where only rounding is left of its terms, no value where something tiny is."""
    found, largest = mpmath.fsum(terms), max(map(abs, terms))
    lost = 100 if mpmath.mp.dps > DIGITS[0] else 20
    return mpmath.mpf(0) if abs(found) < largest * mpmath.mpf(10) ** (lost - mpmath.mp.dps) else _in_bounds(found)
