"""Strict YAML: one mapping, the scalars of YAML 1.2 core, and the line of every key.

PyYAML reads YAML 1.1, where `1e-6` is text, `010` is eight, `1:30` is ninety and `no` is false. It keeps the last of
two equal keys, and its aliases let a short file grow to gigabytes. Only its nodes are used here: they become values by
the rules below, and what a configuration never needs is refused with file and line.
"""

import copy
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evals.errors import UsageError

MAX_BYTES = 256 * 1024

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


@dataclass(frozen=True)
class Document:
    """The mapping in a file, and the line of every key by its path, such as ``("rollout", "top_p")``."""

    name: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]


class _Reader(yaml.SafeLoader):
    """PyYAML's composer, which refuses nodes that a configuration never needs, and the values of the other nodes."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.file = name
        self.key_lines: dict[KeyPath, int] = {}

    def read(self) -> Any:
        """The value of the only document; None if there is none."""
        self.get_event()  # the stream begins
        if self.check_event(yaml.StreamEndEvent):
            return None
        start = self.peek_event()
        if start.version or start.tags:
            raise self.refuse(start, "%YAML and %TAG directives are not allowed: delete them")
        root = self.compose_document()
        assert root is not None
        if not self.check_event(yaml.StreamEndEvent):
            raise self.refuse(self.peek_event(), "a second document begins here: a file holds one mapping")
        return self.value_of(root, (), root)

    def refuse(self, at: yaml.Event | yaml.Node, problem: str) -> UsageError:
        return _refusal(self.file, _line(at), problem)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise self.refuse(event, f"alias *{event.anchor}: write the value out, aliases are not allowed")
        if event.anchor is not None:
            problem = f"anchor &{event.anchor}: anchors and aliases are not allowed, write the value out"
            raise self.refuse(event, problem)
        if event.tag is not None:
            raise self.refuse(event, f"tag {event.tag}: tags are not allowed, write the plain value")
        return super().compose_node(parent, index)

    def value_of(self, node: yaml.Node, path: KeyPath, key: yaml.Node) -> Any:
        """The value of ``node``; the line of ``key`` becomes that of ``path``."""
        self.key_lines[path] = _line(key)
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key_node, value_node in node.value:
                name = self._key(key_node)
                if name in found:
                    first = self.key_lines[(*path, name)]
                    raise self.refuse(key_node, f"key {name!r} is given twice, first on line {first}: delete one")
                found[name] = self.value_of(value_node, (*path, name), key_node)
            return found
        if isinstance(node, yaml.SequenceNode):
            return [self.value_of(item, (*path, index), item) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.refuse(node, "a list or mapping used as a key: keys are plain text")
        if node.style is None and node.value == "<<":
            raise self.refuse(node, "merge key <<: write the keys out, merging is not allowed")
        if not isinstance(self._scalar(node), str):
            raise self.refuse(node, f"key {node.value or '(empty)'}: keys are text")
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise self.refuse(node, f"{node.value!a} holds half of a surrogate pair, which is not a character")
        return plain_scalar(node.value) if node.style is None else node.value


def _line(at: yaml.Event | yaml.Node) -> int:
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
    """The mapping in ``text``; ``name`` stands for the file in messages.

    Raises:
        UsageError: ``name:line: ...`` for anything that is not strict YAML, or no mapping.
    """
    data, lines = _parsed(text, name)
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise _refusal(name, lines.get((), 1), f"found {found}, expected a mapping of `key: value` lines")
    return Document(name, copy.deepcopy(data), lines)


def parse_value(text: str, name: str) -> Any:
    """Any value, such as `1e-5` or `[0.9, 0.999]`; nothing at all is None.

    Raises:
        UsageError: as `parse_yaml`.
    """
    return copy.deepcopy(_parsed(text, name)[0])


# A sweep reads the same files and settings once for each of its points.
@functools.lru_cache(maxsize=256)
def _parsed(text: str, name: str) -> tuple[Any, dict[KeyPath, int]]:
    """The value and its lines, which all callers share: they copy what may be changed."""
    if hidden := _HIDDEN_BREAK.search(text):
        code = f"{ord(hidden.group()):04X}"
        column = hidden.start() - text.rfind("\n", 0, hidden.start())
        problem = (
            f'U+{code} in column {column} would begin a line that editors do not show: delete it, or write "\\u{code}"'
        )
        raise _refusal(name, text.count("\n", 0, hidden.start()) + 1, problem)
    try:
        reader = _Reader(text, name)
        return reader.read(), reader.key_lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{name}:{mark.line + 1 if mark else 1}: not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{name}:{line}: character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except RecursionError:
        raise UsageError(f"{name}: lists or blocks are nested too deeply: this is not a configuration") from None
    except UsageError:
        raise
    except (ValueError, OverflowError) as error:
        # PyYAML passes an escape such as "\U00110000" straight to chr().
        raise UsageError(f"{name}: not YAML: {error}") from None


def load_yaml(path: Path) -> Document:
    """The mapping in a file of at most 256 kB of UTF-8.

    Raises:
        UsageError: the file is missing, too large, not UTF-8 or not strict YAML; names file and line.
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
