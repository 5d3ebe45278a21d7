"""Tidy rows as pandas data frames, and data frames as CSV or Parquet files. pandas is imported on first use."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import MissingError, UsageError, how_to_install
from evals.files.csv_cells import csv_cell
from evals.files.whole import write_whole

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT = "string"
FRAME_SUFFIXES = (".csv", ".parquet")


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
    write_whole(path, [_parquet_bytes(frame) if path.suffix == ".parquet" else csv_of(frame).encode("utf-8")])


def check_frame_file(path: Path) -> None:
    """Raises UsageError and MissingError as `write_frame` does, before there is a frame to write."""
    if path.suffix not in FRAME_SUFFIXES:
        raise UsageError(f"{path}: tidy rows are written to a .csv or a .parquet file")
    if path.suffix == ".parquet":
        try:
            importlib.import_module("pyarrow")
        except ImportError as error:
            message = f"writing parquet needs the package `pyarrow`; install it with `{how_to_install('parquet')}`"
            raise MissingError(message) from error


def csv_of(frame: DataFrame) -> str:
    """The text of a CSV file, as `write_frame` writes it."""
    texts = {name: frame[name].map(csv_cell, na_action="ignore") for name in frame if frame[name].dtype == TEXT}
    text = frame.assign(**texts).rename(columns=csv_cell).to_csv(index=False, lineterminator="\n")
    return str(text)


def _parquet_bytes(frame: DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, engine="pyarrow", index=False)
    return buffer.getvalue()


def _text(value: object) -> str | None:
    """Half a surrogate pair, which neither format can hold, becomes its escape."""
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode("utf-8")
