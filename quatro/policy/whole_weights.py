"""Whether the files of a model folder can be read at all: told from their kinds, names, sizes and headers alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from evals.errors import DataError
from evals.files.strict_json import read_document, shown

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MOST_HEADER_BYTES = 10 * 10**6  # models of thousands of tensors have less than one
_MOST_TEXT_BYTES = 256 * 2**20  # the largest tokenizers have a tenth
_TEXTS = (".json", ".jinja", ".txt", ".model")
_FOLDERS = ("", "additional_chat_templates")


def refuse_strange(folder: Path) -> None:
    """Refuse a folder with a pipe, a device or a socket in it, which may keep a reader for ever, or an endless text.

    Links may lead anywhere, as those of the Hub's cache do.

    Raises:
        DataError: names the file.
    """
    for path in (path for below in _FOLDERS for path in (folder / below).glob("*")):
        try:
            found = path.stat()
        except OSError:  # a link to nowhere is a file that is missing
            continue
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise DataError(f"{path} is a pipe, a device or a socket, expected a file; copy the model again without it")
        if path.suffix in _TEXTS and found.st_size > _MOST_TEXT_BYTES:
            raise DataError(
                f"{path} has {found.st_size:,} bytes, expected {_MOST_TEXT_BYTES:,} at most; copy the model again"
            )


def refuse_incomplete(folder: Path) -> None:
    """Refuse safetensors weights of ``folder`` of which a file is missing, elsewhere or cut off, in milliseconds.

    Raises:
        DataError: names the file.
    """
    index = folder / _INDEX
    if index.is_file():
        named = read_document(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise DataError(f"{index}: weight_map is no list of tensors and their files; copy the file again")
        names = sorted(set(named.values()))
        for name in names:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise DataError(f"{index} names {shown(name)}, which is not in its folder; copy the model again")
        files = [folder / name for name in names]
    else:
        files = [folder / _SINGLE] if (folder / _SINGLE).is_file() else []
    for file in files:
        if not file.is_file():
            raise DataError(f"{file} is missing, and {_INDEX} names it; copy or download the complete model")
        expected, found = _bytes_by_header(file), file.stat().st_size
        if found != expected:
            raise DataError(
                f"{file} has {found} bytes, and by its header {expected}: it was cut off, or is still being copied"
            )


def _bytes_by_header(file: Path) -> int:
    """The size that the file says that it has: 8 bytes with the header's length, the header, the tensors."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise DataError(
                f"{file} is no safetensors file: its first 8 bytes say that its header has {length:,} bytes, expected "
                f"{_MOST_HEADER_BYTES:,} at most; copy it again"
            )
        content = stream.read(length)
    try:
        header = json.loads(content) if length else {}
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise DataError(f"{file} is no safetensors file: its header cannot be read; copy it again") from error
