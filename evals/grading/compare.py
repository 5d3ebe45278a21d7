"""Equality of two parsed answers: True, False, or None where neither text nor exact numbers decide.

An oracle (the symbolic stage) may decide those; the structure around expressions is compared here in either case.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from evals.grading.identifiers import variables
from evals.grading.normal_form import Group, Item, choice_readings, identity_reading, parse_answer, unit_reading
from evals.grading.numbers import Number, same_number
from evals.grading.three_valued import all_of, same_unordered
from evals.grading.typography import RELATION

Policy = Literal["strict", "simko"]
SIMKO_TOLERANCE = 1e-4
# Matching two unordered lists takes their product in comparisons.
MAX_ITEMS = 100
# A plain variable; what stands before the equals sign may also be a function or an expression.
_SIMPLE = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?")
_RELATED = re.compile(rf"=|\\mid|:|{RELATION.pattern}")
_DECORATION = re.compile(r"['|]+")
_RATIO = re.compile(r"\d+(?:\.\d+)?(?::\d+(?:\.\d+)?)+", re.ASCII)


# Decides what text and exact numbers leave open.
Oracle = Callable[[Item, Item], bool]


class Equality(NamedTuple):
    """Whether two answers are equal (None: neither proved nor refuted), and the stage that found it."""

    is_equal: bool | None
    stage: Literal["string", "exact", "undecided"]


class _Rule(NamedTuple):
    policy: Policy
    relative_tolerance: float
    oracle: Oracle | None


def compare(
    extracted: str,
    reference: str,
    policy: Policy = "strict",
    relative_tolerance: float = 0.0,
    *,
    oracle: Oracle | None = None,
) -> Equality:
    """Whether an extracted answer equals the raw reference answer, under any pair of their readings."""
    if extracted.strip() == reference.strip():
        return Equality(True, "string")
    rule = _Rule(policy, relative_tolerance, oracle)
    predictions, golds = _parsed(extracted), _parsed(reference)
    choices, gold_choices = _choices(extracted), _choices(reference)
    if bool(choices) != bool(gold_choices):  # (C) 12 is C and 12, but (C) 12 is not (C) 13
        predictions, golds = predictions + choices, golds + gold_choices
    elif any(item.unit for item in golds + predictions):
        predictions, golds = _with_units(extracted, predictions, golds), _with_units(reference, golds, predictions)
    identity = identity_reading(extracted)
    if identity is not None:
        predictions += (identity,)
    found = [_same_item(prediction, gold, rule) for prediction in predictions for gold in golds]
    if True in found:
        is_text = any(item.text == gold.text for item in predictions for gold in golds)
        return Equality(True, "string" if is_text else "exact")
    if None in found:
        return Equality(None, "undecided")
    return Equality(False, "exact")


@lru_cache(maxsize=20_000)
def _parsed(text: str) -> tuple[Item, ...]:
    return tuple(parse_answer(text))


@lru_cache(maxsize=20_000)
def _choices(text: str) -> tuple[Item, ...]:
    return tuple(choice_readings(text))


def _with_units(text: str, items: tuple[Item, ...], others: tuple[Item, ...]) -> tuple[Item, ...]:
    """``items`` and the reading of ``text`` in which its last letters are the unit that the other side states."""
    if any(item.unit for item in items):
        return items
    units = dict.fromkeys(other.unit for other in others if other.unit)
    readings = (unit_reading(text, unit) for unit in units)
    return items + tuple(reading for reading in readings if reading is not None)


def _same_item(item: Item, gold: Item, rule: _Rule) -> bool | None:
    if item.links:  # x = 2+3 = 5 says 5 if each of its values does
        is_equal = _same_item(replace(item, links=()), gold, rule)
        unnamed = replace(gold, name="", equation="", unit="")
        return (
            is_equal if is_equal is False else all_of([is_equal, *(_same_item(v, unnamed, rule) for v in item.links)])
        )
    if item.unit and gold.unit and item.unit != gold.unit:
        return None
    if _measures_otherwise(item, gold) or _measures_otherwise(gold, item):
        return False
    if item.is_degrees != gold.is_degrees:
        item, gold = _in_radians(item, gold), _in_radians(gold, item)
        if "rad" in (item.unit, gold.unit):
            return None if rule.oracle is None else rule.oracle(item, gold)
    if _names_conflict(item.name, gold.name):
        return (item.name, item.text) == (gold.text, gold.name)  # x=y is y=x
    if item.is_prose or gold.is_prose:
        return item.text.casefold() == gold.text.casefold()
    if _RATIO.fullmatch(item.text) and not _RATIO.fullmatch(gold.text):
        return False  # 3:4 is a ratio, a time or odds; only a reference that is one says which
    value, other = item.value, gold.value
    if (_is_infinite(value) and isinstance(other, Number)) or (_is_infinite(other) and isinstance(value, Number)):
        return False
    if isinstance(value, Number) and isinstance(other, Number):
        return _same_numbers(item, value, gold, other, rule)
    if item.is_percent and not gold.is_percent:
        return False
    is_equal = None
    if isinstance(value, Group) and isinstance(other, Group):
        is_equal = _same_groups(value, other, rule)
    elif isinstance(value, str) and isinstance(other, str) and value == other:
        return True
    elif _names_more(item, gold):
        return False
    if is_equal is None and rule.oracle is not None and _may_ask(value, other):
        return rule.oracle(item, gold)
    return is_equal


def _measures_otherwise(item: Item, other: Item) -> bool:
    """Whether ``other`` states a unit where ``item`` is in degrees or per cent: 60 gradians are not 60 degrees."""
    if item.is_degrees and not other.is_degrees:
        return other.unit not in ("", "rad", item.unit) or other.is_percent
    return item.is_percent and not other.is_percent and other.unit not in ("", item.unit)


def _is_infinite(value: Number | str | Group) -> bool:
    return isinstance(value, str) and value.lstrip("+-") == "\\infty"


def _in_radians(item: Item, other: Item) -> Item:
    r"""``item`` in radians if it says `\\pi` where the other one is in degrees: `\\pi` is not `\\pi^\\circ`."""
    return replace(item, unit="rad") if "\\pi" in item.text and other.is_degrees and not item.is_degrees else item


def _names_conflict(name: str, gold_name: str) -> bool:
    """Whether one name excludes the other: x = 2 does not say what y is, nor |x| = 2 and x' = 2 what x is."""
    if name == gold_name or not name or not gold_name:
        return False
    is_simple = bool(_SIMPLE.fullmatch(name) and _SIMPLE.fullmatch(gold_name))
    return is_simple or _DECORATION.sub("", name) == _DECORATION.sub("", gold_name)


def _names_more(item: Item, gold: Item) -> bool:
    """Whether an expression depends on what the reference does not have; zero times anything would be zero."""
    texts = (item.text, gold.text)
    if any(isinstance(side.value, Group) for side in (item, gold)) or any(map(_RELATED.search, texts)):
        return False
    return not variables(item.text) <= variables(f"{gold.name} {gold.text} {gold.equation}")


def _may_ask(value: Number | str | Group, other: Number | str | Group) -> bool:
    """Whether computer algebra may look at a pair as a whole: not where it would forget names, order or number."""
    if isinstance(value, Group) and isinstance(other, Group):
        # Of two lists it was asked for every item; [1,2] and [2,3] together may well be [1,3].
        return value.kind != other.kind or value.kind == "union"
    for group, single in ((value, other), (other, value)):
        if isinstance(group, Group) and isinstance(single, Number):
            return len(group.items) < 2
    return True


def _same_numbers(item: Item, value: Number, gold: Item, other: Number, rule: _Rule) -> bool:
    if item.is_percent and not gold.is_percent and _is_share(other.value):
        value = Number(value.value / 100)
    if same_number(value, other):
        return True
    if gold.is_percent and not item.is_percent and other.value == 100 * value.value:
        return True
    if rule.policy == "simko":
        return any(
            _is_close(value.value, other.value * factor, SIMKO_TOLERANCE)
            for factor in (Fraction(1), Fraction(100), Fraction(1, 100))
        )
    is_integer = other.value.denominator == 1
    return (
        rule.relative_tolerance > 0 and not is_integer and _is_close(value.value, other.value, rule.relative_tolerance)
    )


def _is_share(reference: Fraction) -> bool:
    """Whether a reference without a percent sign is a share, as 0.5 and 1.5, and not per cent, as 50 and 62.5."""
    return abs(reference) < 1 or (abs(reference) < 2 and reference.denominator > 1)


def _is_close(value: Fraction, other: Fraction, relative_tolerance: float) -> bool:
    return abs(value - other) <= Fraction(relative_tolerance) * abs(other)


def _same_groups(group: Group, gold: Group, rule: _Rule) -> bool | None:
    if group.kind != gold.kind:
        return _same_kinds_of_group(group, gold, rule)
    if rule.policy == "simko" and group.kind in ("list", "tuple"):
        return all_of([_same_item(*pair, rule) for pair in zip(group.items, gold.items, strict=False)])
    is_ordered = group.kind in ("tuple", "matrix")
    if len(group.items) != len(gold.items):
        # Numbers are fully known; x in a list of two could still be three values for the symbolic stage.
        return False if _is_numeric(group) and _is_numeric(gold) else None
    if is_ordered:
        is_equal = all_of([_same_item(*pair, rule) for pair in zip(group.items, gold.items, strict=True)])
        return is_equal if group.brackets == gold.brackets else False
    if len(group.items) > MAX_ITEMS:
        return None
    return same_unordered(group.items, gold.items, lambda one, other: _same_if_named_alike(one, other, rule))


def _same_kinds_of_group(group: Group, gold: Group, rule: _Rule) -> bool | None:
    """Equality of groups of different kinds: a vector is a tuple or a column, and a list may name its values."""
    if {group.kind, gold.kind} == {"matrix", "tuple"}:
        matrix, other = (group, gold) if group.kind == "matrix" else (gold, group)
        is_column = set(matrix.brackets) <= {"1", ","}
        if not is_column or other.brackets != "()" or len(matrix.items) != len(other.items):
            return None
        return all_of([_same_item(*pair, rule) for pair in zip(group.items, gold.items, strict=True)])
    if {group.kind, gold.kind} != {"list", "tuple"}:
        return None
    named, other = (group, gold) if group.kind == "list" else (gold, group)
    names = [item.name for item in named.items]
    if all(names) and other.brackets == "()" and not any(item.name for item in other.items):
        # `y=4, x=3` says which is which.
        ordered = Group("tuple", tuple(sorted(named.items, key=lambda item: item.name)), "()")
        return _same_groups(ordered, other, rule) if named is group else _same_groups(other, ordered, rule)
    is_relation = any(RELATION.search(item.text) for item in named.items)
    # `3, 4` are two answers and (3,4) is one.
    return None if is_relation or any(names) or any(item.name for item in other.items) else False


def _same_if_named_alike(item: Item, gold: Item, rule: _Rule) -> bool | None:
    return None if _names_differ(item, gold) else _same_item(item, gold, rule)


def _names_differ(item: Item, gold: Item) -> bool:
    """`x=1, y=2` is not `x=2, y=1`."""
    return bool(item.name and gold.name and item.name != gold.name)


def _is_numeric(group: Group) -> bool:
    return all(
        _is_numeric(item.value) if isinstance(item.value, Group) else isinstance(item.value, Number)
        for item in group.items
    )
