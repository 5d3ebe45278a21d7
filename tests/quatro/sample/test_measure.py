"""Pass@k and UCC@k of a folder of samples."""

import pytest

from evals.errors import UsageError
from evals.results.document import read_result
from quatro.sample.folder import measure_samples
from tests.kit import write_rows


@pytest.fixture
def samples(tmp_path):
    """Six samples of each of two problems, of which four and none are correct."""
    rows = [
        {
            "benchmark": "toy",
            "id": id,
            "sample_index": i,
            "answer": "1",
            "completion": f"way {i}",
            "correct": id == "a" and i < 4,
        }
        for id in "ab"
        for i in range(6)
    ]
    write_rows(tmp_path / "toy.jsonl", rows)
    return tmp_path


def test_what_comes_back_is_what_stands_beside_the_samples(samples):
    found = measure_samples(samples, n=6, label="mine")
    assert [row.k for row in found.passk.rows if row.benchmark == "toy"] == [1, 2, 4, 6]
    assert next(row.value for row in found.passk.rows if row.k == 1) == pytest.approx(4 / 6 / 2)
    assert (found.passk.label, found.ucc.label) == ("mine", "mine")
    assert {(row.similarity, row.threshold) for row in found.ucc.rows} == {("tfidf", 0.9)}  # the paper's tables
    assert read_result(samples / "passk.json") == found.passk
    assert "coverage" in found.ucc.warnings[0]  # which belongs to those who look, not to the file
    assert read_result(samples / "ucc.json") == found.ucc.model_copy(update={"warnings": []})
    assert [problem.correct for problem in found.ucc.problems or ()] == [4, 0]


def test_fewer_samples_than_asked_for_are_an_error(samples):
    with pytest.raises(UsageError, match="6"):
        measure_samples(samples, n=7, label="mine")
