"""Strict YAML: one mapping, the scalars of YAML 1.2 core, and the line of every key.

PyYAML reads YAML 1.1, where `1e-6` is text, `010` is eight, `1:30` is ninety and `no` is false. It keeps the last of
two equal keys, and its aliases let a short file grow to gigabytes. Only its events are used here: they become values by
the rules below, and what a configuration never needs is refused with file and line. What is written here is read back
unchanged, by these rules and by readers of YAML 1.1.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evals.errors import UsageError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 50
LONGEST_LIST = 80  # characters on one line

KeyPath = tuple[str | int, ...]

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Longer ones are read as a float, or as text: Python itself neither reads nor prints thousands of digits.
_DECIMAL = re.compile(r"[-+]?[0-9]{1,100}")
_PREFIXED = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NON_FINITE = {
    **{sign + name: float(sign + "inf") for sign in ("", "+", "-") for name in (".inf", ".Inf", ".INF")},
    **{name: float("nan") for name in (".nan", ".NaN", ".NAN")},
}
# YAML 1.1 ends a line, and with it a comment, at these; to YAML 1.2 and to editors they are characters of the line.
_HIDDEN_BREAK = re.compile("[\x85\u2028\u2029]")
# Safe without quotes everywhere: no indicator, and no word that YAML 1.1 or 1.2 takes for something else.
_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
_WORDS_OF_YAML_1_1 = frozenset({"yes", "no", "on", "off"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True)
class Document:
    """The mapping in a file, and the line of every key by its path, such as ``("rollout", "top_p")``."""

    name: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]


class _Reader:
    """The value of a text's only document, from PyYAML's events, and the ``lines`` of its keys and list entries."""

    def __init__(self, text: str, name: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)
        self._name = name

    def read(self) -> Any:
        """The value; None if there is no document."""
        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        root = next(self._events)
        self.lines[()] = _line(root)
        value = self._value(root, ())
        next(self._events)  # the document ends
        if not isinstance(more := next(self._events), yaml.StreamEndEvent):
            raise self._refuse(more, "a second document begins here: a file holds one mapping")
        return value

    def _value(self, event: Any, path: KeyPath) -> Any:
        """The value at ``path`` that begins with ``event``."""
        self._refuse_marked(event)
        if len(path) > MAX_DEPTH:
            raise self._refuse(event, f"lists or mappings inside one another {MAX_DEPTH} times: a setting needs few")
        if isinstance(event, yaml.ScalarEvent):
            text = self._text(event)
            return plain_scalar(text) if event.style is None else text
        if isinstance(event, yaml.SequenceStartEvent):
            entries: list[Any] = []
            while not isinstance(entry := next(self._events), yaml.SequenceEndEvent):
                at = (*path, len(entries))
                self.lines[at] = _line(entry)
                entries.append(self._value(entry, at))
            return entries
        found: dict[str, Any] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise self._refuse(key, "a list, mapping or alias used as a key: keys are plain text")
            self._refuse_marked(key)
            name = self._text(key)
            if key.style is None and not isinstance(plain_scalar(name), str):
                raise self._refuse(key, f"key {name or '(empty)'}: keys are text")
            inner = (*path, name)
            if name in found:
                raise self._refuse(key, f"key {name!r} is given twice, first on line {self.lines[inner]}: delete one")
            self.lines[inner] = _line(key)
            found[name] = self._value(next(self._events), inner)
        return found

    def _refuse_marked(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._refuse(event, f"anchor or alias {event.anchor}: they are not allowed, write the value out")
        if event.tag is not None:
            raise self._refuse(event, f"tag {event.tag}: tags are not allowed, write the plain value")

    def _text(self, event: yaml.ScalarEvent) -> str:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            raise self._refuse(event, f"{event.value!a} holds half of a surrogate pair, which is not a character")
        return str(event.value)

    def _refuse(self, at: yaml.Event, problem: str) -> UsageError:
        return _refusal(self._name, _line(at), problem)


def _line(at: yaml.Event) -> int:
    assert at.start_mark is not None
    return at.start_mark.line + 1


def _refusal(name: str, line: int, problem: str) -> UsageError:
    return UsageError(f"{name}:{line}: {problem:.300}")


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar by YAML 1.2 core; `010` is ten, `1:30`, `yes` and `1_000` are text."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _PREFIXED.fullmatch(text):
        return int(text, base=0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _NON_FINITE.get(text, text)


def parse_yaml(text: str, name: str) -> Document:
    """The mapping in ``text``; raises UsageError, ``name:line: ...``, for what is not strict YAML, or no mapping."""
    data, lines = parse_value(text, name)
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise _refusal(name, lines.get((), 1), f"found {found}, expected a mapping of `key: value` lines")
    return Document(name, data, lines)


def parse_value(text: str, name: str) -> tuple[Any, dict[KeyPath, int]]:
    """A value such as `1e-5` or `[0.9, 0.999]` (of nothing None) and its keys' lines; raises as `parse_yaml`."""
    if hidden := _HIDDEN_BREAK.search(text):
        before, code = text[: hidden.start()], f"{ord(hidden.group()):04X}"
        place = f"U+{code} in column {len(before) - before.rfind(chr(10))}"
        problem = f'{place} would begin a line that editors do not show: delete it, or write "\\u{code}"'
        raise _refusal(name, before.count("\n") + 1, problem)
    try:
        reader = _Reader(text, name)
        return reader.read(), reader.lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{name}:{mark.line + 1 if mark else 1}: not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{name}:{line}: character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except UsageError:
        raise
    except (ValueError, OverflowError) as error:  # PyYAML passes an escape such as "\U00110000" straight to chr()
        raise UsageError(f"{name}: not YAML: {error}") from None


def load_yaml(path: Path) -> Document:
    """The mapping in a file of at most 256 kB of UTF-8.

    Raises UsageError, with file and line, if it is missing, too large, not UTF-8 or not strict YAML.
    """
    name = str(path)
    if not path.is_file():
        raise UsageError(f"{name}: no such file")
    with path.open("rb") as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name}: larger than {MAX_BYTES // 1024} kB: this is not a configuration")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8") from None
    return parse_yaml(text, name)


def scalar_text(value: Any) -> str:
    """One value on one line, lists and mappings in flow style; TypeError for what YAML's core has no form of."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float_text(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(scalar_text(item) for item in value)}]"
        case Mapping():
            return f"{{{', '.join(f'{_text(key)}: {scalar_text(item)}' for key, item in value.items())}}}"
    raise TypeError(f"{type(value).__name__} has no YAML form: {value!r}")


def to_yaml(data: Mapping[str, Any], *, comments: Mapping[str, str] | None = None) -> str:
    """A block mapping with nested mappings indented by two; ``comments`` by dotted key end the lines."""
    rows = list(_rows(data))
    width = max((len(text) for key, text in rows if comments and key in comments), default=0)
    lines = []
    for key, text in rows:
        comment = " ".join((comments or {}).get(key, "").split())
        shown = "".join(character if character.isprintable() else "?" for character in comment)
        lines.append(f"{text:{width}}  # {shown}\n" if shown else f"{text}\n")
    return "".join(lines)


def _rows(data: Mapping[str, Any], above: str = "", indent: int = 0) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        head = f"{' ' * indent}{_text(key)}:"
        if isinstance(value, Mapping) and value:
            yield f"{above}{key}", head
            yield from _rows(value, f"{above}{key}.", indent + 2)
            continue
        text = scalar_text(value)
        is_long = isinstance(value, list) and len(text) > LONGEST_LIST
        yield f"{above}{key}", head if is_long else f"{head} {text}"
        yield from (("", f"{' ' * indent}  - {scalar_text(entry)}") for entry in (value if is_long else ()))


def _float_text(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    # YAML 1.1 takes an exponent for a number only after a decimal point.
    mantissa, exponent, power = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power}"


def _text(text: str) -> str:
    is_plain = _PLAIN_TEXT.fullmatch(text) and text.lower() not in _WORDS_OF_YAML_1_1
    if is_plain and isinstance(plain_scalar(text), str):
        return text
    return f'"{"".join(_quoted(character) for character in text)}"'


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
