"""The index of a samples file: counts and places as the strict reader has them, also while the file grows."""

import gzip
import os

import pytest

from evals.errors import DataError
from evals.samples.index import SamplesIndex
from evals.samples.reading import read_samples
from evals.samples.types import Sample


def rows(num_problems=3, n=4):
    return [
        Sample("math500", f"p{problem}", index, f"é\u2028 {problem} {index}", "7", correct=index < problem)
        for index in range(n)
        for problem in range(num_problems)
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_it_finds_every_problem_and_counts_as_the_reader_does(tmp_path, name):
    file = tmp_path / name
    lines = b"\n".join(row.to_json_line() for row in rows())  # with blank ones between
    content = b"\xef\xbb\xbf" + lines.rstrip(b"\n")
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    index = SamplesIndex(file)
    index.update()
    problems = read_samples([file]).problems()
    assert {key: (len(place.starts), place.num_correct, place.num_wrong) for key, place in index.places.items()} == {
        (one.benchmark, one.id): (len(one.samples), num, len(one.samples) - num)
        for one in problems
        for num in [sum(bool(row.correct) for row in one.samples)]
    }
    assert [index.problem(one.benchmark, one.id) for one in problems] == problems


def test_it_reads_on_where_it_ended_and_leaves_a_half_line_for_later(tmp_path):
    file, lines = tmp_path / "a.jsonl", [row.to_json_line() for row in rows()]
    file.write_bytes(b"".join(lines[:5]) + lines[5][:20])
    index = SamplesIndex(file)
    index.update()
    assert sum(len(place.starts) for place in index.places.values()) == 5
    file.write_bytes(b"".join(lines))
    index.update()
    whole = SamplesIndex(file)
    whole.update()
    assert index.places == whole.places


def test_samples_without_a_grade_are_neither_right_nor_wrong(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"".join(Sample("math500", "p", index, "x", "7").to_json_line() for index in range(3)))
    index = SamplesIndex(file)
    index.update()
    (place,) = index.places.values()
    assert (len(place.starts), place.num_correct, place.num_wrong) == (3, 0, 0)


@pytest.mark.parametrize(
    "line",
    [b"[1]\n", b'{"id": "x"}\n', b"{\n", b"\xff\xfe\n", b'{"benchmark": [], "id": "x"}\n', b"[" * 100_000 + b"\n"],
    ids=range(6),
)
def test_what_is_no_sample_is_an_error_that_names_the_file(tmp_path, line):
    file = tmp_path / "a.jsonl"
    file.write_bytes(rows()[0].to_json_line() + line)
    with pytest.raises(DataError, match=r"a\.jsonl:2: no sample"):
        SamplesIndex(file).update()


def test_a_damaged_row_is_named_by_its_line(tmp_path):
    lines = [row.to_json_line() for row in rows()]
    lines[7] = (
        lines[7].replace(b'"sample_index": 2', b'"sample_index": -1').replace(b'"sample_index":2', b'"sample_index":-1')
    )
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines[:5]).rstrip())
    index = SamplesIndex(tmp_path / "a.jsonl")
    index.update()
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))  # every other line is blank
    index.update()
    with pytest.raises(DataError, match=r"a\.jsonl:15: sample_index"):
        index.problem("math500", "p1")


def test_a_damaged_gzip_file_and_a_pipe_are_errors_that_name_the_file(tmp_path):
    packed, pipe = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    whole = gzip.compress(b"".join(row.to_json_line() for row in rows()), mtime=0)
    packed.write_bytes(whole[:12] + b"\xff" * 20 + whole[32:])
    os.mkfifo(pipe)
    for file in (packed, pipe):
        with pytest.raises(DataError, match=file.name):
            SamplesIndex(file).update()
