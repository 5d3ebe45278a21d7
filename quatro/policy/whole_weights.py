"""Whether the weights of a model folder are complete, told from file names, sizes and headers alone."""

from __future__ import annotations

import json
from pathlib import Path

from evals.errors import DataError
from evals.files.strict_json import read_document

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MOST_HEADER_BYTES = 100 * 2**20  # as in the safetensors library


def refuse_incomplete(folder: Path) -> None:
    """Refuse safetensors weights of ``folder`` of which a file is missing or was cut off; it takes milliseconds.

    Raises:
        DataError: names the file.
    """
    index = folder / _INDEX
    if index.is_file():
        named = read_document(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise DataError(f"{index}: weight_map is no list of tensors and their files; copy the file again")
        files = [folder / name for name in sorted(set(named.values()))]
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
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if 0 < length <= _MOST_HEADER_BYTES else {}
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise DataError(f"{file} is no safetensors file: its header cannot be read; copy it again") from error
