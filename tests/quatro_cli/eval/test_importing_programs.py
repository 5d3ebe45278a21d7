"""`quatro eval import` of programs and of columns that other tools call otherwise."""

import json

import pytest
from typer.testing import CliRunner

from evals.code.grading import ALLOW_UNSAFE
from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()
TESTS = ["assert double(2) == 4"]
RIGHT, WRONG = "def double(x):\n    return 2 * x", "def double(x):\n    return x"


def imported(folder, *rows, tool="jsonl", options=("-b", "own")):
    """The imported rows, and their file."""
    source, out = folder / "theirs.jsonl", folder / "ours.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    quatro("eval", "import", source, "--from", tool, *options, "-o", out)
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()], out


def test_programs_with_their_tests_need_no_answer_and_are_run(tmp_path, monkeypatch):
    monkeypatch.setenv(ALLOW_UNSAFE, "1")
    row = {"problem": "Write double(x).", "entry_point": "double", "tests": TESTS, "completions": [RIGHT, WRONG]}
    rows, out = imported(tmp_path, row)
    assert [one["completion"] for one in rows] == [RIGHT, WRONG]
    assert rows[0]["judged_as"]["grader"] == "code"
    measured = runner.invoke(app, ["eval", "passk", str(out), "--k", "1", "--json"])
    assert json.loads(measured.stdout)["rows"][0]["value"] == 0.5


@pytest.mark.parametrize("name", ["completions", "texts"])
def test_a_list_of_responses_is_in_no_row_as_a_whole(tmp_path, name):
    row = {"problem": "1+1?", "answer": "2", "note": "kept", name: ["\\boxed{2}", "no"]}
    rows, _ = imported(tmp_path, row, options=["-b", "own", *(["--column", f"completion={name}"] * (name == "texts"))])
    assert [set(one) for one in rows] == [
        {"benchmark", "id", "sample_index", "prompt", "completion", "answer", "note"}
    ] * 2


def test_a_file_that_exists_stays_and_both_ways_out_are_named(tmp_path):
    row = {"id": 1, "completion": "x", "answer": "1"}
    _, out = imported(tmp_path, row)
    again = quatro("eval", "import", tmp_path / "theirs.jsonl", "--from", "jsonl", "-b", "own", "-o", out, code=2)
    assert f"name another file with -o, or delete it (`rm {out}`)" in again.stderr
