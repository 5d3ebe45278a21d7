"""Whose grade a number rests on: graded copies of a run, the rows, or a grader; and what the document says of it."""

import json
from pathlib import Path

import pytest

from evals.grading import GRADER_VERSION
from tests.kit import quatro

OURS = {"version": GRADER_VERSION, "policy": "strict"}


def invoke(*arguments: object, code: int = 0):
    return quatro(*arguments, code=code)


def document(command: str, *arguments: object) -> dict:
    return json.loads(invoke("eval", command, *arguments, "--json").stdout)


def pass_at_1(*arguments: object) -> float:
    return share(document("passk", *arguments, "--k", "1"))


def share(found: dict) -> float:
    """Pass@1 of the first benchmark, without the last bits of expm1."""
    return round(found["rows"][0]["value"], 12)


def write_rows(path: Path, texts: list[str], answer: str = "1/3", benchmark: str = "toy", **extra: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"benchmark": benchmark, "id": "p", "sample_index": index, "completion": text, "answer": answer, **extra}
        for index, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# Half of these are right to `strict`; 0.33334 is so to `simko` too, and the last has no box.
TEXTS = ["\\boxed{1/3}", "\\boxed{\\frac13}", "\\boxed{0.33334}", "it is 1/3"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    write_rows(folder / "samples" / "T1" / "toy.jsonl", TEXTS)
    (folder / "config.yaml").write_text("model: m\n", encoding="utf-8")
    about = {"schema": 1, "model": "m", "seed": 7, "sampling": {"temperature": 0.5}}
    (folder / "samples" / "T1" / "sampling.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


@pytest.fixture
def graded(run: Path) -> Path:
    invoke("eval", "grade", run, "--policy", "simko")
    return run / "graded" / "T1" / "toy.jsonl"


def never_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.samples.graders.grade_rows", lambda *rows, **options: pytest.fail("graded again"))


@pytest.mark.parametrize("name", ["run", "samples file", "graded folder", "graded file"])
def test_what_was_graded_is_used_and_says_by_whom(run, graded, name, monkeypatch):
    never_graded(monkeypatch)
    named = {"run": run, "samples file": run / "samples/T1/toy.jsonl", "graded folder": run / "graded"}
    found = document("passk", named.get(name, graded), "--k", "1")
    assert share(found) == 0.75
    assert found["grader"] == {"version": GRADER_VERSION, "policy": "simko"}
    assert (found["model"], found["seed"], found["sampling"]["temperature"]) == ("m", 7, 0.5)


def test_every_command_uses_them(run, graded, monkeypatch):
    never_graded(monkeypatch)
    assert document("ucc", run, "--similarity", "exact", "--per-problem")["problems"][0]["clusters"] == [1, 1, 1]
    assert document("clusters", run, "--similarity", "exact", "--id", "p")["problems"][0]["correct"] == 3
    flips = document("flips", run, run, "--per-problem")
    assert (flips["problems"][0]["correct"], flips["grader"]["policy"]) == (3, "simko")
    assert document("similarity", run)["grader"]["policy"] == "simko"
    assert document("compare", run, run)["rows"][0]["a"] == pytest.approx(0.75)


def test_stale_copies_are_left_aside_with_a_warning(run, graded):
    source = run / "samples/T1/toy.jsonl"
    note = graded.with_name("toy.grading.json")
    before = {file: file.read_bytes() for file in (source, graded, note)}

    def check(*words: str, value: float) -> None:
        result = invoke("eval", "passk", run, "--k", "1", "--json")
        found = json.loads(result.stdout)
        assert all(word in result.stderr for word in (*words, str(source), "graded anew"))
        assert (share(found), found["grader"]) == (value, OURS)
        for file, content in before.items():
            file.write_bytes(content)

    write_rows(source, TEXTS[:1])
    check("made of other samples", value=1.0)
    graded.write_text(graded.read_text(encoding="utf-8").replace("true", "false"), encoding="utf-8")
    check("changed after it was graded", value=0.5)
    note.unlink()
    check("no note", value=0.5)
    note.write_text("{", encoding="utf-8")
    check("cannot be read", value=0.5)
    assert pass_at_1(run) == 0.75


def test_another_grader_than_that_of_the_copy_grades_anew(run, graded):
    result = invoke("eval", "passk", run, "--grader", "math", "--k", "1", "--json")
    assert str(graded) in result.stderr
    assert "grader by benchmark, not math" in result.stderr
    found = json.loads(result.stdout)
    assert (share(found), found["grader"]) == (0.5, {**OURS, "grader": "math"})


def test_a_graded_file_changed_by_hand_has_an_unknown_grader(graded, tmp_path):
    graded.write_text(graded.read_text(encoding="utf-8").replace("true", "false", 1), encoding="utf-8")
    result = invoke("eval", "passk", graded, "--k", "1", "--json")
    assert "changed after it was graded" in result.stderr
    found = json.loads(result.stdout)
    assert (share(found), found["grader"]) == (0.5, {"version": None, "policy": None})


def test_files_of_different_graders_are_refused_by_name(tmp_path):
    for name, policy in (("a", "strict"), ("b", "simko")):
        source = write_rows(tmp_path / name / f"{name}.jsonl", TEXTS, benchmark=name)
        invoke("eval", "grade", source, "-o", tmp_path / "graded", "--policy", policy)
    files = [tmp_path / "graded" / f"{name}.jsonl" for name in "ab"]
    said = ["a.jsonl", "b.jsonl", f"version {GRADER_VERSION}, policy strict", "policy simko", "quatro eval grade"]
    assert all(word in invoke("eval", "passk", *files, code=4).stderr for word in said)
    # Of the benchmark asked for, all were graded alike.
    assert document("passk", tmp_path / "graded", "-b", "b")["grader"]["policy"] == "simko"
    # A file that is graded here takes part in it.
    fresh = write_rows(tmp_path / "c.jsonl", TEXTS, benchmark="c")
    assert document("passk", files[0], fresh)["grader"] == OURS
    refused = invoke("eval", "passk", files[1], fresh, code=4).stderr
    assert "graded here" in refused
    assert "c.jsonl" in refused


def test_two_sides_judged_differently_do_not_compare(tmp_path):
    for policy in ("strict", "simko"):
        invoke("eval", "grade", write_rows(tmp_path / "toy.jsonl", TEXTS), "-o", tmp_path / policy, "--policy", policy)
    files = [tmp_path / policy / "toy.jsonl" for policy in ("strict", "simko")]
    for arguments in (["compare"], ["compare", "--metric", "ucc@k"], ["flips"]):
        said = invoke("eval", *arguments, *files, code=4).stderr
        assert "policy simko" in said
        assert "quatro eval grade" in said
        invoke("eval", *arguments, files[0], files[0])


def test_other_commands_read_the_grades_that_eval_grade_stored(tmp_path):
    """They have no options of grading but --grader: grading first is one command."""
    file = write_rows(tmp_path / "t.jsonl", ["so it is 7", "it is 8", "\\boxed{7}"], answer="7")
    invoke("eval", "grade", file, "-o", tmp_path / "graded", "--extraction", "last-number")
    graded = tmp_path / "graded" / "t.jsonl"
    assert pass_at_1(file) == round(1 / 3, 12)
    for command in ("passk", "ucc", "similarity"):
        assert document(command, graded)["grader"] == {**OURS, "extraction": "last-number"}
        assert "--regrade" in invoke("eval", command, file, "--regrade", code=2).stderr
    assert document("clusters", graded, "--id", "p")["problems"][0]["correct"] == 2
    assert document("compare", graded, graded, "--k", "1")["rows"][0]["a"] == pytest.approx(2 / 3)
    assert document("flips", graded, graded, "--per-problem")["problems"][0]["correct"] == 2


def test_grader_overrules_the_benchmarks_name(tmp_path):
    from quatro.tasks.countdown import problems

    problem = problems("test")[0]
    chain = "2 *9 =18 +8 =26 *3 =78"
    file = write_rows(tmp_path / "mine.jsonl", [chain, "no"], answer=problem.prompt)
    assert pass_at_1(file) == 0.0
    assert pass_at_1(file, "--grader", "countdown") == 0.5
    assert document("passk", file, "--grader", "countdown")["grader"] == {**OURS, "grader": "countdown"}


def test_a_setting_that_no_row_is_judged_by_is_refused(tmp_path, graded):
    file = write_rows(tmp_path / "t.jsonl", TEXTS, correct=True)
    for one in (file, graded):
        said = invoke("eval", "passk", one, "--grader", "countdown", code=2).stderr
        assert f"`quatro eval grade {one} --grader countdown -o graded`" in said
    for option, value in (("--policy", "kind"), ("--extraction", "box"), ("--grader", "llm")):
        for arguments in (["passk", file], ["ucc", file], ["compare", file, file], ["grade", file]):
            if option == "--grader" or "grade" in arguments:
                assert f"{option} {value!r}" in invoke("eval", *arguments, option, value, code=2).stderr


def test_samples_without_boxes_bring_a_hint(tmp_path):
    file = write_rows(tmp_path / "gsm.jsonl", ["it is 7", "it is 8", "\\boxed{7}"], answer="7", benchmark="gsm")
    for arguments in (
        ["passk", file],
        ["grade", file, "-o", tmp_path / "out"],
        ["grade", file, "-o", tmp_path / "out"],
    ):
        said = invoke("eval", *arguments).stderr
        assert "2 of 3 graded samples hold no \\boxed answer" in said
        assert "--extraction last-number" in said
    write_rows(file, ["it is 7", *["\\boxed{7}"] * 9], answer="7", benchmark="gsm")  # one that ran too long
    assert "last-number" not in invoke("eval", "passk", file).stderr


def test_failures_of_the_machine_are_refused_unless_judged_again(tmp_path):
    file = write_rows(tmp_path / "t.jsonl", TEXTS, correct=False, outcome="infra_error")
    assert "infra_error" in invoke("eval", "passk", file, code=4).stderr
    invoke("eval", "grade", file, "-o", tmp_path / "graded")
    assert pass_at_1(tmp_path / "graded") == 0.5


def test_only_the_problem_shown_is_graded(tmp_path, monkeypatch):
    import evals.samples.graders

    rows = [{"benchmark": "toy", "id": id, "sample_index": 0, "completion": "\\boxed{1}", "answer": "1"} for id in "ab"]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    graded: list[str] = []
    grade = evals.samples.graders.grade_rows

    def spy(rows, **options):
        graded.extend(row.id for row in rows)
        return grade(rows, **options)

    monkeypatch.setattr("evals.samples.graders.grade_rows", spy)
    assert document("clusters", file, "--id", "b")["problems"][0]["correct"] == 1
    assert graded == ["b"]


MAJORITY = ["it is 7", "it is 7", *["it is 5"] * 6]


def maj_at_8(*arguments: object) -> float:
    """maj@8 of the first benchmark, or that of the second side of a comparison."""
    found = document(*arguments, "--also", "maj", "--k", "8")
    row = next(row for row in found["rows"] if row["metric"] == "maj@k")
    return row.get("value", row.get("b"))


@pytest.mark.parametrize("origin", ["imported", "graded", "graded copy"])
def test_votes_are_found_as_answers_are(tmp_path, origin):
    file = write_rows(tmp_path / "run" / "samples" / "T1" / "t.jsonl", MAJORITY, answer="7")
    options = ["--extraction", "last-number"]
    if origin == "imported":
        rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        judged = [json.dumps({**row, "correct": "7" in row["completion"]}) for row in rows]
        file.write_text("\n".join(judged), encoding="utf-8")
        assert document("passk", file, "--k", "8")["rows"][0]["value"] == 1
        assert "6 of 8 samples" in invoke("eval", "passk", file, "--also", "maj").stderr  # none of them has a box
        assert maj_at_8("passk", file) == 1
        return
    else:
        (tmp_path / "run" / "config.yaml").write_text("model: m\n", encoding="utf-8")
        invoke("eval", "grade", file, *options, *([] if origin == "graded copy" else ["-o", tmp_path / "graded"]))
        file = file if origin == "graded copy" else tmp_path / "graded" / "T1" / "t.jsonl"
    for _ in range(2):
        assert maj_at_8("passk", file) == 0
        assert maj_at_8("compare", file, file) == 0
