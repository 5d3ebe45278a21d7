"""Samples of a benchmark of one's own are judged alike in every folder, whatever is defined there."""

import json

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()
DIGITS = "8 2 4 6 1 9 -> 20"


def run(*arguments):
    return quatro(*arguments)


@pytest.fixture
def sums(tmp_path, monkeypatch):
    """Two folders that define `sums` differently, and samples that were imported in the first."""
    for name, grader, answer in (("here", "countdown", DIGITS), ("there", "math", "20")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.jsonl").write_text(
            json.dumps({"id": "1", "problem": "?", "answer": answer}) + "\n", encoding="utf-8"
        )
        (tmp_path / name / "quatro-benchmarks.toml").write_text(
            f'[sums]\nfile = "p.jsonl"\ngrader = "{grader}"\nhas_short_answers = {str(name == "here").lower()}\n',
            encoding="utf-8",
        )
    texts = ["9 +1 =10 *2 =20", "6 +4 =10 +9 =19 +1 =20", "8 +2 =10 *4 =40"]  # two ways, and another total
    rows = [{"id": "1", "completion": text, "answer": DIGITS} for text in texts]
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    run("eval", "import", "--from", "jsonl", foreign, "-b", "sums", "-o", tmp_path / "sums.jsonl")
    return tmp_path / "sums.jsonl"


def test_the_folder_decides_neither_grades_nor_clusters(sums, monkeypatch):
    at_home = json.loads(run("eval", "ucc", sums, "--json").stdout)
    assert {row["similarity"] for row in at_home["rows"]} == {"exact"}
    assert at_home["rows"][0]["value"] == pytest.approx(2 / 3)
    for folder in (sums.parent / "there", sums.parent):
        monkeypatch.chdir(folder)
        assert json.loads(run("eval", "ucc", sums, "--json").stdout)["rows"] == at_home["rows"]
        run("eval", "grade", sums, "-o", folder / "graded")
        copy = folder / "graded" / "sums.jsonl"
        assert json.loads(run("eval", "ucc", copy, "--json").stdout)["rows"] == at_home["rows"]


def test_chains_are_short_answers(sums):
    table = sums.parent / "here" / "quatro-benchmarks.toml"
    said = table.read_text(encoding="utf-8")
    table.write_text(said.replace("has_short_answers = true", ""), encoding="utf-8")
    assert json.loads(run("benchmarks", "show", "sums", "--json").stdout)["has_short_answers"] is True


def test_an_answer_that_is_no_countdown_problem_is_named_with_the_key(sums):
    file = sums.parent / "here" / "p.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace(DIGITS, "21"), encoding="utf-8")
    result = quatro("benchmarks", "show", "sums", code=4)
    for words in ("is not a countdown prompt: '21'", "key `grader` of the benchmark's table", "7 2 7 6 2 8 -> 67"):
        assert words in result.stderr
    sums.write_text(sums.read_text(encoding="utf-8").replace(DIGITS, "21"), encoding="utf-8")
    assert "is not a countdown prompt: '21'" in runner.invoke(app, ["eval", "passk", str(sums)]).stderr


def test_old_samples_that_record_nothing_are_judged_by_the_folder(sums, monkeypatch):
    rows = [json.loads(line) for line in sums.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        del row["judged_as"]
    sums.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {}
    for folder in ("here", "there"):
        monkeypatch.chdir(sums.parent / folder)
        values[folder] = json.loads(run("eval", "passk", sums, "--k", "1", "--json").stdout)["rows"][0]["value"]
    assert values == {"here": pytest.approx(2 / 3), "there": 0.0}


def test_a_row_that_says_nothing_is_judged_like_the_others(sums, monkeypatch):
    rows = [json.loads(line) for line in sums.read_text(encoding="utf-8").splitlines()]
    del rows[0]["judged_as"]  # drawn before samples said it
    sums.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.chdir(sums.parent)
    found = json.loads(run("eval", "ucc", sums, "--k", "1", "--json").stdout)["rows"][0]
    assert (found["value"], found["similarity"]) == (pytest.approx(2 / 3), "exact")


def test_rows_of_two_benchmarks_of_one_name_are_not_mixed(sums):
    rows = [json.loads(line) for line in sums.read_text(encoding="utf-8").splitlines()]
    rows[1]["judged_as"]["grader"] = "math"
    sums.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = runner.invoke(app, ["eval", "passk", str(sums)])
    assert (result.exit_code, "two benchmarks of one name" in result.stderr) == (4, True)
