"""Grades of other programs: who judged is said where it matters, and disputed samples show all that decides."""

import json

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()
NOTE = "not quatro's: `quatro eval grade FILE -o graded`"


def invoke(*arguments):
    return quatro("eval", *arguments)


def samples(path, **more):
    """Two samples of one problem, of which the first is right."""
    path.parent.mkdir(exist_ok=True)
    texts = ["So it is\n\\boxed{4}, said \x1b[31mhe", "\\boxed{5}"]
    rows = [
        {"benchmark": "toy", "id": "1", "sample_index": i, "completion": text, "answer": "4", **more}
        for i, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["compare", "flips"])
def test_sides_that_others_graded_are_named_with_what_to_type(tmp_path, monkeypatch, command):
    theirs, ours = samples(tmp_path / "theirs.jsonl", correct=False), samples(tmp_path / "ours.jsonl")
    told = invoke(command, theirs, ours).stderr
    assert f"{theirs}: the grades came with the samples" in told
    assert f"quatro graded {ours}" in told
    assert f"`quatro eval grade {theirs} -o graded`" in told
    monkeypatch.chdir(tmp_path)
    invoke("grade", theirs, "-o", "graded")
    for alike in (
        (tmp_path / "graded" / "theirs.jsonl", ours),
        (theirs, samples(tmp_path / "more.jsonl", correct=True)),
    ):
        assert "the grades came with" not in invoke(command, *alike).stderr


@pytest.mark.parametrize("command", ["passk", "ucc"])
def test_numbers_of_foreign_grades_say_so(tmp_path, command):
    theirs, ours = samples(tmp_path / "theirs.jsonl", correct=False), samples(tmp_path / "ours.jsonl")
    assert NOTE in invoke(command, theirs).stderr
    assert NOTE not in invoke(command, ours).stderr
    (tmp_path / "sampling.json").write_text('{"model": "m"}', encoding="utf-8")  # `quatro sample --grade` drew them
    assert NOTE not in invoke(command, theirs).stderr


def test_a_disputed_sample_shows_its_end_and_both_verdicts(tmp_path):
    first = samples(tmp_path / "a" / "toy.jsonl", source_scores={"judge": 0})
    samples(tmp_path / "b" / "toy.jsonl", source_scores={"judge": 1})
    assert [
        row["sample_index"] for row in json.loads(invoke("grade", first, "--disagree", "--json").stdout)["samples"]
    ] == [0]
    both = invoke("grade", tmp_path / "a", tmp_path / "b", "--disagree")  # the same problems, file by file
    assert "2 of 4 samples" in both.stderr
    one, other = both.stdout.rstrip().split("\n\n")
    for said in (str(first), "correct", "judge 0", "So it is\\n\\boxed{4}, said \\x1b[31mhe"):
        assert said in one
    assert "incorrect" in other
    assert "judge 1" in other


def test_a_graded_file_is_explained_as_it_was_graded(tmp_path):
    file = tmp_path / "toy.jsonl"
    row = {"benchmark": "toy", "id": "1", "sample_index": 0, "completion": "The answer is 4.", "answer": "4"}
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    invoke("grade", file, "-o", tmp_path / "graded", "--extraction", "answer-is")
    graded = tmp_path / "graded" / "toy.jsonl"
    told = invoke("grade", graded, "--disagree")
    assert "0 of 1 samples" in told.stderr
    assert "explained as it was graded, with policy strict, extraction answer-is" in told.stderr
    asked = json.loads(invoke("grade", graded, "--disagree", "--extraction", "boxed", "--json").stdout)["samples"]
    assert [(one["outcome"], one["stored"]) for one in asked] == [("no_answer", "correct 1")]

    note = graded.with_name("toy.grading.json")
    note.write_text(note.read_text("utf-8").replace('"grader": null', '"grader": "mine:judge"'), encoding="utf-8")
    refused = runner.invoke(app, ["eval", "grade", str(graded), "--explain"])
    assert (refused.exit_code, "add --grader mine:judge" in refused.stderr) == (2, True)


def test_of_a_long_response_the_end_is_shown(tmp_path):
    path = tmp_path / "toy.jsonl"
    row = {
        "benchmark": "toy",
        "id": "1",
        "sample_index": 0,
        "completion": "so " * 99 + "\\boxed{4} it is",
        "answer": "4",
    }
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    (end,) = [line for line in invoke("grade", path, "--explain").stdout.splitlines() if "ends with" in line]
    assert len(end) < 250
    assert "  ..." in end
    assert end.endswith("\\boxed{4} it is")


@pytest.mark.parametrize("command", ["compare", "flips"])
def test_a_side_without_boxes_is_named_with_the_command_that_grades_it(tmp_path, command):
    boxed, bare = samples(tmp_path / "boxed.jsonl"), samples(tmp_path / "bare.jsonl")
    bare.write_text(bare.read_text(encoding="utf-8").replace("boxed{", "mathbf{"), encoding="utf-8")
    told = invoke(command, bare, boxed).stderr
    assert told.count(f"{bare}: toy: 2 of 2 graded samples hold no") == 1
    assert f"`quatro eval grade {bare} --extraction last-number -o graded`" in told
    assert f"{boxed}: toy" not in told
