"""JSON read strictly, a file or a line of it: every refusal is a DataError that starts with the file, and its line."""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from evals.errors import DataError

# Both bound what a hostile file can cost; honest rows are thousands of times smaller.
MAX_LINE_BYTES = 64 * 2**20
MAX_DEPTH = 64
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # how files in UTF-16 and UTF-32 begin
_TOO_DEEP = f"JSON nested more than {MAX_DEPTH} deep"
_MAX_DIGITS = 308  # of an integer that is a float, too

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def open_lines(file: Path) -> gzip.GzipFile | BufferedReader:
    """The bytes of a file, unpacked if its name ends in .gz; raises DataError for a pipe or a device.

    Raises also what reading does: OSError, EOFError, zlib.error, and ValueError for a name that no file system takes.
    """
    if file.exists() and not file.is_file():  # it may never end
        raise DataError(f"{file} is not a regular file; expected a .jsonl file")
    return gzip.GzipFile(file) if file.suffix == ".gz" else file.open("rb")


def read_lines(file: Path) -> Iterator[tuple[int, bytes, bool]]:
    """(line number, line with its end, whether that is a newline) of every line that is not blank."""
    try:
        with open_lines(file) as stream:
            # Lines end at b"\n" alone: str.splitlines would also cut at U+2028 inside a string.
            for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), start=1):
                if len(line) == MAX_LINE_BYTES:
                    refuse(f"{file}:{number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
                if number == 1:
                    if line.startswith(WIDE_MARKS):
                        refuse(f"{file}:1", "the file is UTF-16 or UTF-32; expected UTF-8")
                    if line.startswith(b"\x1f\x8b"):
                        refuse(f"{file}:1", "the content is gzip; give the file a name that ends in .jsonl.gz")
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.isspace() and line:
                    yield number, line, line.endswith(b"\n")
    except DataError:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a name no file system takes
        reason = "not a complete gzip file" if file.suffix == ".gz" else "cannot be read"
        raise DataError(f"{file}: {reason} ({getattr(error, 'strerror', None) or error})") from error


def parse_row(
    line: bytes, at: str, *, may_be_torn: bool = False, allow_non_finite: bool = False
) -> dict[str, Any] | None:
    """The JSON object of one line; None when ``may_be_torn`` and the line stops in the middle of its object.

    ``at`` is the `file:line` that starts every message. Refused with DataError: anything but one object, a key
    written twice, NaN and infinities (unless ``allow_non_finite``), numbers too long to convert, text that is not
    UTF-8.
    """
    try:
        return _loaded(line.decode("utf-8"), at, line, allow_non_finite=allow_non_finite)
    except UnicodeDecodeError as error:
        if may_be_torn and error.reason == "unexpected end of data":
            return None
        refuse(at, f"not UTF-8 text: {error.reason} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            refuse(at, f"expected one JSON object, found more after column {error.pos} (two writers on one file?)")
        if may_be_torn:
            return None
        refuse(at, f"not JSON: {error.msg} at column {error.colno}; expected one JSON object on each line")


def read_document(file: Path, *, allow_non_finite: bool = False) -> dict[str, Any]:
    """The JSON object that is the whole of a file. Refused with DataError: as in `parse_row`.

    ``allow_non_finite``: NaN and infinities as Python writes them, which some models have in their configurations.

    Raises OSError if it is not there or cannot be read.
    """
    if file.exists() and not file.is_file():  # a pipe or a device may never end
        raise DataError(f"{file} is not a regular file; remove it")
    content = file.read_bytes()
    try:
        return _loaded(content.decode("utf-8-sig"), str(file), content, allow_non_finite=allow_non_finite)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        refuse(f"{file}:{line}", f"not UTF-8 text: {error.reason} at byte {error.start + 1} of the file")
    except json.JSONDecodeError as error:
        refuse(f"{file}:{error.lineno}", f"not JSON: {error.msg} at column {error.colno}")


def _loaded(text: str, at: str, source: bytes, *, allow_non_finite: bool) -> dict[str, Any]:
    """The object in ``text``, which is the ``source``; raises JSONDecodeError, and DataError for all else."""
    try:
        value = (_PYTHONS_DECODER if allow_non_finite else _DECODER).decode(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        refuse(at, _TOO_DEEP)
    except ValueError as error:
        refuse(at, str(error))
    if _is_too_deep(value):
        refuse(at, _TOO_DEEP)
    if type(value) is not dict:
        refuse(at, f"expected a JSON object, found {shown(value)}")
    if _ESCAPED_SURROGATE.search(source) and _LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        value = _without_lone_surrogates(value)
    checked: dict[str, Any] = value
    return checked


def _is_too_deep(value: Any) -> bool:
    level = [value] if type(value) in (list, dict) else []
    for _ in range(MAX_DEPTH + 1):
        children = [child for item in level for child in (item.values() if type(item) is dict else item)]
        level = [child for child in children if type(child) in (list, dict)]
        if not level:
            return False
    return True


def _without_lone_surrogates(value: Any) -> Any:
    """``value`` with every half of a surrogate pair replaced by U+FFFD, so that no later output can fail on it."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_lone_surrogates(key): _without_lone_surrogates(item) for key, item in value.items()}
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {shown(twice)} occurs twice in one object")
    return row


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {text[:40]} is too large")
    return value


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits is too large")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON; write null for an unknown number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite_float, parse_int=_integer, parse_constant=_no_constant
)
_PYTHONS_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def shown(value: object) -> str:
    """``value`` for a message: escaped, and cut to a length that a terminal line can hold."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def refuse(at: str, why: str) -> NoReturn:
    """Raises DataError for what stands at ``at``, a `file:line`."""
    raise DataError(f"{at}: {why}")
