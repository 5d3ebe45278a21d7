"""Samples of code through the commands: graded, measured, and refused where nothing isolates programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evals.code.grading import ALLOW_UNSAFE, asserts, isolation
from evals.samples.about import problems_file
from evals.samples.code import MOST_CHARS_IN_A_ROW, short_values, write_long_values
from evals.sandbox import Tier, probe
from quatro_cli.app import app

runner = CliRunner()
needs_sandbox = pytest.mark.skipif(probe().name == "none", reason="no isolation here")
LONG = "#" * MOST_CHARS_IN_A_ROW
EXTRA = {
    "entry_point": "f",
    "tests": {"base": asserts(["assert f(1) == 1"], setup=LONG), "plus": asserts(["assert f(-3) == 3"])},
}
COMPLETIONS = [
    "def f(x):\n    return abs(x)",
    "```python\ndef f(x):\n    # the size\n    return abs(x)\n```",
    "def f(x):\n    return x if x > 0 else -x",
    "def f(x):\n    return x",
    "I do not know.",
]


def quatro(*arguments: object):
    return runner.invoke(app, [*map(str, arguments)])


def write(folder: Path, *, in_rows: bool = False, benchmark: str = "humaneval_x") -> Path:
    file = folder / f"{benchmark}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    extra = EXTRA if in_rows else short_values(EXTRA)
    rows = [
        {"benchmark": benchmark, "id": "a", "sample_index": index, "completion": text, "answer": None, **extra}
        for index, text in enumerate(COMPLETIONS)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if not in_rows:
        write_long_values(file, [("a", "Write f.", EXTRA)])
    return file


def rows(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@needs_sandbox
@pytest.mark.parametrize("in_rows", [True, False], ids=["in the rows", "beside the file"])
def test_samples_are_graded_by_the_tests_that_come_with_them(tmp_path, in_rows):
    done = quatro("eval", "grade", write(tmp_path / "in", in_rows=in_rows), "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    found = [(row["outcome"], row.get("verdicts")) for row in rows(tmp_path / "out" / "humaneval_x.jsonl")]
    right = ("correct", {"base": "pass", "plus": "pass"})
    assert found == [right, right, right, ("incorrect", {"base": "pass", "plus": "fail"}), ("no_answer", None)]


@needs_sandbox
def test_two_benchmarks_in_a_folder_have_tests_of_their_own(tmp_path):
    for name, size in (("humaneval_x", 1), ("humaneval_y", 2)):
        problems = problems_file(write(tmp_path, benchmark=name))
        problems.write_text(problems.read_text().replace("f(1) == 1", f"f(1) == {size}"), encoding="utf-8")
    done = quatro("eval", "passk", tmp_path, "--k", "1", "--json")
    assert done.exit_code == 0, done.output
    assert [row["value"] for row in json.loads(done.stdout)["rows"]][:2] == [pytest.approx(0.6), 0.0]


@needs_sandbox
def test_samples_of_a_file_of_ones_own_need_no_entry_in_a_registry(tmp_path):
    done = quatro("eval", "passk", write(tmp_path, benchmark="mine"), "--k", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["value"] == pytest.approx(0.6)


@needs_sandbox
def test_other_tests_of_the_same_problem_beside_another_file_are_refused(tmp_path):
    one, other = write(tmp_path / "1"), write(tmp_path / "2")
    other.write_text(other.read_text().replace('"sample_index": ', '"sample_index": 1'), encoding="utf-8")
    problems = problems_file(other)
    problems.write_text(problems.read_text().replace("f(1) == 1", "f(1) == 2"), encoding="utf-8")
    done = quatro("eval", "passk", one, other, "--k", "1")
    assert done.exit_code == 4
    assert "has other tests of 'a' than another humaneval_x.problems.json" in done.stderr


@needs_sandbox
def test_results_name_the_sandbox(tmp_path):
    done = quatro("eval", "passk", write(tmp_path), "--k", "1,5", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [row["value"] for row in result["rows"]][:2] == [pytest.approx(0.6), 1.0]
    assert result["grader"]["sandbox"] == isolation()


@needs_sandbox
def test_tests_that_cannot_be_run_are_no_wrong_answer(tmp_path):
    problems = problems_file(write(tmp_path))
    problems.write_text(problems.read_text().replace("f(1) == 1", "f(object()) == 1"), encoding="utf-8")
    assert "error 4 of 5 graded samples count as wrong" in quatro("eval", "passk", tmp_path, "--k", "1").stderr


@needs_sandbox
def test_code_and_maths_are_measured_together(tmp_path):
    maths = {"benchmark": "toy", "id": "1", "sample_index": 0, "completion": r"\boxed{2}", "answer": "2"}
    (tmp_path / "toy.jsonl").write_text(json.dumps(maths) + "\n", encoding="utf-8")
    (run := tmp_path / "run" / "samples" / "T1").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("model: m\n", encoding="utf-8")
    write(run)
    (run / "toy.jsonl").write_text(json.dumps(maths) + "\n", encoding="utf-8")
    assert quatro("eval", "grade", tmp_path / "run").exit_code == 0
    done = quatro("eval", "passk", tmp_path / "run", "--k", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["grader"]["sandbox"] == isolation()


@needs_sandbox
def test_graded_code_is_graded_again_in_another_sandbox(tmp_path, monkeypatch):
    file = write(tmp_path / "in")
    assert quatro("eval", "grade", file, "-o", tmp_path / "out").exit_code == 0
    assert "done already" in quatro("eval", "grade", file, "-o", tmp_path / "out").output
    monkeypatch.setattr("evals.samples.graded.sandbox_here", lambda: "full, version 99")
    assert "written" in quatro("eval", "grade", file, "-o", tmp_path / "out").output


@needs_sandbox
def test_grades_are_explained_with_the_verdict(tmp_path):
    done = quatro("eval", "grade", write(tmp_path), "--explain", "--json")
    assert done.exit_code == 0, done.output
    why = [sample["why"] for sample in json.loads(done.stdout)["samples"]]
    assert why[0] == "run with its tests"
    assert why[3].startswith("run with its tests (plus: fail")


def test_missing_tests_are_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    row = {"benchmark": "humaneval", "id": "HumanEval/0", "sample_index": 0, "completion": "x", "answer": None}
    file = tmp_path / "humaneval.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    done = quatro("eval", "passk", file, "--k", "1")
    assert done.exit_code == 4
    assert "quatro benchmarks fetch humaneval" in done.stderr


def test_code_is_not_graded_as_maths(tmp_path):
    done = quatro("eval", "passk", write(tmp_path), "--k", "1", "--grader", "math")
    assert done.exit_code == 2
    assert "has no reference answer; leave the option out" in done.stderr


def test_without_isolation_the_command_ends_with_3_unless_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr("evals.sandbox.pool.probe", lambda: Tier("none", ()))
    monkeypatch.setattr("evals.code.grading.probe", lambda: Tier("none", ()))
    monkeypatch.setenv(ALLOW_UNSAFE, "")
    done = quatro("eval", "passk", write(tmp_path), "--k", "1")
    assert done.exit_code == 3
    assert "--allow-unsafe-code" in done.stderr
    done = quatro("eval", "grade", tmp_path / "humaneval_x.jsonl", "-o", tmp_path / "graded", "--allow-unsafe-code")
    assert done.exit_code == 0, done.output
    found = json.loads(quatro("eval", "passk", tmp_path / "graded", "--k", "1", "--json").stdout)
    assert found["grader"]["sandbox"].startswith("none, version")


def test_samples_carry_short_values_and_long_ones_lie_beside_once(tmp_path):
    extra = {"difficulty": "easy", "correct": "a column of somebody's", **EXTRA}
    assert short_values(extra) == {"difficulty": "easy", "entry_point": "f"}
    write_long_values(tmp_path / "b.jsonl", [("1", "p", {"level": 1})])
    assert list(tmp_path.iterdir()) == []
    write_long_values(tmp_path / "b.jsonl", [("1", "p", {"level": 1, "tests": "x" * 300})])
    assert json.loads((tmp_path / "b.problems.json").read_text())["problems"] == {
        "1": {"problem": "p", "tests": "x" * 300}
    }
    with pytest.raises(Exception, match="other tests"):
        write_long_values(tmp_path / "b.jsonl", [("1", "p", {"level": 1, "tests": "y" * 300})])


def test_samples_that_were_graded_as_they_were_drawn_name_their_sandbox(tmp_path):
    row = {"benchmark": "own", "id": "a", "sample_index": 0, "completion": "x", "answer": None, "correct": True}
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({**row, "sandbox": "full, version 1"}) + "\n", encoding="utf-8")
    done = quatro("eval", "passk", file, "--k", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["grader"] == {"version": None, "policy": None, "sandbox": "full, version 1"}


@needs_sandbox
@pytest.mark.parametrize("place", ["beside", "copy of the benchmark"])
def test_graded_copies_of_code_are_left_aside_once_the_tests_changed(tmp_path, monkeypatch, place):
    run = tmp_path / "run"
    file = write(run / "samples" / "T1", benchmark="mine")
    (run / "config.yaml").write_text("model: m\n", encoding="utf-8")
    tests = problems_file(file)
    if place != "beside":
        tests = tmp_path / "mine-problems.jsonl"
        problems_file(file).unlink()
        row = {"id": "a", "problem": "Write f.", "entry_point": "f", "tests": EXTRA["tests"]}
        tests.write_text(json.dumps(row) + "\n", encoding="utf-8")
        (table := tmp_path / "quatro-benchmarks.toml").write_text(
            '[mine]\nfile = "mine-problems.jsonl"\ngrader = "code"\n', encoding="utf-8"
        )
        monkeypatch.setenv("QUATRO_BENCHMARKS", str(table))

    def share():
        done = quatro("eval", "passk", run, "--k", "1", "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["rows"][0]["value"], "graded with other tests" in done.stderr

    assert "written" in quatro("eval", "grade", run).stderr
    assert "done already" in quatro("eval", "grade", run).stderr
    assert share() == (pytest.approx(0.6), False)
    tests.write_text(tests.read_text(encoding="utf-8").replace("f(1) == 1", "f(1) == 9"), encoding="utf-8")
    assert share() == (0.0, True)
    assert "written" in quatro("eval", "grade", run).stderr
    assert share() == (0.0, False)
    note = run / "graded" / "T1" / "mine.grading.json"
    said = json.loads(note.read_text(encoding="utf-8"))
    note.write_text(json.dumps({**said, "sandbox": "full, version 0"}), encoding="utf-8")
    assert "sandbox 0" in quatro("eval", "passk", run, "--k", "1").stderr
    note.write_text(json.dumps({**said, "grader": {**said["grader"], "version": "1"}}), encoding="utf-8")
    assert "grader 1" in quatro("eval", "passk", run, "--k", "1").stderr
