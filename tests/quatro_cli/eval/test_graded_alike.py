"""Files that were graded differently lead to what grades them alike; `quatro eval grade` takes the place of grades."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app

runner = CliRunner()


def write(path, text, **more):
    rows = [
        {"benchmark": "toy", "id": "1", "sample_index": i, "completion": text, "answer": "4", **more} for i in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def invoke(*arguments):
    return runner.invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("command", ["compare", "flips"])
def test_two_answer_styles_lead_to_the_command_that_makes_them_one(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    plain, boxed = write(tmp_path / "plain.jsonl", "it is 4"), write(tmp_path / "boxed.jsonl", "\\boxed{4}")
    assert invoke("eval", "grade", plain, "--extraction", "last-number", "-o", "graded").exit_code == 0
    refused = invoke("eval", command, "graded/plain.jsonl", boxed)
    assert refused.exit_code == 4
    typed = shlex.split(refused.stderr.split("`")[1])
    assert typed == ["quatro", "eval", "grade", "graded/plain.jsonl", str(boxed)] + shlex.split(
        "--extraction last-number -o graded-alike"
    )
    assert invoke(*typed[1:]).exit_code == 0
    assert invoke("eval", command, "graded-alike/plain.jsonl", "graded-alike/boxed.jsonl").exit_code == 0


def test_grading_says_that_it_takes_the_place_of_grades(tmp_path):
    theirs, ours = write(tmp_path / "theirs.jsonl", "\\boxed{5}", correct=True), write(tmp_path / "ours.jsonl", "no")
    graded = invoke("eval", "grade", theirs, ours, "-o", tmp_path / "graded")
    told = [line for line in graded.stderr.splitlines() if "came with grades" in line]
    assert told == [
        f"{theirs} came with grades (`correct`); {tmp_path / 'graded/theirs.jsonl'} has quatro's in their place"
    ]
    assert all(not json.loads(line)["correct"] for line in (tmp_path / "graded/theirs.jsonl").open(encoding="utf-8"))
