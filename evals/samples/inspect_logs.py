"""Samples of inspect-ai's logs: one JSON document, or a `.eval` file, which is a zip archive of them."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from evals.errors import DataError, MissingError
from evals.files.strict_json import read_document, refuse

_ZSTANDARD = 93  # which zipfile knows from Python 3.14 on
_LOCAL_HEADER_BYTES = 30


def inspect_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, sample) of every sample in a log, with the task and the model of its head.

    Raises:
        DataError: the file is missing or no log.
        MissingError: its parts are packed with zstandard, and pyarrow, which unpacks them, is missing.
    """
    head, samples = _eval_parts(file) if file.suffix == ".eval" else _json_parts(file)
    about = head.get("eval")
    if not isinstance(about, dict):
        raise DataError(f"{file}: no log of inspect-ai: it has no `eval` that says which task it is of")
    for number, sample in enumerate(samples, start=1):
        yield number, {**sample, "task": about.get("task"), "model": about.get("model")}


def _json_parts(file: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    head = read_document(file, allow_non_finite=True)
    samples = head.get("samples")
    if not isinstance(samples, list):
        raise DataError(f"{file}: no log of inspect-ai with samples; `inspect log dump` writes one")
    return head, (sample for sample in samples if isinstance(sample, dict))


def _eval_parts(file: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{file}: no .eval log of inspect-ai: {error}") from error
    head = [part for part in parts if part.filename in ("header.json", "_journal/start.json")]
    if not head:
        raise DataError(f"{file}: no .eval log of inspect-ai: it holds no header.json")
    samples = (part for part in parts if part.filename.startswith("samples/"))
    return _part(file, head[-1]), (_part(file, part) for part in samples)


def _part(file: Path, part: zipfile.ZipInfo) -> dict[str, Any]:
    at = f"{file}: {part.filename}"
    if part.compress_type != _ZSTANDARD:
        with zipfile.ZipFile(file) as archive:
            text = archive.read(part)
    else:
        try:
            import pyarrow
        except ImportError as error:
            raise MissingError(
                f"{file} is packed with zstandard, which needs pyarrow: pip install 'quatro[parquet]'; or write it as "
                f"JSON with `inspect log convert {file} --to json --output-dir DIR`"
            ) from error
        with file.open("rb") as stream:
            stream.seek(part.header_offset)
            name, extra = struct.unpack("<HH", stream.read(_LOCAL_HEADER_BYTES)[26:])
            stream.seek(name + extra, 1)
            packed = stream.read(part.compress_size)
        try:
            text = pyarrow.Codec("zstd").decompress(packed, decompressed_size=part.file_size, asbytes=True)
        except (OSError, ValueError) as error:
            raise DataError(f"{at}: damaged: {error}") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError(f"{at}: no JSON: {error}") from error
    if not isinstance(found, dict):
        refuse(at, "expected an object")
    return cast(dict[str, Any], found)
