r"""Whether two answers say the same, and the rule that decided.

The reference says how it is meant: a per cent sign, a unit, a name, a date. Trees are compared from outside to inside,
and what is left are two formulas (`tree.py` has their values) or two sets of real numbers.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product, zip_longest
from typing import Any, Literal, NamedTuple

import mpmath

from evals.grading.read import choice, range_or_time, read, same_kind, squeezed
from evals.grading.tree import (
    MINUS_OO,
    OO,
    REALS,
    Answer,
    Node,
    close,
    in_all_digits,
    neg,
    num,
    same_ratio,
    same_value,
    value_of,
)

Policy = Literal["strict", "simko"]
SIMKO_TOLERANCE = Fraction(1, 10_000)
# Matching two unordered lists takes their product in comparisons.
MAX_ITEMS = 100
_LISTS = ("list", "set")
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_TURNED |= {sign: sign for sign in ("=", "!=", "~", "sim", "perp", "parallel")}


class Decision(NamedTuple):
    """Whether two answers are equal, by which rule, and the readings that it compared."""

    is_equal: bool
    rule: str
    said: Answer | None = None
    reference: Answer | None = None

    def __bool__(self) -> bool:
        return self.is_equal


@dataclass(frozen=True)
class Comparison:
    """The rules for each pair of nodes; numbers are equal exactly, or as a lenient grader says (see `grade`)."""

    policy: Policy = "strict"

    def same(self, item: Answer, gold: Answer) -> Decision:
        """Whether two answers with their names, units and marks say the same."""
        item, gold = _merged(item), _merged(gold)
        if item.links:
            unnamed = Answer(gold.node, mark=gold.mark)
            if not all(self.same(Answer(link), unnamed) for link in item.links):
                return Decision(False, "a link of the chain differs")
            return self.same(replace(item, links=()), gold)
        if "words" in (item.node.op, gold.node.op):
            is_equal = item.node == gold.node and not (item.unit or item.mark)
            return Decision(is_equal, "words equal only the same words")
        if (refusal := _conflict(item, gold)) is not None:
            return refusal
        if item.mark == "deg" or gold.mark == "deg":
            item, gold = _without_degrees(item, gold)
        if (decision := self._same_names(item, gold)) is not None:
            return decision
        return self._same_values(item, gold)

    def _same_names(self, item: Answer, gold: Answer) -> Decision | None:
        """A decision where both answers have a name and the names differ."""
        if item.name is None or gold.name is None or item.name == gold.name or _same_label(item.name, gold.name):
            return None
        if item.name == gold.node and gold.name == item.node:
            return Decision(True, "the same equation turned round")
        if item.equation and gold.equation and not _is_label(item.name):
            return Decision(same_equation(item.equation, gold.equation), "equations that are multiples of each other")
        return Decision(False, "another name")

    def _same_values(self, item: Answer, gold: Answer) -> Decision:
        one, other = item.node, gold.node
        if _is_choice(other) and not gold.name and (item.unit or item.name or one.op != "sym"):
            return Decision(False, "more than one letter")
        if one == other and item.mark == gold.mark:
            return Decision(True, "the same tree")
        kinds = {one.op, other.op}
        if kinds & {"date", "capitals"}:
            return Decision(False, "a date or a word of capitals equals only the same")
        if one.op == "rel" and one.args[0] == ("=",) and other.op != "rel" and not gold.name:
            _, left, right = one.args
            if left == right or not same_value(left, right):
                return Decision(False, "an equation whose sides differ")
            return self.same(replace(item, node=right), gold)
        if "set" in kinds or "cases" in kinds:
            is_equal = one.op == other.op and self._matched(one.args, other.args)
            return Decision(is_equal, "the same members in some order")
        if "vector" in kinds:
            return self._same_vectors(one, other)
        if kinds & {"rel", "cup", "cap", "setminus"} or REALS in (one, other):
            return self._same_relations(item, gold)
        if one.op == "mod" or other.op == "mod":
            return self._same_residues(one, other)
        if one.op in _LISTS and other.op in _LISTS:
            return self._same_lists(one, other)
        if one.op in _LISTS or other.op in _LISTS:
            return self._list_and_single(item, gold)
        if one.op in ("tuple", "matrix") and other.op in ("tuple", "matrix"):
            return self._same_shapes(one, other)
        if one.op == other.op == "ratio":
            return self._same_ratios(one.args, other.args)
        if other.op == "ratio" and len(other.args) == 2:
            return self._same_scalars(item, replace(gold, node=Node("/", other.args)))
        if kinds & {"tuple", "matrix", "based", "ratio", "oo"} or MINUS_OO in (one, other):
            return Decision(False, "different kinds of answer")
        return self._same_scalars(item, gold)

    def _same_relations(self, item: Answer, gold: Answer) -> Decision:
        one, other = item.node, gold.node
        equations = [answer.node if answer.node.op == "rel" else answer.equation for answer in (item, gold)]
        if all(equation is not None and equation.args[0] == ("=",) for equation in equations):
            return Decision(same_equation(*equations), "equations that are multiples of each other")  # type: ignore[arg-type]
        if one.op == other.op == "rel" and len(one.args) == len(other.args):
            (signs, *sides), (gold_signs, *gold_sides) = one.args, other.args
            turned = tuple(_TURNED.get(sign, "") for sign in signs[::-1])
            for order, relation in ((sides, signs), (sides[::-1], turned)):
                if relation == gold_signs and all(
                    self.same(Answer(side), Answer(gold_side))
                    for side, gold_side in zip(order, gold_sides, strict=True)
                ):
                    return Decision(True, "the same relation between the same sides")
            if (ranked := _ranked(one)) and ranked == _ranked(other):
                return Decision(True, "the same order")
        if (multiples := _same_inequality(one, other)) is not None:
            return multiples
        return Decision(same_set(item, gold), "sets of real numbers, by their members")

    def _same_residues(self, one: Node, other: Node) -> Decision:
        if one.op != other.op:
            return Decision(False, "a residue and no residue")
        (first, modulus), (second, other_modulus) = one.args, other.args
        is_equal = modulus.exact is not None and modulus.exact == other_modulus.exact
        if is_equal and first.node.exact is not None and second.node.exact is not None and modulus.exact:
            is_equal = (first.node.exact - second.node.exact) % modulus.exact == 0
        else:
            is_equal = is_equal and bool(self.same(first, second))
        return Decision(is_equal, "residues of one modulus")

    def _same_lists(self, one: Node, other: Node) -> Decision:
        if self.policy == "simko":
            return Decision(all(map(self.same, one.args, other.args)), "lists of which one begins the other")
        if self._matched(one.args, other.args):
            return Decision(True, "the same values in some order")
        has_parts = any(_is_interval(part) or part.node.op == "rel" for part in (*one.args, *other.args))
        return Decision(has_parts and same_set(one, other), "values of two lists, in any order")

    def _list_and_single(self, item: Answer, gold: Answer) -> Decision:
        is_list = item.node.op in _LISTS
        group, single = (item.node, gold) if is_list else (gold.node, item)
        if single.node.op == "tuple" and single.node.args[0] == "()" and all(part.name for part in group.args):
            ordered = sorted(group.args, key=lambda part: repr(part.name))  # x=1, y=2 is (1, 2)
            if len(ordered) == len(single.node.args) - 1 == len({repr(part.name) for part in ordered}):
                pairs = zip(ordered, single.node.args[1:], strict=True)
                return Decision(all(self.same(Answer(part.node), value) for part, value in pairs), "named coordinates")
        if len(group.args) == 1:
            inner = group.args[0]
            return self.same(inner, gold) if is_list else self.same(item, inner)
        has_parts = any(part.node.op == "rel" for part in group.args)
        return Decision(has_parts and same_set(item, gold), "a list and a single value")

    def _same_shapes(self, one: Node, other: Node) -> Decision:
        (shape, *values), (gold_shape, *golds) = one.args, other.args
        if one.op != other.op:
            column, brackets = (shape, gold_shape) if one.op == "matrix" else (gold_shape, shape)
            if set(column) != {1} or brackets != "()":
                return Decision(False, "a matrix and a tuple")
        elif shape != gold_shape:
            return Decision(False, "another shape or other brackets")
        is_equal = len(values) == len(golds) and all(map(self.same, values, golds))
        return Decision(is_equal, "value by value, in order")

    def _same_vectors(self, one: Node, other: Node) -> Decision:
        pairs = zip_longest(_coordinates(one), _coordinates(other), fillvalue=Answer(num(0)))
        is_equal = bool(_coordinates(one) and _coordinates(other)) and all(self.same(a, b) for a, b in pairs)
        return Decision(is_equal, "vectors, by their coordinates")

    def _same_ratios(self, parts: Sequence[Node], golds: Sequence[Node]) -> Decision:
        rule = "ratios, part by part"
        if len(parts) != len(golds):
            return Decision(False, rule)
        first, second = parts[0], golds[0]
        crossed = ((Node("*", (a, second)), Node("*", (b, first))) for a, b in zip(parts, golds, strict=True))
        has_same_names = frozenset().union(*(p.names for p in parts)) <= frozenset().union(*(g.names for g in golds))
        is_zero = all(part.exact == 0 for part in parts)
        return Decision(has_same_names and not is_zero and all(same_value(a, b) for a, b in crossed), rule)

    def _same_scalars(self, item: Answer, gold: Answer) -> Decision:
        one, other = item.node, gold.node
        known = other.names | (gold.name.names if gold.name else frozenset())
        if not one.names <= known:
            return Decision(False, "a letter that the reference does not have")
        if (item.mark == "%") != (gold.mark == "%"):
            return self._same_share(item, gold)
        if one.op == other.op == "sym":
            return Decision(one == other, "names")
        if self.policy == "simko" and _is_near(one.exact, other.exact):
            return Decision(True, "numbers within the tolerance")
        return Decision(
            same_value(one, other),
            "formulas, by their values" if one.names or other.names else "numbers, by their values",
        )

    def _same_share(self, item: Answer, gold: Answer) -> Decision:
        """50% and 50 or 0.5: the reference says which is meant."""
        found, expected = item.node.exact, gold.node.exact
        rule = "a share and a number of per cent"
        if found is None or expected is None:
            return Decision(False, rule)
        if gold.mark == "%":
            return Decision(found in (expected, expected / 100), rule)
        is_share = abs(expected) < 1 or (abs(expected) < 2 and expected.denominator > 1)
        return Decision(found == 100 * expected or (found == expected and not is_share), rule)

    def _matched(self, items: Sequence[Answer], golds: Sequence[Answer]) -> bool:
        """Whether each value has one of its own among the others."""
        left = list(golds)
        if len(items) != len(left) or len(left) > MAX_ITEMS:
            return False
        for item in items:
            at = next((at for at, gold in enumerate(left) if self.same(item, gold)), None)
            if at is None:
                return False
            left.pop(at)
        return True


# mpmath has one precision for all threads.
_one_at_a_time = threading.RLock()


def _after_fork_in_child() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def same_answer(extracted: str, reference: str, policy: Policy = "strict") -> Decision:
    """Whether two answers, as they stand in their boxes, say the same under any pair of their readings, and why."""
    with _one_at_a_time:
        return _decide(extracted, reference, policy)


def _decide(extracted: str, reference: str, policy: Policy) -> Decision:
    found, expected = squeezed(extracted), squeezed(reference)
    if extracted.strip() == reference.strip() or (found and found == expected):
        return Decision(True, "the same text")
    if kind := range_or_time(reference):
        other = range_or_time(extracted)
        is_equal = other is not None and same_kind(other, kind)
        said = Answer(other) if other else None
        return Decision(is_equal, f"a {kind.op} equals the same {kind.op} only", said, Answer(kind))
    readings, golds = read(extracted), read(reference)
    choices, gold_choices = choice(extracted), choice(reference)
    if bool(choices) != bool(gold_choices):  # (C) 12 is C and 12, but (C) 12 is not (C) 13
        readings, golds = readings + choices, golds + gold_choices
    has_words = any(one.node.op == "words" for one in (*readings, *golds))
    if has_words and found and found.casefold() == expected.casefold():
        return Decision(True, "the same words")
    refused = Decision(False, "no reading of the answer")
    for one, gold in product(readings, golds):
        decision = Comparison(policy).same(one, gold)._replace(said=one, reference=gold)
        if decision:
            return decision
        refused = decision
    return refused


# -- what stands around a value


def _merged(answer: Answer) -> Answer:
    """A value in brackets with what stands around it inside and outside."""
    while answer.node.op == "one":
        inner = answer.node.args[0]
        answer = replace(
            inner,
            name=answer.name or inner.name,
            unit=answer.unit or inner.unit,
            mark=answer.mark or inner.mark,
            links=answer.links + inner.links,
        )
    return answer


def _conflict(item: Answer, gold: Answer) -> Decision | None:
    if item.unit and gold.unit and item.unit != gold.unit:
        return Decision(False, "another unit")
    if (item.mark == "%") != (gold.mark == "%") and (item.unit or gold.unit):
        return Decision(False, "per cent and a unit")
    if (item.mark == "deg") != (gold.mark == "deg"):
        bare = gold if item.mark == "deg" else item
        if bare.unit not in ("", "rad") or bare.mark == "%":
            return Decision(False, "degrees and another unit")
    return None


def _without_degrees(item: Answer, gold: Answer) -> tuple[Answer, Answer]:
    """Both in radians where one of them is; 60 degrees and 60 are the same otherwise."""
    bare = gold if item.mark == "deg" else item
    if bare.unit == "rad" or any(part.op == "pi" for part in bare.node.walk()):
        return _in_radians(item), _in_radians(gold)
    return replace(item, mark="", unit=""), replace(gold, mark="", unit="")


def _in_radians(answer: Answer) -> Answer:
    if answer.mark != "deg":
        return replace(answer, unit="")
    return replace(answer, mark="", unit="", node=Node("/", (Node("*", (answer.node, Node("pi"))), num(180))))


def _is_label(name: Node) -> bool:
    """Whether a name names one thing, as `x`, `AB` and `f(x)` do, and is no formula of unknowns."""
    parts = list(name.walk())
    return all(part.op in ("sym", "*") for part in parts) and (len(parts) == 1 or all(map(str.isupper, name.names)))


def _same_label(one: Node, other: Node) -> bool:
    """Whether two names are y and f(x)."""
    texts = {str(node.args[0]) for node in (one, other) if node.op == "sym"}
    return len(texts) == 2 and "y" in texts and any(text.endswith("(x)") for text in texts)


def _ranked(node: Node) -> list[set[Node]]:
    """An order of names such as `A > B = C`, from the least on; empty for any other relation."""
    signs, first, *sides = node.args
    if any(side.op != "sym" for side in (first, *sides)) or set(signs) - {"="} not in ({"<"}, {">"}):
        return []
    groups = [{first}]
    for sign, side in zip(signs, sides, strict=True):
        if sign != "=":
            groups.append(set())
        groups[-1].add(side)
    return groups if "<" in signs else groups[::-1]


def _coordinates(node: Node) -> tuple[Answer, ...]:
    """The coordinates of a vector in i, j and k, of a tuple or of a column; none of anything else."""
    is_column = node.op == "matrix" and set(node.args[0]) == {1}
    return (
        node.args[1:] if is_column or (node.op in ("tuple", "vector") and node.args[0] in ("()", "[]", "ijk")) else ()
    )


def _is_near(value: Fraction | None, reference: Fraction | None) -> bool:
    """Whether a number is near enough for SimKO's grader, also after a factor of 100 either way."""
    if value is None or reference is None:
        return False
    return any(abs(value - one) <= SIMKO_TOLERANCE * abs(one) for one in (reference, 100 * reference, reference / 100))


def _is_choice(node: Node) -> bool:
    return node.op == "sym" and len(node.args[0]) == 1 and node.args[0] in "ABCDEFGH"


def _difference(relation: Node) -> Node:
    """The side that is said to be larger without the other; of an equation, the left without the right."""
    (sign, *_), left, right = relation.args
    return Node("+", (right, neg(left)) if sign[0] == "<" else (left, neg(right)))


def same_equation(first: Node, second: Node) -> bool:
    """Whether two equations are multiples of each other."""
    return bool(first.names) and bool(second.names) and same_ratio(_difference(first), _difference(second))


def _same_inequality(one: Node, other: Node) -> Decision | None:
    """Whether two inequalities of several unknowns are positive multiples of each other; None for anything else."""
    signs = [node.args[0][0] for node in (one, other) if node.op == "rel" and len(node.args) == 3]
    if len(signs) < 2 or not set(signs) <= {"<", ">", "<=", ">="} or len(one.names | other.names) < 2:
        return None
    is_equal = len(signs[0]) == len(signs[1]) and same_ratio(_difference(one), _difference(other), is_positive=True)
    return Decision(is_equal, "inequalities that are positive multiples")


def _is_interval(answer: Answer) -> bool:
    node = answer.node
    has_end = any(part.op == "oo" for part in node.walk())
    return node.op == "tuple" and len(node.args) == 3 and (node.args[0] in ("[)", "(]") or has_end)


# -- sets of real numbers


class Reals(NamedTuple):
    """Which real numbers an answer describes, where its ends lie, and the names of its variable."""

    has: Callable[[Any], bool]
    ends: tuple[Any, ...] = ()
    names: frozenset[str] = frozenset()


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": close,
    "!=": lambda a, b: not close(a, b),
}


def same_set(first: Answer | Node, second: Answer | Node) -> bool:
    """Whether two answers describe the same real numbers: at the ends of both, beside them, between and far away."""
    return in_all_digits(lambda: _same_members(first, second))


def _same_members(first: Answer | Node, second: Answer | Node) -> bool:
    one, other = _reals(first), _reals(second)
    if one is None or other is None or len(one.names | other.names) > 1:
        return False
    return all(one.has(x) == other.has(x) for x in _probes([one, other]))


def _reals(said: Answer | Node) -> Reals | None:
    node = said.node if isinstance(said, Answer) else said
    if isinstance(said, Answer) and said.name is not None and said.name.op == "sym":
        node = Node("rel", (("=",), said.name, node))
    if node.op in ("cup", "cap", "setminus", *_LISTS):
        return _joined_sets(node)
    if node.op == "tuple" and len(node.args) == 3:
        return _interval(node)
    if node.op == "rel" and node.args[0][-1] == "in" and len(node.args) == 3:
        inner = _reals(node.args[2])
        return inner and inner._replace(names=node.args[1].names)
    if node.op == "rel":
        return _solutions(node)
    if node == REALS:
        return Reals(lambda x: True)
    only = None if node.names else value_of(node)
    return None if only is None else Reals(lambda x: close(x, only), (only,))


def _joined_sets(node: Node) -> Reals | None:
    is_list = node.op in _LISTS
    if is_list and all(part.node.op == "tuple" for part in node.args) and not any(map(_is_interval, node.args)):
        return None  # points of the plane
    several = [found for part in node.args if (found := _reals(part)) is not None]
    if len(several) != len(node.args) or not several:
        return None
    ends = tuple(end for one in several for end in one.ends)
    names = frozenset[str]().union(*(one.names for one in several))
    if node.op == "setminus":
        return Reals(lambda x: several[0].has(x) and not several[1].has(x), ends, names)
    overlaps = is_list and names and any(all(one.has(x) for one in several) for x in _probes(several))
    test: Callable[[Iterable[bool]], bool] = all if node.op == "cap" or overlaps else any
    return Reals(lambda x: test(one.has(x) for one in several), ends, names)


def _interval(node: Node) -> Reals | None:
    brackets, *sides = node.args
    low, high = (_end(side.node) for side in sides)
    if low is None or high is None:
        return None
    has_low, has_high = brackets[0] == "[", brackets[1] == "]"
    return Reals(lambda x: (x >= low if has_low else x > low) and (x <= high if has_high else x < high), (low, high))


def _solutions(node: Node) -> Reals | None:
    signs, *sides = node.args
    if len(node.names) != 1 or any(sign not in _COMPARE for sign in signs):
        return None

    def has(x: Any) -> bool:
        values = [_end(side, x) for side in sides]
        if None in values:
            return False
        return all(_COMPARE[sign](*pair) for sign, pair in zip(signs, pairwise(values), strict=True))

    ends = (_end(side) for side in sides if not side.names)
    return Reals(has, tuple(end for end in ends if end is not None), node.names)


def _end(node: Node, x: Any = None) -> Any:
    if node in (OO, MINUS_OO):
        return mpmath.inf if node == OO else -mpmath.inf
    return value_of(node, x)


def _probes(several: Sequence[Reals]) -> list[Any]:
    ends = sorted({end for one in several for end in one.ends if mpmath.isfinite(end)})
    beside = [end + shift for end in ends for shift in (-1, mpmath.mpf("-1e-9"), 0, mpmath.mpf("1e-9"), 1)]
    between = [(low + high) / 2 for low, high in pairwise(ends)]
    far = [mpmath.mpf(sign) * mpmath.mpf(10) ** 6 for sign in (1, -1)]
    return [*beside, *between, *(mpmath.mpf(n) / 7 for n in range(-200, 200, 9)), *far]
