"""Values cross as tagged JSON, bit by bit, and nothing but values does."""

import datetime
import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from evals.sandbox import forks
from evals.sandbox.values import CannotCrossError, MalformedError, decode, encode, read_json, write_json


def crossed(value):
    return decode(read_json(write_json(encode(value))))


PLAIN = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text() | some.binary()
KEYS = some.recursive(PLAIN | some.complex_numbers(allow_nan=False), lambda keys: some.tuples(keys, keys), max_leaves=3)
VALUES = some.recursive(
    KEYS
    | some.fractions()
    | some.decimals(allow_nan=False)
    | some.frozensets(KEYS)
    | some.datetimes().map(lambda one: one.replace(fold=0))  # equal values may differ in it
    | some.timedeltas(),
    lambda values: some.lists(values) | some.tuples(values, values) | some.dictionaries(KEYS, values),
    max_leaves=10,
)


@given(VALUES)
def test_values_come_back_as_they_were(value):
    found = crossed(value)
    assert found == value
    assert repr(found) == repr(value) or isinstance(value, (frozenset, tuple, list, dict))


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.inf,
        -math.inf,
        5e-324,
        1 << 5000,
        -(1 << 63),
        "\ud800\0\u2028",
        {1, 2},
        range(2, 9, 3),
        deque([1]),
        ...,
    ],
    ids=["zero", "inf", "minus", "tiny", "huge", "long", "text", "set", "range", "deque", "dots"],
)
def test_odd_values_come_back_with_their_types(value):
    found = crossed([value])[0]
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_not_a_number_comes_back():
    assert math.isnan(crossed(math.nan))
    assert [type(one) for one in crossed([True, 1, 1.0, bytearray(b"x"), int])] == [bool, int, float, bytearray, type]


class Sly(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__

    def __add__(self, other):
        return "sly"

    __index__ = __int__ = __add__


Color = enum.IntEnum("Color", ["RED"])
Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Sly(7), 7),
        (Color.RED, 1),
        (Pair(1, Sly(2)), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, {1: [Sly(2)]}), {1: [2]}),
        (OrderedDict([(2, 1), (1, 2)]), {2: 1, 1: 2}),
        (type("Text", (str,), {"__str__": lambda self: "other"})("text"), "text"),
        (type("Real", (float,), {})(-0.0), -0.0),
    ],
    ids=["int", "enum", "tuple", "counter", "defaultdict", "ordered", "str", "float"],
)
def test_subclasses_arrive_as_what_they_extend(value, expected):
    found = crossed(value)
    assert found == expected
    assert type(found) is type(expected)
    assert repr(found) == repr(expected)


OTHER = {"object": object(), "function": lambda: 1, "class": Sly, "iterator": iter([]), "module": math}


@pytest.mark.parametrize("value", OTHER.values(), ids=OTHER)
def test_other_objects_cross_as_a_reference_or_not_at_all(value):
    with pytest.raises(CannotCrossError, match="cannot be sent"):
        encode([value])
    assert encode([value], lambda one: {"object": [0, "x"]}) == [{"object": [0, "x"]}]


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"int": "0x1", "set": []},
        {"no such tag": 1},
        {"int": 3},
        {"int": "zz"},
        {"set": [[]]},
        {"dict": [[1], []]},
        {"dict": [[{"dict": [[], []]}], [1]]},
        {"range": [1, 2, 0]},
        {"fraction": [1, 0]},
        {"fraction": ["1e99999999"]},
        {"fraction": ["1", "3"]},
        {"type": "eval"},
        {"object": 1},
        {"tuple": "text"},
        [{"bytes": "?"}],
    ],
    ids=str,
)
def test_malformed_forms_are_refused(form):
    with pytest.raises(MalformedError):
        decode(form)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "open", "bytes", "deep"])
def test_malformed_json_is_refused(data):
    with pytest.raises(MalformedError):
        read_json(data)


def test_dates_numbers_and_times():
    values = [
        Decimal("1.10"),
        Fraction(1, 3),
        datetime.date(2024, 2, 29),
        datetime.time(1, 2),
        datetime.timedelta(1, 2, 3),
    ]
    assert list(map(repr, crossed(values))) == list(map(repr, values))


@pytest.mark.parametrize(("system", "maxrss"), [("linux", 3 << 10), ("darwin", 3 << 20)])
def test_the_peak_of_a_program_is_in_megabytes_on_each_system(monkeypatch, system, maxrss):
    """The kernel gives kilobytes on Linux and bytes on macOS."""
    monkeypatch.setattr(forks.sys, "platform", system)
    assert forks.megabytes(maxrss) == 3
