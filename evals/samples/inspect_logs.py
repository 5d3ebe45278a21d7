"""Samples of inspect-ai's logs: one JSON document, or a `.eval` file, which is a zip archive of them."""

import copy
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.errors import DataError, MissingError, QuatroError, how_to_install
from evals.files.strict_json import MAX_LINE_BYTES, parse_row, read_document, refuse, shown

_ZSTANDARD = 93  # which zipfile does not unpack
# A sample is one part, or a folder of parts with what we read in `sample.json`; an id may hold slashes.
_SAMPLE = re.compile(r"samples/.+_epoch_\d+(/sample)?\.json", re.DOTALL)
_MOST_TIMES = 1000  # how many times its own size a log may unpack to; honest ones reach 50
_DAMAGE = (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile)  # what zipfile raises
_STARTED = "_journal/start.json"


def inspect_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, sample) of every sample in a log, with the task and the model of its head.

    ``unfinished`` says in each that the run behind the log did not end well.

    Raises:
        DataError: the file is missing or no log, or a run that did not end well left no samples.
        MissingError: its parts are packed with zstandard, which is not installed.
    """
    if not file.is_file():  # a pipe may never end
        raise DataError(f"{file}: no such file, or no regular one")
    if file.suffix != ".eval":
        head = read_document(file, allow_non_finite=True)
        samples = head.get("samples") or []
        yield from _rows(file, head, samples if isinstance(samples, list) else [], len(samples))
        return
    try:
        with zipfile.ZipFile(file) as archive:
            parts = {part.filename: part for part in archive.infolist()}  # of two equal names the last one counts
            head = _head(archive, parts, file)
            found = [part for name, part in parts.items() if _SAMPLE.fullmatch(name)]
            if sum(part.file_size for part in found) > _MOST_TIMES * file.stat().st_size:
                raise DataError(
                    f"{file}: would unpack to more than {_MOST_TIMES} times its size, as no honest log does"
                )
            yield from _rows(file, head, (_part(archive, part, file) for part in found), len(found))
    except QuatroError:
        raise
    except _DAMAGE as error:
        raise DataError(f"{file}: no .eval log of inspect-ai: {error}") from error


def _rows(file: Path, head: dict[str, Any], samples: Any, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    about = head.get("eval")
    if not isinstance(about, dict):
        raise DataError(f"{file}: no log of inspect-ai: it has no `eval` that says which task it is of")
    unfinished = _unfinished(head, about, count)
    if not count:
        more = f"; {unfinished}" if unfinished else "; `inspect log dump` writes a log with them"
        raise DataError(f"{file}: a log of inspect-ai without samples{more}")
    for number, sample in enumerate(samples, start=1):
        if not isinstance(sample, dict):
            refuse(f"{file}:{number}", f"a sample must be an object, found {shown(sample)}")
        yield number, {**sample, "task": about.get("task"), "model": about.get("model"), "unfinished": unfinished}


def _unfinished(head: dict[str, Any], about: dict[str, Any], count: int) -> str | None:
    """What to say of a run that failed, was cancelled or never ended, with how much of it is there."""
    status = head.get("status", "success")
    if status == "success":
        return None
    error, data, config = head.get("error"), about.get("dataset"), about.get("config")
    reason = f", {shown(error['message'])}" if isinstance(error, dict) and "message" in error else ""
    ids = data.get("sample_ids") if isinstance(data, dict) else None
    epochs = config.get("epochs") if isinstance(config, dict) else None
    wanted = f" of {len(ids) * epochs}" if isinstance(ids, list) and type(epochs) is int else ""
    return f"the run of this log did not end well (status {shown(status)}{reason}): it holds {count}{wanted} samples"


def _head(archive: zipfile.ZipFile, parts: dict[str, zipfile.ZipInfo], file: Path) -> dict[str, Any]:
    if "header.json" in parts:
        return _part(archive, parts["header.json"], file)
    if _STARTED not in parts:
        raise DataError(f"{file}: no .eval log of inspect-ai: it holds no header.json")
    return {**_part(archive, parts[_STARTED], file), "status": "started"}


def _part(archive: zipfile.ZipFile, part: zipfile.ZipInfo, file: Path) -> dict[str, Any]:
    at = f"{file}: {shown(part.filename)[1:-1]}"
    if part.file_size > MAX_LINE_BYTES:
        refuse(at, f"is {part.file_size} bytes long, expected at most {MAX_LINE_BYTES}")
    if part.compress_type == _ZSTANDARD:
        text = _zstandard(archive, part, at)
    else:
        try:
            text = archive.read(part)
        except _DAMAGE as error:
            raise DataError(f"{at}: damaged: {error}") from error
    row = parse_row(text, at, allow_non_finite=True)
    assert row is not None  # only a reader that allows a torn last line gets None
    return row


def _zstandard(archive: zipfile.ZipFile, part: zipfile.ZipInfo, at: str) -> bytes:
    """What is packed in a part: never more than its directory says, in as many frames as there are."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingError(
            f"{archive.filename} is packed with zstandard, which is not installed; run {how_to_install('inspect')}, or "
            f"write it as JSON with `inspect log convert {archive.filename} --to json --output-dir DIR`"
        ) from error
    packed = copy.copy(part)  # as zipfile can read it: bytes that are stored, and whose sum nobody knows
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, part.compress_size
    packed.CRC = None  # type: ignore[assignment]
    try:
        with archive.open(packed) as stream:
            text = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read(part.file_size + 1)
    except (*_DAMAGE, zstandard.ZstdError) as error:
        raise DataError(f"{at}: damaged: {error}") from error
    if len(text) != part.file_size or zlib.crc32(text) != part.CRC:
        raise DataError(f"{at}: damaged: its length or its checksum is another than the archive says")
    return text
