"""Writes values as YAML that `quatro.config.yaml_reader` and readers of YAML 1.1 read back unchanged."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from quatro.config.yaml_reader import plain_scalar

# Safe without quotes everywhere: no indicator, and no word that YAML 1.1 or 1.2 takes for something else.
_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
_WORDS_OF_YAML_1_1 = frozenset({"yes", "no", "on", "off"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar_text(value: Any) -> str:
    """One value on one line; lists and mappings are in flow style.

    Raises:
        TypeError: YAML's core has no such type.
    """
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
        else:
            yield f"{above}{key}", f"{head} {scalar_text(value)}"


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
