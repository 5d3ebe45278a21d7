r"""The set of real numbers that an answer describes: `x<-2 or x>5`, `(-\infty,-2)\cup(5,\infty)` and `|x-1.5|>3.5`.

Only worker processes import this file (see `worker`): solving an inequality can take any time and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy
from latex2sympy2_extended.logic import And

from evals.grading.identity import is_tame
from evals.grading.normal_form import Group, Item
from evals.grading.points import Points
from evals.grading.structures import same_sets
from evals.grading.typography import RELATION

Parse = Callable[[str], Any]


def describes_set(item: Item) -> bool:
    """Whether an answer holds a relation or a union, or lists intervals: only such pairs are worth solving."""
    if not isinstance(item.value, Group):
        return RELATION.search(item.text) is not None
    return item.value.kind == "union" or any(describes_set(part) or _is_interval(part) for part in item.value.items)


def same_set(item: Item, gold: Item, parse: Parse, points: Points) -> bool | None:
    """Whether two answers describe the same set, in the same variable where both name one; False if one is no set."""
    found, expected = _solved(item, parse, points), _solved(gold, parse, points)
    if found is None or expected is None:
        return False
    variables = {str(symbol) for symbol in (found[1], expected[1]) if symbol is not None}
    return same_sets(found[0], expected[0], points) if len(variables) < 2 else False


def _solved(item: Item, parse: Parse, points: Points) -> tuple[sympy.Set, sympy.Symbol | None] | None:
    """The set of ``item`` and the variable of its relations, None where it has none."""
    value = item.value
    if isinstance(value, Group) and value.kind in ("union", "list"):
        parts = [_solved(part, parse, points) for part in value.items]
        solved = [part for part in parts if part is not None]
        variables = {part[1] for part in solved if part[1] is not None}
        is_points = any(_pair(part) for part in value.items) and not any(_is_interval(part) for part in value.items)
        if len(solved) < len(parts) or len(variables) > 1 or (value.kind == "list" and is_points):
            return None
        sets = [part[0] for part in solved]
        both = sympy.Intersection(*sets)
        # x>1, x<3 hold at once; x<1, x>3 cannot, so that they are alternatives.
        is_joint = value.kind == "list" and bool(variables) and both is not sympy.S.EmptySet
        return (both if is_joint else sympy.Union(*sets)), next(iter(variables), None)
    if isinstance(value, Group):
        pair = _pair(item)
        return _interval(pair, parse, points) if pair else None
    parsed = parse(item.text)
    if not all(is_tame(part, points) for part in _expressions(parsed)):
        return None
    if isinstance(parsed, sympy.Set):
        return parsed.doit(), None
    relations = parsed.args if isinstance(parsed, And) else [parsed]
    if all(isinstance(relation, sympy.core.relational.Relational) for relation in relations):
        if len(parsed.free_symbols) != 1:
            return None
        sets = [relation.as_set() for relation in relations]
        return sympy.Intersection(*sets), next(iter(parsed.free_symbols))
    is_real = isinstance(parsed, sympy.Expr) and parsed.is_number and parsed.is_real
    return (sympy.FiniteSet(parsed.doit()), None) if is_real else None


def _interval(pair: Group, parse: Parse, points: Points) -> tuple[sympy.Set, None] | None:
    ends = [parse(end.text) for end in pair.items]
    if not all(isinstance(end, sympy.Expr) and end.is_number and end.is_extended_real for end in ends):
        return None
    if not all(is_tame(end, points) for end in ends):
        return None
    low, high = (end.doit() for end in ends)
    return sympy.Interval(low, high, pair.brackets[0] == "(", pair.brackets[-1] == ")"), None


def _expressions(parsed: Any) -> Iterator[sympy.Expr]:
    """The largest expressions inside relations and sets."""
    if isinstance(parsed, sympy.Expr):
        yield parsed
        return
    for part in parsed.args:
        yield from _expressions(part)


def _is_interval(item: Item) -> bool:
    """Whether a pair in brackets can be no point."""
    pair = _pair(item)
    return pair is not None and (pair.brackets in ("[)", "(]") or "\\infty" in item.text)


def _pair(item: Item) -> Group | None:
    value = item.value
    return value if isinstance(value, Group) and value.kind == "tuple" and len(value.items) == 2 else None
