"""Tidy rows as pandas data frames, these as CSV or Parquet files, and rows of such files of other programs.

pandas is imported on first use. Every text in a cell of CSV is untrusted: a spreadsheet must take none of them for a
formula.
"""

import csv
import gzip
import io
import math
import re
import unicodedata
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evals.errors import DataError, UsageError, require
from evals.files.strict_json import MAX_LINE_BYTES, WIDE_MARKS, refuse, shown
from evals.files.whole import write_whole

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame
else:
    DataFrame = Any  # for annotations


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

TEXT = "string"
FRAME_SUFFIXES = (".csv", ".parquet")
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
_BATCH_ROWS = 256
# U+2212 is what NFKC makes of the superscript and subscript minus.
_SIGNS = ("=", "+", "-", "\u2212", "@")
_UNSEEN = re.compile("[\\s\x00-\x1f\x7f-\xa0\u200b-\u200f\u2060\ufeff]+")
_NUMBER = re.compile(r"[-+]?(\d+(?:\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def grouped(rows: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The ``rows`` with each key, in the order of their first rows."""
    groups: dict[Key, list[Item]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def frame_of(rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str]) -> DataFrame:
    """A data frame with a row for each of ``rows`` and a column for each name in ``dtypes``; what is absent is NA."""
    import pandas as pd

    columns = {}
    for name, dtype in dtypes.items():
        values = [row.get(name) for row in rows]
        columns[name] = pd.Series(map(_text, values) if dtype == TEXT else values, dtype=dtype)
    return pd.DataFrame(columns)


def other_columns(rows: Sequence[Mapping[str, Any]], known: Mapping[str, str]) -> dict[str, str]:
    """Names and dtypes of the texts and numbers in ``rows`` that are not ``known``, by first appearance."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if name not in known and value is not None:
                values.setdefault(name, []).append(value)
    dtypes = {}
    for name, found in values.items():
        if all(isinstance(value, (int, float)) for value in found):
            dtypes[name] = "float64"
        elif all(isinstance(value, str) for value in found):
            dtypes[name] = TEXT
    return dtypes


def write_frame(frame: DataFrame, path: str | Path) -> None:
    """Writes ``frame`` whole, in the format that the name of the file ends in: .csv or .parquet.

    In CSV what is unknown is an empty cell, and a text that a spreadsheet would take for a formula begins with an
    apostrophe. Parquet keeps texts and dtypes as they are.

    Raises:
        UsageError: the suffix is another one, or ``path`` cannot be a file.
        MissingError: Parquet without pyarrow.
        OSError: names the file; what stood there before still does.
    """
    path = Path(path)
    check_frame_file(path)
    is_csv = path.suffix == ".csv"
    write_whole(path, [csv_of(frame).encode("utf-8") if is_csv else frame.to_parquet(engine="pyarrow", index=False)])


def check_frame_file(path: Path) -> None:
    """Raises UsageError and MissingError as `write_frame` does, before there is a frame to write."""
    if path.suffix not in FRAME_SUFFIXES:
        raise UsageError(f"{path}: tidy rows are written to a .csv or a .parquet file")
    if path.suffix == ".parquet":
        require("pyarrow", "writing parquet")


def csv_of(frame: DataFrame) -> str:
    """The text of a CSV file, as `write_frame` writes it."""
    texts = {name: frame[name].map(csv_cell, na_action="ignore") for name in frame if frame[name].dtype == TEXT}
    text = frame.assign(**texts).rename(columns=csv_cell).to_csv(index=False, lineterminator="\n")
    return str(text)


def _text(value: object) -> str | None:
    """Half a surrogate pair, which neither format can hold, becomes its escape."""
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def csv_text(text: str) -> str:
    """``text`` with a leading apostrophe where a spreadsheet would take it for a formula (OWASP, "CSV Injection").

    Some take a full-width or small sign for the plain one, and pass over spaces and invisible characters before it. A
    carriage return becomes a newline: writers quote only that, and a row would end at the other.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first = _UNSEEN.sub("", text[:64])[:1]
    is_formula = unicodedata.normalize("NFKC", first) in _SIGNS
    return f"'{text}" if is_formula or text.startswith(("\t", "\n")) else text


def csv_cell(value: object) -> str:
    """`csv_text` of a text, a number as it is (negative ones too), and an empty cell for None."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return text if _NUMBER.fullmatch(text) else csv_text(text)


def csv_rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line on which the row begins, its cells by column) of every row of a `.csv` or `.csv.gz` that is not blank.

    The file is UTF-8, with or without a byte-order mark; lines end in any way. Its first row names the columns, and
    which of `DELIMITERS` occurs in it most often separates cells. Cells stay texts; an empty one is an empty text. A
    column without a name is left out.

    Raises DataError if the file is missing, no UTF-8 or no CSV, or a row has another number of cells than of columns.
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
                columns = [cell.strip() for cell in cells]
                if twice := [name for name in columns if name and columns.count(name) > 1]:
                    refuse(f"{file}:{begins}", f"column {shown(twice[0])} occurs twice; rename one of them")
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


def parquet_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, values by column) of every row.

    Raises MissingError if pyarrow is not installed, and DataError if the file is missing, or no parquet.
    """
    require("pyarrow", f"reading {file} as parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as table:
            batches = table.iter_batches(batch_size=_BATCH_ROWS)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as parquet ({error})") from error
