"""Problems in CSV and parquet files, as spreadsheets and other programs write them."""

import gzip
import sys

import pytest

from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem
from evals.errors import DataError, MissingError

READ = [
    Problem("t", "a", 'What is 1+1,\nsaid "simply"?', "2", {"level": "easy"}),
    Problem("t", "b", "{x}; 50 %?", "007", {"level": ""}),
]


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_of_any_separator_and_system_is_read_alike(tmp_path, separator, bom):
    rows = [["id", "problem", "answer", "level"], ["a", '"What is 1+1,\nsaid ""simply""?"', "2", "easy"]]
    text = "\n".join(separator.join(row) for row in [*rows, ["b", '"{x}; 50 %?"', "007", ""], [""] * 4]) + "\n"
    for ending in ("\n", "\r\n"):
        (tmp_path / "t.csv").write_bytes((bom + text.replace("\n", ending)).encode())
        found = load_problems(str(tmp_path / "t.csv"))
        assert [problem.problem.replace("\r\n", "\n") for problem in found] == [one.problem for one in READ]
        assert [(one.benchmark, one.id, one.answer, one.extra) for one in found] == [
            (one.benchmark, one.id, one.answer, one.extra) for one in READ
        ]


def test_a_packed_csv_has_ids_by_line(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b',question,answer\n0,"a\nb",1\n1,c,2\n'))
    assert load_problems(str(tmp_path / "t.csv.gz")) == [Problem("t", "2", "a\nb", "1"), Problem("t", "4", "c", "2")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"problem,answer\n1+1?,2\nWas, bitte?,3\n", r"t\.csv:3: 3 cells, but .* names 2 columns .*a comma"),
        ("problem;answer\nGrüße;2\n".encode("cp1252"), r"t\.csv:2: found byte 0xfc, which is not UTF-8; save .*Excel"),
        ("problem,answer\nx,2\n".encode("utf-16"), r"t\.csv:1: found UTF-16 or UTF-32; save"),
        ("problem,answer\nx,2\n".encode("utf-32"), r"t\.csv:1: found UTF-16 or UTF-32; save"),
        (b"problem,answer\nx,\n", r"t\.csv:2: the reference answer is empty"),
        (b"Problem,Answer\nx,1\n", r"t\.csv:2: has no problem; .*\['Problem', 'Answer'\]"),
        (b"problem,problem,answer\nx,y,1\n", r"t\.csv:1: column 'problem' occurs twice"),
        (b'problem,answer\n"x,1\n', r"t\.csv:2: not CSV"),
        (b"problem,answer\n", "no problems; expected rows with the columns `problem` and `answer`"),
        (b"", "no problems"),
    ],
)
def test_a_csv_that_cannot_be_read_says_where_and_why(tmp_path, content, said):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=said):
        load_problems(str(tmp_path / "t.csv"))


def test_parquet_gives_problems_with_their_own_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    rows = [{"question": "1+1?", "answer": 2, "tags": ["a"], "from": {"book": "b"}}, {"question": "x", "answer": 3}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert load_problems(str(tmp_path / "t.parquet")) == [
        Problem("t", "1", "1+1?", "2", {"tags": ["a"], "from": {"book": "b"}}),
        Problem("t", "2", "x", "3", {"tags": None, "from": None}),
    ]


def test_parquet_problems_without_pyarrow_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingError, match=r"pip install -e '.*\[parquet\]'"):
        load_problems(str(tmp_path / "t.parquet"))
