"""Reading CSV leaves the process as it was."""

import pytest

from evals.errors import DataError
from evals.files.frames import csv_rows


def test_long_cells_are_read(tmp_path):
    limit = 2**17  # that of Python
    file = tmp_path / "long.csv"
    file.write_text(f"a,b\n{'x' * (limit + 1)},1\ny,2\n", encoding="utf-8")
    rows = csv_rows(file)
    assert [len(row["a"]) for _, row in rows] == [limit + 1, 1]
    file.write_text('a\n"open', encoding="utf-8")
    with pytest.raises(DataError, match="not CSV"):
        list(csv_rows(file))
