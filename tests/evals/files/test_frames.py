"""Tidy rows as data frames, and their CSV and Parquet files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pandas as pd
import pytest

from evals.errors import MissingError, UsageError
from evals.files.frames import csv_of, frame_of, other_columns, write_frame
from evals.metrics.comparing import compare_passk
from evals.metrics.flips import flips_result
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.results.document import About, Result, SamplingInfo
from evals.samples.types import FIELDS, Sample, Samples
from tests.kit import read_json

DTYPES = {"name": "string", "count": "Int64", "value": "float64", "known": "boolean"}
# Of the columns of a result, those that are neither texts nor floats.
COUNTS = {**dict.fromkeys(("seed", "k", "num_seeds"), "Int64"), **dict.fromkeys(("num_problems", "n"), "int64")}
TEXTS = ["label", "model", "method", "metric", "benchmark", "similarity", "linkage", "tokens", "checker", "ci_over"]
ROWS = [
    {"name": "plain", "count": 3, "value": 0.1 + 0.2, "known": True},
    {"name": 'a, "b"\nc', "count": None, "value": None, "known": None},
    {"name": None, "count": 2**60, "value": -1e-300, "known": False},
]


def samples(*correct: str, benchmark: str = "toy") -> Samples:
    """One problem for each of ``correct``, a word such as "110": which of its samples are correct."""
    return Samples(
        [
            Sample(benchmark, f"p{problem}", index, f"text {index}", 7, correct=flag == "1")
            for problem, flags in enumerate(correct)
            for index, flag in enumerate(flags)
        ],
        [Path("a.jsonl")],
    )


@pytest.fixture
def result() -> Result:
    about = About(label="ours", model="m", seed=5, sampling=SamplingInfo(n=4, top_p=0.7))
    return ucc_result(samples("1101", "0001"), ks=[1, 4], ci=True, about=about)


def test_a_frame_has_the_columns_dtypes_and_values_that_were_asked_for():
    frame = frame_of(ROWS, DTYPES)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == DTYPES
    plain = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert plain == ROWS
    assert list(frame_of([], DTYPES).dtypes) == list(frame.dtypes)


def test_columns_besides_are_texts_and_numbers_alone():
    rows = [{"a": 1, "b": "x", "c": [1], "d": None}, {"a": 2.5, "e": True, "f": "y"}, {"f": 3}]
    assert other_columns(rows, {"e": "boolean"}) == {"a": "float64", "b": "string"}


def test_csv_holds_what_the_frame_holds(tmp_path):
    frame = frame_of(ROWS, DTYPES)
    write_frame(frame, tmp_path / "rows.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "rows.csv", dtype=DTYPES), frame)


def test_no_text_of_a_csv_file_is_a_formula():
    frame = frame_of([{"=name": "=1+1", "n": -2.0}, {"=name": "-5"}], {"=name": "string", "n": "float64"})
    assert csv_of(frame) == "'=name,n\n'=1+1,-2.0\n-5,\n"


def test_parquet_holds_what_the_frame_holds(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = frame_of([*ROWS, {"name": "=1+1"}], DTYPES)
    write_frame(frame, tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), frame)


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path):
    frame = frame_of([{"name": "\ud800!"}], {"name": "string"})
    write_frame(frame, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8") == "name\n\\ud800!\n"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingError, match=r"pip install -e '.*\[parquet\]'"):
        write_frame(frame_of(ROWS, DTYPES), tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"rows\.xlsx: tidy rows are written to a \.csv or a \.parquet file"):
        write_frame(frame_of(ROWS, DTYPES), tmp_path / "rows.xlsx")


def test_a_result_is_a_frame_of_its_rows(result):
    frame = result.frame()
    dtypes = dict.fromkeys(frame, "float64") | COUNTS | dict.fromkeys(TEXTS, "string")
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dtypes
    assert len(frame) == len(result.rows) > 4
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    head = {"label": "ours", "model": "m", "method": None, "seed": 5, "temperature": None, "top_p": 0.7}
    assert rows == [head | row.model_dump(exclude={"bucket"}) for row in result.rows]


def test_what_rows_hold_besides_has_columns_too():
    result = flips_result(samples("10", "00", "01"), samples("11", "01", "00"), names=("a", "b"))
    frame = result.frame()
    assert list(frame["bucket"]) == [row.bucket for row in result.rows]
    assert "histogram" not in frame


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_result_is_written_as_tidy_rows_where_the_name_says_so(result, tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    file = tmp_path / f"result{suffix}"
    result.write(file)
    dtypes = result.frame().dtypes.to_dict()
    read = pd.read_csv(file, dtype=dtypes) if suffix == ".csv" else pd.read_parquet(file)
    pd.testing.assert_frame_equal(read, result.frame())
    result.write(tmp_path / "result.json")
    assert read_json(tmp_path / "result.json")["rows"] == result.document()["rows"]


def test_a_comparison_is_a_frame_of_its_rows(tmp_path):
    comparison = compare_passk(samples("10", "00"), samples("11", "01"), names=("a.jsonl", "b.jsonl"), ks=[1, 2])
    frame = comparison.frame()
    assert list(frame["difference"]) == [row.difference for row in comparison.rows]
    assert [*frame.columns[2:], "samples_b"] == list(type(comparison.rows[0]).model_fields)
    comparison.write(tmp_path / "difference.csv")
    text = (tmp_path / "difference.csv").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(text), dtype=dict(frame.dtypes)), frame)


def test_samples_are_a_frame_with_a_row_each():
    found = samples("10")
    unknown = Sample("toy", "p9", 0, "?", None)
    frame = Samples([*found.rows, unknown], found.files).frame()
    assert list(frame) == list(FIELDS)
    assert list(frame["completion"]) == ["text 0", "text 1", "?"]
    assert frame["answer"].isna().tolist() == [False, False, True]
    assert frame["answer"][0] == "7"
    assert frame["correct"].tolist() == [True, False, pd.NA]
    assert (str(frame["correct"].dtype), str(frame["sample_index"].dtype)) == ("boolean", "int64")


def test_passk_and_ucc_share_their_columns(result):
    assert list(passk_result(samples("10")).frame()) == list(result.frame())
