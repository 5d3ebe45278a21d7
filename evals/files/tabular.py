"""Rows of CSV and parquet files, which other programs write."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.errors import DataError, MissingError, how_to_install
from evals.files.strict_json import MAX_LINE_BYTES, WIDE_MARKS, refuse, shown

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
_BATCH_ROWS = 256


def csv_rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line on which the row begins, its cells by column) of every row of a `.csv` or `.csv.gz` that is not blank.

    The file is UTF-8, with or without a byte-order mark; lines end in any way. Its first row names the columns, and
    which of `DELIMITERS` occurs in it most often separates cells. Cells stay texts; an empty one is an empty text. A
    column without a name is left out.

    Raises:
        DataError: the file is missing, no UTF-8 or no CSV, or a row has more or fewer cells than there are columns.
    """
    text = _csv_text(file)
    delimiter = max(DELIMITERS, key=io.StringIO(text, newline="").readline().count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    csv.field_size_limit(MAX_LINE_BYTES)  # of the whole process
    columns: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            begins, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if columns is None:
                columns = _columns(cells, f"{file}:{begins}")
                continue
            if len(cells) != len(columns):
                refuse(
                    f"{file}:{begins}",
                    f"{len(cells)} cells, but the first line names {len(columns)} columns (the file's separator is a "
                    f"{DELIMITERS[delimiter]}); put a cell that holds one into double quotes",
                )
            yield begins, {name: cell for name, cell in zip(columns, cells, strict=True) if name}
    except csv.Error as error:
        refuse(f"{file}:{line}", f"not CSV: {error}; a double quote inside a quoted cell is written twice")


def _csv_text(file: Path) -> str:
    try:
        if file.exists() and not file.is_file():  # a pipe or a device may never end
            raise DataError(f"{file} is not a regular file; expected a .csv file")
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a name no file system takes
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        is_wide = content.startswith(WIDE_MARKS)
        found = "UTF-16 or UTF-32" if is_wide else f"byte {content[error.start]:#04x}, which is not UTF-8"
        refuse(f"{file}:{line}", f"found {found}; save the file as UTF-8 (in Excel: `CSV UTF-8`)")


def _columns(cells: list[str], at: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        refuse(at, f"column {shown(twice[0])} occurs twice; rename one of them")
    return names


def parquet_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, values by column) of every row.

    Raises:
        MissingError: pyarrow is not installed.
        DataError: the file is missing, or no parquet.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        message = f"reading parquet needs the package `pyarrow`; install it with `{how_to_install('parquet')}`"
        raise MissingError(message) from error
    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as parquet ({error})") from error
