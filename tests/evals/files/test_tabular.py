"""Reading CSV leaves the process as it was."""

import csv

import pytest

from evals.errors import DataError
from evals.files.tabular import csv_rows


def test_long_cells_are_read_and_the_limit_of_others_is_left(tmp_path):
    limit = csv.field_size_limit()
    file = tmp_path / "long.csv"
    file.write_text(f"a,b\n{'x' * (limit + 1)},1\ny,2\n", encoding="utf-8")
    rows = csv_rows(file)
    _, first = next(rows)
    assert (len(first["a"]), csv.field_size_limit()) == (limit + 1, limit)
    assert [row["a"] for _, row in rows] == ["y"]
    file.write_text('a\n"open', encoding="utf-8")
    with pytest.raises(DataError, match="not CSV"):
        list(csv_rows(file))
    assert csv.field_size_limit() == limit
