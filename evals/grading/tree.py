"""What an answer says, as a tree that is made once; each node knows its exact value and the names in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

# No exact number has more bits than this; what is larger has no exact value, and none at a point either.
MAX_BITS = 20_000


_NO_NAMES: frozenset[str] = frozenset()


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
_INFIX = {
    "+": " + ",
    "*": " * ",
    "/": " / ",
    "^": " ^ ",
    "ratio": " : ",
    "cup": " cup ",
    "cap": " cap ",
    "mod": " mod ",
}


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
        signs, *sides = args
        return written(sides[0]) + "".join(
            f" {sign} {written(side)}" for sign, side in zip(signs, sides[1:], strict=True)
        )
    if op == "tuple":
        return args[0][0] + ", ".join(map(written, args[1:])) + args[0][-1]
    inner = [_bracketed(arg) for arg in args]
    if op == "+":
        return inner[0] + "".join(f" - {part[1:]}" if part[:1] == "-" else f" + {part}" for part in inner[1:])
    if op in _INFIX:
        return _INFIX[op].join(inner)
    if op in _AROUND:
        return _AROUND[op].format(inner[0])
    if op == "call":
        op, args = args[0], args[1:]
    elif op == "root":
        op, args = ("sqrt", args[:1]) if args[1].exact == 2 else (op, args)
    return f"{op}({', '.join(map(written, args))})" if args else op


def _bracketed(arg: Any) -> str:
    """``arg`` as an operand: in brackets where it has operands itself."""
    node = arg.node if isinstance(arg, Answer) else arg
    is_compound = isinstance(node, Node) and (node.op in _INFIX or node.op == "rel")
    return f"({written(arg)})" if is_compound else written(arg)
