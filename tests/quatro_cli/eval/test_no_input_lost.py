"""A command of `quatro eval` or `quatro table` never replaces what it reads, or what a run consists of."""

import json
import os

import pytest

from tests.kit import quatro

READ = {
    "passk": ["eval", "passk", "a.jsonl"],
    "ucc": ["eval", "ucc", "a.jsonl"],
    "similarity": ["eval", "similarity", "a.jsonl"],
    "flips": ["eval", "flips", "b.jsonl", "a.jsonl"],
    "compare": ["eval", "compare", "b.jsonl", "a.jsonl"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two samples files, a result, and a run with a checkpoint; the working directory."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"benchmark": "own", "id": "1", "sample_index": index, "completion": "x y", "answer": "1", "correct": index > 0}
        for index in range(3)
    ]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    quatro("eval", "passk", "a.jsonl", "-o", "r.json")
    for name in ("config.yaml", "status.json", "metrics.jsonl", "checkpoints/step-000001/model/config.json"):
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}\n", encoding="utf-8")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", READ)
@pytest.mark.parametrize("how", ["same name", "hard link", "symbolic link"])
def test_the_samples_that_are_read_are_not_replaced(command, how, folder):
    out = "a.jsonl" if how == "same name" else "result.json"
    if how == "hard link":
        os.link("a.jsonl", out)
    elif how == "symbolic link":
        os.symlink("a.jsonl", out)
    before = contents(folder)
    result = quatro(*READ[command], "-o", out, code=2)
    assert f"-o {out}: this file is read and would be replaced; name another file" in " ".join(result.stderr.split())
    assert contents(folder) == before


@pytest.mark.parametrize("options", [[], ["--format", "csv"]])
def test_the_result_that_a_table_shows_is_not_replaced(options, folder):
    os.rename("r.json", "r.csv")  # the name does not matter
    before = contents(folder)
    result = quatro("table", "r.csv", *options, "-o", "r.csv", code=2)
    assert "this file is read and would be replaced" in " ".join(result.stderr.split())
    assert contents(folder) == before


@pytest.mark.parametrize(
    "out",
    ["b.jsonl", "run/metrics.jsonl", "run/status.json", "run/config.yaml"]
    + ["run/checkpoints/step-000001/model/config.json"],
)
def test_other_samples_and_parts_of_a_run_are_not_replaced(out, folder):
    before = contents(folder)
    for command in (["eval", "passk", "a.jsonl"], ["table", "r.json"]):
        assert "this file is no result" in " ".join(quatro(*command, "-o", out, code=2).stderr.split())
    assert contents(folder) == before


@pytest.mark.parametrize("out", ["r.json", "run/passk.json", "new.jsonl"])
def test_an_older_result_is_replaced_and_a_new_one_is_written(out, folder):
    for _ in range(2 if out.endswith(".json") else 1):
        quatro("eval", "passk", "b.jsonl", "-o", out)
    assert json.loads((folder / out).read_text(encoding="utf-8"))["rows"]
