"""`quatro eval grade`: what it writes, what it does not do twice, and what it explains."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evals.grading import GRADER_VERSION, same_answer
from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()


def write_rows(path: Path, completions: dict[str, list[str]], answer: str = "1+x", **extra: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for id, texts in completions.items():
            for index, text in enumerate(texts):
                row = {"benchmark": "toy", "id": id, "sample_index": index, "completion": text, "answer": answer}
                file.write(json.dumps({**row, **extra}) + "\n")
    return path


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def grade(*arguments: object):
    return runner.invoke(app, ["eval", "grade", *map(str, arguments)])


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    texts = {"a": ["\\boxed{x+1}", "\\boxed{x+2}", "x+1"], "b": ["\\boxed{\\frac{2x+2}{2}}"]}
    return write_rows(tmp_path / "in" / "toy.jsonl", texts, seed=3)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    write_rows(folder / "samples" / "T1" / "toy.jsonl", {"a": ["\\boxed{1+x}"]})
    (folder / "config.yaml").write_text("model: m\n", encoding="utf-8")
    return folder


def test_every_row_gets_its_verdict_and_keeps_the_rest(samples, tmp_path):
    result = grade(samples, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    rows = read_rows(tmp_path / "out" / "toy.jsonl")
    assert [(row["correct"], row["outcome"]) for row in rows] == [
        (True, "correct"),
        (False, "incorrect"),
        (False, "no_answer"),
        (True, "correct"),
    ]
    for found, given in zip(rows, read_rows(samples), strict=True):
        assert {key: found[key] for key in given} == given
    assert "toy.jsonl" in result.stdout


def test_each_file_has_a_count_for_every_outcome_that_another_has(samples, tmp_path):
    other = write_rows(tmp_path / "in" / "other.jsonl", {"a": ["\\boxed{x+1}"]})
    result = grade(samples, other, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    lines = {Path(file).name: counts for file, *counts in map(str.split, result.stdout.splitlines()) if counts}
    assert lines["file"] == ["rows", "correct", "incorrect", "no_answer"]
    assert lines["toy.jsonl"] == ["4", "2", "1", "1"]
    assert lines["other.jsonl"] == ["1", "1", "0", "0"]


def test_the_graded_file_measures_as_the_samples_do(samples, tmp_path):
    grade(samples, "-o", tmp_path / "out")
    found = [
        json.loads(runner.invoke(app, ["eval", "passk", str(file), "--k", "1", "--json"]).stdout)["rows"]
        for file in (samples, tmp_path / "out" / "toy.jsonl")
    ]
    assert found[0] == found[1]
    assert found[0][0]["value"] == pytest.approx((1 / 3 + 1) / 2)


def test_what_is_graded_already_is_left_alone(samples, tmp_path):
    target = tmp_path / "out" / "toy.jsonl"
    grade(samples, "-o", target.parent)
    before = target.stat().st_mtime_ns
    again = grade(samples, "-o", target.parent)
    assert "done already" in again.stderr
    assert target.stat().st_mtime_ns == before
    # Other settings, other samples, or a graded file that was changed by hand: all reasons to grade again.
    assert "written" in grade(samples, "-o", target.parent, "--policy", "simko").stderr
    write_rows(samples, {"a": ["\\boxed{x+1}"]})
    assert "written" in grade(samples, "-o", target.parent, "--policy", "simko").stderr
    assert len(read_rows(target)) == 1
    target.write_text("{}\n", encoding="utf-8")
    assert "written" in grade(samples, "-o", target.parent, "--policy", "simko").stderr


def test_failures_of_the_machine_are_tried_again_next_time(samples, tmp_path, monkeypatch):
    from evals.grading import Grade

    with monkeypatch.context() as patch:
        failed = [Grade(False, "infra_error", "x", "sandbox")] * 4
        patch.setattr("evals.samples.graders.grade_rows", lambda rows, **options: failed)
        result = grade(samples, "-o", tmp_path / "out")
    assert "infra_error" in result.stderr
    assert "infra_error" in quatro("eval", "passk", tmp_path / "out" / "toy.jsonl", code=4).stderr
    assert "written" in grade(samples, "-o", tmp_path / "out").stderr
    assert read_rows(tmp_path / "out" / "toy.jsonl")[0]["outcome"] == "correct"


def test_a_run_is_graded_inside_itself(run):
    assert grade(run).exit_code == 0
    assert read_rows(run / "graded" / "T1" / "toy.jsonl")[0]["correct"] is True
    assert "done already" in grade(run / "samples" / "T1" / "toy.jsonl").stderr


def test_json_counts_every_outcome(samples, tmp_path):
    document = json.loads(grade(samples, "-o", tmp_path / "out", "--json").stdout)
    assert document["grader"] == {"version": GRADER_VERSION, "policy": "strict", "extraction": "boxed"}
    file = document["files"][0]
    assert file["rows"] == 4
    assert file["outcomes"] == {
        **dict.fromkeys(["timeout", "error", "infra_error"], 0),
        "correct": 2,
        "incorrect": 1,
        "no_answer": 1,
    }


def test_options_reach_the_grader(tmp_path):
    file = write_rows(tmp_path / "toy.jsonl", {"a": ["the answer is 4.47", "\\boxed{4.47214}"]}, answer="4.4721")
    grade(file, "-o", tmp_path / "1")
    grade(file, "-o", tmp_path / "2", "--policy", "simko", "--extraction", "last-number")
    assert [row["outcome"] for row in read_rows(tmp_path / "1" / "toy.jsonl")] == ["no_answer", "incorrect"]
    assert [row["outcome"] for row in read_rows(tmp_path / "2" / "toy.jsonl")] == ["incorrect", "correct"]


def test_explain_shows_what_was_compared_and_writes_nothing(samples, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    entries = json.loads(grade(samples, "--explain", "--json").stdout)["samples"]
    assert [entry["stage"] for entry in entries] == ["tree", "tree", "extraction", "tree"]
    assert entries[0]["extracted"] == "x+1"
    assert (entries[0]["form"], entries[0]["reference_form"]) == ("x + 1", "1 + x")
    assert entries[2]["extracted"] is None
    only = grade(samples, "--explain", "--id", "b")
    assert "((2 * x) + 2) / 2" in only.stdout
    assert same_answer("\\frac{2x+2}{2}", "1+x").rule in only.stdout
    assert "no_answer" not in only.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_explain_shows_numbers_lists_and_units_as_they_were_read(tmp_path):
    boxes = ["x=\\{2,\\frac12\\}", "50\\% ", "[2,5)", "1,234\\text{ cm}", "2<x\\le 5", "-\\sqrt{3}-x", "three grand"]
    file = write_rows(tmp_path / "toy.jsonl", {"a": [f"\\boxed{{{box}}}" for box in boxes]}, answer="1,234")
    forms = [entry["form"] for entry in json.loads(grade(file, "--explain", "--json").stdout)["samples"]]
    assert forms == [
        *("x = list(2, 1 / 2)", "50%", "[2, 5)", "list(1, 234 [cm]) or 1234 [cm]", "2 < x <= 5", "-sqrt(3) - x"),
        "threegrand (as words only: 'grand' does not fit)",
    ]


def test_hostile_answers_are_escaped(tmp_path):
    text = "\\boxed{[red]\x1b[31m \u202e[/nope] " + "9" * 5000 + "}"
    file = write_rows(tmp_path / "toy.jsonl", {"a": [text, "\\boxed{9^{1000}^{3}}"]}, answer="5")
    result = grade(file, "--explain")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    assert "[/nope]" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "-o DIR"),
        (["--policy", "lenient"], 2, "strict or simko"),
        (["--extraction", "box"], 2, "last-number"),
        (
            ["--grader", "llm", "-o", "out"],
            2,
            "code, reasoning-gym or a function of your own",
        ),
        (["--id", "a", "-o", "out"], 2, "--explain"),
        (["--explain", "-o", "out"], 2, "-o"),
        (["--explain", "--id", "z"], 2, "'z'"),
        (["no-such-file.jsonl", "-o", "out"], 4, "no-such-file"),
    ],
)
def test_options_that_cannot_be_met_are_refused(samples, tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    result = grade(samples, *arguments)
    assert result.exit_code == code, result.output
    assert said in result.stderr


def test_two_files_of_one_name_are_refused(samples, tmp_path):
    other = write_rows(tmp_path / "other" / "toy.jsonl", {"a": ["\\boxed{1}"]})
    result = grade(samples, other, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "different folders" in result.stderr


def test_out_must_be_a_folder(samples):
    before = samples.read_bytes()
    result = grade(samples, "-o", samples)
    assert result.exit_code == 2
    assert f"-o {samples} is a file" in result.stderr
    assert samples.read_bytes() == before


def test_a_samples_file_is_never_overwritten(samples):
    result = grade(samples, "-o", samples.parent)
    assert result.exit_code == 2
    assert "overwritten" in result.stderr


def test_code_is_refused_by_name(tmp_path):
    row = {"benchmark": "humaneval", "id": "HumanEval/0", "sample_index": 0, "completion": "pass", "answer": None}
    file = tmp_path / "code.jsonl"
    file.write_text(json.dumps({**row, "correct": False}) + "\n", encoding="utf-8")
    result = grade(file, "-o", tmp_path / "out")
    assert result.exit_code == 4
    assert "HumanEval/0" in result.stderr


def test_a_dry_run_names_the_files_and_writes_none(run):
    result = grade(run, "--dry-run")
    assert str(run / "graded" / "T1" / "toy.jsonl") in result.stderr
    planned = json.loads(grade(run, "--dry-run", "--json").stdout)
    assert planned["grader"]["policy"] == "strict"
    (entry,) = planned["files"]
    assert entry == {
        "source": str(run / "samples" / "T1" / "toy.jsonl"),
        "graded": str(run / "graded" / "T1" / "toy.jsonl"),
    }
    assert not (run / "graded").exists()


@pytest.mark.slow
def test_bad_sample_files_end_as_they_should(tmp_path):
    folder = Path(os.environ.get("QUATRO_BAD_INPUTS") or ".")
    if not os.environ.get("QUATRO_BAD_INPUTS") or not (folder / "manifest.jsonl").is_file():
        pytest.skip("QUATRO_BAD_INPUTS names no folder with a manifest")
    cases = [json.loads(line) for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines() if line]
    for number, case in enumerate(case for case in cases if case["expect"] != "refuse"):
        result = grade(folder / case["file"], "-o", tmp_path / str(number))
        expected = 0 if case["expect"] in ("ok", "warn_skip") else 4
        assert result.exit_code == expected, (case, result.output)
        assert "\x1b" not in result.output
        if case["line"] is not None:
            assert f"{Path(case['file']).name}:{case['line']}" in result.stderr


def test_grades_are_compared_with_scores_that_the_samples_hold(tmp_path):
    texts = {"a": ["\\boxed{x+1}", "\\boxed{x+2}", "x+1"], "b": ["\\boxed{\\frac{2x+2}{2}}"]}
    scores = {"exact_match": 1.0, "judge": 0.5}  # only what is 0 or 1 says right or wrong
    samples = write_rows(tmp_path / "in" / "toy.jsonl", texts, source_scores=scores)
    for _ in range(2):  # the second time from the note beside the graded file
        found = json.loads(grade(samples, "-o", tmp_path / "out", "--json").stdout)["files"][0]["agreements"]
        assert found == [{"score": "exact_match", "both": 2, "neither": 0, "only_ours": 0, "only_theirs": 2}]
    shown = grade(samples, "-o", tmp_path / "out").stdout.splitlines()
    assert shown[-1].split()[1:4] == ["exact_match", "50.0", "%"]
    disputed = json.loads(grade(samples, "--disagree", "--json").stdout)["samples"]
    assert [(row["id"], row["sample_index"], row["outcome"]) for row in disputed] == [
        ("a", 1, "incorrect"),
        ("a", 2, "no_answer"),
    ]
    assert disputed[0]["stored"] == "exact_match 1"


def test_samples_without_scores_have_none_to_disagree_with(samples):
    unscored = grade(samples, "--disagree")
    assert (unscored.exit_code, "neither grades nor scores" in unscored.stderr) == (2, True)


def test_only_what_follows_a_thought_is_graded_and_an_unfinished_one_has_no_answer(tmp_path):
    right, wrong = "\\boxed{1+x}", "\\boxed{x+2}"
    texts = [f"{wrong}</think>{right}", f"{right}</think>{wrong}", f"hm {right}", "</think>"]
    file = write_rows(tmp_path / "toy.jsonl", {"a": texts})
    outcomes = ["correct", "incorrect", "no_answer", "no_answer"]

    assert grade(file, "-o", tmp_path / "whole").exit_code == 0
    assert [row["outcome"] for row in read_rows(tmp_path / "whole/toy.jsonl")][:3] == [
        "correct",
        "incorrect",
        "correct",
    ]
    assert "thinking" not in (tmp_path / "whole/toy.grading.json").read_text(encoding="utf-8")

    cut = write_rows(tmp_path / "cut.jsonl", {"a": ["hm", "ha"]})
    hint = grade(cut, "-o", tmp_path / "cut", "--thinking", "<t> </think>").stderr
    assert "2 of 2 graded samples have no \\boxed answer after a thought" in hint
    assert "does </think> end the thoughts" in hint

    assert grade(file, "-o", tmp_path / "out", "--thinking", "</think>").exit_code == 0
    rows = read_rows(tmp_path / "out/toy.jsonl")
    assert [row["outcome"] for row in rows] == outcomes
    assert [row["thought"] + row["completion"] for row in rows] == texts

    explained = json.loads(grade(file, "--explain", "--thinking", "</think>", "--json").stdout)
    assert [row["outcome"] for row in explained["samples"]] == outcomes

    def pass_at_1(*arguments: object) -> float:
        document = json.loads(quatro("eval", "passk", *arguments, "--k", "1", "--json").stdout)
        assert document["grader"].get("thinking") == "</think>"
        return document["rows"][0]["value"]

    assert pass_at_1(tmp_path / "out") == pytest.approx(0.25)


@pytest.mark.parametrize("grader", ["code", "countdown"])
def test_an_unfinished_thought_has_no_answer_whoever_grades(tmp_path, grader):
    file = write_rows(tmp_path / "toy.jsonl", {"a": ["def f(): return 1"]}, answer="1 2 3 4 5 6 -> 21")
    explained = grade(file, "--explain", "--grader", grader, "--thinking", "</think>", "--json")
    assert json.loads(explained.stdout)["samples"][0]["outcome"] == "no_answer"


def boxed(*answers: str) -> list[str]:
    return [f"\\boxed{{{answer}}}" for answer in answers]


def test_problems_whose_samples_agree_against_the_reference_are_listed(tmp_path):
    texts = {
        "all": boxed("1/2", "0.5", "1/2", "1/2"),
        "most": boxed("7", "7", "7", "3", ""),
        "half": boxed("7", "7", "3", "4"),
        "few": boxed("7", "7", "7"),
        "one right": boxed("7", "7", "7", "7", "x+1"),
        "no answer": ["7"] * 4,
        "hostile": boxed("\x1b[31m7", "\x1b[31m7", "\x1b[31m7", "\x1b[31m7", "1"),
    }
    samples = write_rows(tmp_path / "toy.jsonl", texts)
    shown = grade(samples, "-o", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert "\x1b" not in shown.stdout
    (entry,) = json.loads(grade(samples, "-o", tmp_path / "out", "--json").stdout)["files"]  # done already
    assert entry["num_against_reference"] == 3
    found = [(one["id"], one["answer"], one["reference"], one["share"]) for one in entry["against_reference"]]
    assert found == [("all", "1/2", "1+x", 1.0), ("hostile", "\x1b[31m7", "1+x", 0.8), ("most", "7", "1+x", 0.6)]
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["toy", "all", "1+x", "1/2", "100", "%"] in rows
    assert ["toy", "most", "1+x", "7", "60", "%"] in rows


def test_the_list_of_majorities_is_bounded(tmp_path):
    samples = write_rows(tmp_path / "toy.jsonl", {f"p{at}": boxed(*["9" * 300] * 4) for at in range(30)})
    shown = grade(samples, "-o", tmp_path / "out").stdout
    assert "30 problems" in shown
    assert sum(line.split()[:1] == ["toy"] for line in shown.splitlines()) == 10
    (entry,) = json.loads(grade(samples, "-o", tmp_path / "out", "--json").stdout)["files"]
    assert (entry["num_against_reference"], len(entry["against_reference"])) == (30, 10)
    assert len(entry["against_reference"][0]["answer"]) == 200


def test_a_graded_file_of_before_is_graded_again_for_its_majorities(tmp_path):
    samples, note = write_rows(tmp_path / "toy.jsonl", {"p": boxed(*"7777")}), tmp_path / "out" / "toy.grading.json"
    grade(samples, "-o", tmp_path / "out")
    said = json.loads(note.read_text(encoding="utf-8"))
    del said["against_reference"]
    note.write_text(json.dumps(said), encoding="utf-8")
    (entry,) = json.loads(grade(samples, "-o", tmp_path / "out", "--json").stdout)["files"]
    assert entry["num_against_reference"] == 1


def test_majorities_are_of_mathematics(tmp_path):
    rows = {"p": ["1 +1 =2"] * 4}
    samples = write_rows(tmp_path / "toy.jsonl", rows, answer="7 2 7 6 2 8 -> 67")
    shown = grade(samples, "-o", tmp_path / "out", "--grader", "countdown", "--json")
    assert json.loads(shown.stdout)["files"][0]["against_reference"] == []
