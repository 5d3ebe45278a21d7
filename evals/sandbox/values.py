"""Values as tagged JSON: what two processes that do not trust each other may tell one another.

Only values of Python's own types cross, rebuilt on the other side; a subclass arrives as the type that it extends, and
an object of any other class as a number that stands for it. So no method that a program wrote ever runs elsewhere.
"""

import base64
import datetime
import json
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

JSON = Any
_SMALL = 1 << 63
_PLAIN = frozenset({str, bool, float, type(None)})
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, object)
}
_NAMED = {"Ellipsis": ..., "NotImplemented": NotImplemented}
_COLLECTIONS = (tuple, set, frozenset, deque)
_MOMENTS = (datetime.datetime, datetime.date, datetime.time)


class CannotCrossError(Exception):
    """The value is of a class that has no form in tagged JSON."""


class MalformedError(Exception):
    """The other side sent what is no tagged JSON."""


def encode(value: Any, refer: Callable[[object], JSON] | None = None) -> JSON:
    """The value in a form that `json` writes. ``refer`` gives the form of objects of other classes.

    Raises CannotCrossError if there is such an object and no ``refer``.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else {"int": hex(value)}
    if kind is list:
        return _encode_all(value, refer)
    writer = _WRITERS.get(kind)
    if writer:
        tag, write = writer
        return {tag: write(value, refer)}
    return _encode_other(value, kind, refer)


def _encode_all(values: Iterable[object], refer: Callable[[object], JSON] | None) -> list[JSON]:
    found = list(values)
    if set(map(type, found)) <= _PLAIN:
        return found
    return [encode(value, refer) for value in found]


def _encode_other(value: Any, kind: type, refer: Callable[[object], JSON] | None) -> JSON:
    """Subclasses as their base, read by the base's own methods; numbers of numpy as Python's; the rest by ``refer``."""
    if isinstance(value, type) and _TYPES.get(value.__name__) is value:
        return {"type": value.__name__}
    for name, constant in _NAMED.items():
        if value is constant:
            return {"named": name}
    for base, reduce in _REDUCED.items():
        if issubclass(kind, base):
            return encode(reduce(base, value), refer)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, getattr(numpy, "generic", ())) and kind.__module__ == "numpy":
        return encode(value.item(), refer)
    if refer is None:
        raise CannotCrossError(f"a value of class {kind.__qualname__} cannot be sent to the program")
    return refer(value)


_WRITERS: dict[type, tuple[str, Callable[[Any, Callable[[object], JSON] | None], JSON]]] = {
    **{kind: (kind.__name__, _encode_all) for kind in _COLLECTIONS},
    dict: ("dict", lambda value, refer: [_encode_all(half, refer) for half in (dict.keys(value), dict.values(value))]),
    **{kind: (kind.__name__, lambda value, refer: base64.b64encode(value).decode()) for kind in (bytes, bytearray)},
    complex: ("complex", lambda value, refer: [value.real, value.imag]),
    range: ("range", lambda value, refer: [encode(value.start), encode(value.stop), encode(value.step)]),
    Fraction: ("fraction", lambda value, refer: [encode(value.numerator), encode(value.denominator)]),
    Decimal: ("decimal", lambda value, refer: str(value)),
    **{kind: (kind.__name__, lambda value, refer: value.isoformat()) for kind in _MOMENTS},
    datetime.timedelta: ("timedelta", lambda value, refer: [value.days, value.seconds, value.microseconds]),
}
_REDUCED: dict[type, Callable[[Any, Any], object]] = {
    **dict.fromkeys((int, float, complex), lambda base, value: base.__mul__(value, 1)),
    **dict.fromkeys((str, bytes, bytearray), lambda base, value: base.__getitem__(value, slice(None))),
    **dict.fromkeys((list, *_COLLECTIONS), lambda base, value: base(base.__iter__(value))),
    dict: lambda base, value: dict(dict.items(value)),
}


def decode(form: JSON, resolve: Callable[[JSON], object] | None = None) -> Any:
    """The value of a form; ``resolve`` gives what stands for an object of another class.

    Raises MalformedError if the form is not one that `encode` makes.
    """
    kind = type(form)
    if kind in _PLAIN or kind is int:
        return form
    if kind is list:
        return _decode_all(form, resolve)
    if kind is not dict or len(form) != 1:
        raise MalformedError("a form is plain, a list, or an object of one tag")
    [(tag, content)] = form.items()
    try:
        if tag == "object" and resolve:
            return resolve(content)
        if tag in _BUILDERS:
            return _BUILDERS[tag](_decode_all(content, resolve))
        if tag == "dict":
            keys, values = content
            return dict(zip(_decode_all(keys, resolve), _decode_all(values, resolve), strict=True))
        return _READERS[tag](content)
    except (MalformedError, RecursionError, MemoryError):
        raise
    except Exception as error:
        raise MalformedError(f"the content of a {str(tag)[:20]!r} is wrong: {type(error).__name__}") from error


def _decode_all(forms: JSON, resolve: Callable[[JSON], object] | None) -> list[Any]:
    if type(forms) is not list:
        raise MalformedError("a list was expected")
    if {list, dict}.isdisjoint(map(type, forms)):
        return forms
    return [decode(form, resolve) for form in forms]


_BUILDERS: dict[str, Callable[[list[Any]], object]] = {
    **{kind.__name__: kind for kind in _COLLECTIONS},
    "complex": lambda parts: complex(*map(float, parts)),
    "range": lambda parts: range(*parts),
    # Of a text such as "1e99999999" it would make a number that fills the memory.
    "fraction": lambda parts: Fraction(*map(operator.index, parts)),
    "timedelta": lambda parts: datetime.timedelta(*parts),
}
_READERS: dict[str, Callable[[Any], object]] = {
    "int": lambda text: int(text, 16),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "decimal": Decimal,
    **{kind.__name__: kind.fromisoformat for kind in _MOMENTS},
    "type": lambda name: _TYPES[name],
    "named": lambda name: _NAMED[name],
}


def write_json(form: JSON) -> bytes:
    """JSON in ASCII. Floats come back bit by bit; nan and the infinities are written as Python's json does."""
    return json.dumps(form, separators=(",", ":"), check_circular=False).encode("ascii")


def read_json(data: bytes) -> JSON:
    """What `write_json` wrote; raises MalformedError for what is no JSON, or is nested too deeply."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"no JSON: {type(error).__name__}") from error
