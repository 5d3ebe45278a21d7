"""Strict YAML: one mapping, the scalars of YAML 1.2 core, and the line of every key.

PyYAML reads YAML 1.1, where `1e-6` is text, `010` is eight, `1:30` is ninety and `no` is false; it keeps the last of
two equal keys, and its aliases let a short file grow to gigabytes. Here only its parser is used: the events become
values by the rules below, and whatever a configuration never needs is refused with file and line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from evals.errors import UsageError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
# The largest shipped file has under 100; the bound keeps the slowest legal file below a second.
MAX_VALUES = 5_000

KeyPath = tuple[str | int, ...]

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NON_FINITE = {
    **{sign + name: float(sign + "inf") for sign in ("", "+", "-") for name in (".inf", ".Inf", ".INF")},
    **{name: float("nan") for name in (".nan", ".NaN", ".NAN")},
}
_MAX_DIGITS = 100
_MAX_MESSAGE = 300


@dataclass(frozen=True)
class Document:
    """The mapping in a file and, for every key path (``("rollout", "top_p")``), the line where its key stands."""

    name: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]


@dataclass
class _Container:
    """A mapping or list whose end has not come yet."""

    value: dict[str, Any] | list[Any]
    path: KeyPath
    line: int
    key: str | None = None
    key_line: int = 0


@dataclass
class _Builder:
    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    stack: list[_Container] = field(default_factory=list)
    root: Any = None
    has_root: bool = False
    num_values: int = 0

    def refuse(self, line: int, problem: str) -> UsageError:
        shown = problem if len(problem) <= _MAX_MESSAGE else f"{problem[:_MAX_MESSAGE]}..."
        return UsageError(f"{self.name}:{line}: {shown}")

    def add(self, event: yaml.Event) -> None:
        assert event.start_mark is not None
        line = event.start_mark.line + 1
        match event:
            case yaml.AliasEvent():
                raise self.refuse(line, f"alias *{event.anchor}: write the value out, aliases are not allowed")
            case yaml.DocumentStartEvent():
                if event.version or event.tags:
                    raise self.refuse(line, "%YAML and %TAG directives are not allowed: delete them")
                if self.has_root:
                    raise self.refuse(line, "a second document begins here: a file holds one mapping")
            case yaml.NodeEvent():
                self.num_values += 1
                if self.num_values > MAX_VALUES:
                    raise self.refuse(line, f"more than {MAX_VALUES} values: this is not a configuration")
                self._refuse_decorations(event, line)
                if isinstance(event, yaml.ScalarEvent):
                    self._scalar(event, line)
                else:
                    self._open(event, line)
            case yaml.CollectionEndEvent():
                self.stack.pop()

    def _refuse_decorations(self, event: yaml.NodeEvent, line: int) -> None:
        if event.anchor is not None:
            raise self.refuse(line, f"anchor &{event.anchor}: anchors and aliases are not allowed, write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self.refuse(line, f"tag {tag}: tags are not allowed, write the plain value")

    def _open(self, event: yaml.NodeEvent, line: int) -> None:
        if self._expects_key():
            raise self.refuse(line, "a list or mapping used as a key: keys are plain text")
        if len(self.stack) == MAX_DEPTH:
            raise self.refuse(line, f"nested more than {MAX_DEPTH} levels deep")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._place(value, line)
        self.stack.append(_Container(value, path, line))

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text = event.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.refuse(line, f"{text!a} holds half of a surrogate pair, which is not a character")
        plain = event.implicit[0]
        if self._expects_key():
            self._start_key(text, plain, line)
            return
        try:
            value = plain_scalar(text) if plain else text
        except ValueError as error:
            raise self.refuse(line, str(error)) from None
        self._place(value, line)

    def _expects_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def _start_key(self, text: str, plain: bool, line: int) -> None:
        parent = self.stack[-1]
        assert isinstance(parent.value, dict)
        if plain and text == "<<":
            raise self.refuse(line, "merge key <<: write the keys out, merging is not allowed")
        if plain and not isinstance(plain_scalar(text), str):
            raise self.refuse(line, f"key {text or '(empty)'}: keys are text")
        if text in parent.value:
            first = self.lines[(*parent.path, text)]
            raise self.refuse(line, f"key {text!r} is given twice, first on line {first}: delete one")
        parent.key, parent.key_line = text, line

    def _place(self, value: Any, line: int) -> KeyPath:
        if not self.stack:
            self.root, self.has_root = value, True
            self.lines[()] = line
            return ()
        parent = self.stack[-1]
        if isinstance(parent.value, list):
            path: KeyPath = (*parent.path, len(parent.value))
            parent.value.append(value)
        else:
            assert parent.key is not None
            path, line = (*parent.path, parent.key), parent.key_line
            parent.value[parent.key] = value
            parent.key = None
        self.lines[path] = line
        return path


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar by YAML 1.2 core; `010` is ten, `1:30`, `yes` and `1_000` are text.

    Raises:
        ValueError: an integer of more digits than any setting has.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _DECIMAL.fullmatch(text) or _PREFIXED.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise ValueError(f"a number of {len(text)} digits: expected at most {_MAX_DIGITS}")
        return int(text, base=10 if _DECIMAL.fullmatch(text) else 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _NON_FINITE.get(text, text)


def parse_yaml(text: str, name: str) -> Document:
    """The mapping in ``text``; ``name`` stands for the file in messages.

    Raises:
        UsageError: ``name:line: ...`` for anything that is not strict YAML, or no mapping.
    """
    builder = _parsed(text, name)
    if not isinstance(builder.root, dict):
        found = "nothing" if builder.root is None else f"a {type(builder.root).__name__}"
        line = builder.lines.get((), 1)
        raise builder.refuse(line, f"found {found}, expected a mapping of `key: value` lines")
    return Document(name, builder.root, builder.lines)


def parse_value(text: str, name: str) -> Any:
    """Any value, such as `1e-5` or `[0.9, 0.999]`; nothing at all is None.

    Raises:
        UsageError: as `parse_yaml`.
    """
    return _parsed(text, name).root


def _parsed(text: str, name: str) -> _Builder:
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.add(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{name}:{mark.line + 1 if mark else 1}: not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{name}:{line}: character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except UsageError:
        raise
    except (ValueError, OverflowError) as error:
        # PyYAML passes an escape such as "\U00110000" straight to chr().
        raise UsageError(f"{name}: not YAML: {error}") from None
    return builder


def load_yaml(path: Path, *, name: str | None = None) -> Document:
    """The mapping in a file of at most 256 kB of UTF-8.

    Raises:
        UsageError: the file is missing, too large, not UTF-8 or not strict YAML; names file and line.
    """
    name = name or str(path)
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
