"""Whether samples are those that were drawn: packed later, or damaged."""

import gzip
import hashlib
import json

import pytest

from evals.errors import DataError
from evals.files.belonging import file_sha256
from evals.samples.reading import read_samples
from evals.samples.types import Sample

CONTENT = b"".join(Sample("m", "p", index, f"x {index}", "1", correct=True).to_json_line() for index in range(3))


@pytest.fixture
def folder(tmp_path):
    said = {"schema": 1, "model": "m", "sampling": {"n": 3}}
    said["benchmarks"] = {"m": {"sha256": hashlib.sha256(CONTENT).hexdigest()}}
    (tmp_path / "sampling.json").write_text(json.dumps(said), encoding="utf-8")
    return tmp_path


def test_packed_samples_are_those_that_were_drawn(folder):
    (folder / "m.jsonl.gz").write_bytes(gzip.compress(CONTENT))
    assert len(read_samples([folder]).rows) == 3
    (folder / "m.jsonl.gz").write_bytes(gzip.compress(CONTENT.replace(b"x 1", b"y 1")))
    with pytest.raises(DataError, match="other samples than were drawn"):
        read_samples([folder])


def test_a_damaged_packed_file_has_no_digest(folder):
    whole = gzip.compress(CONTENT)
    for damaged in (whole[:-9], whole[:12] + b"\xff" * 9 + whole[21:], b"no gzip"):
        (folder / "m.jsonl.gz").write_bytes(damaged)
        assert "damaged" in file_sha256(folder / "m.jsonl.gz")
        with pytest.raises(DataError, match=r"m\.jsonl\.gz"):
            read_samples([folder])
