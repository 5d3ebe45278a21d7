"""A grader of the user's own: whose verdicts it gives, what is kept of it, and who may name it."""

import json
import sys

import pytest

from quatro.rewards import make_grader
from quatro.types import Prompt, Rollout
from tests.kit import quatro, verdicts

SOURCE = """
def near(completion, reference):
    return abs(float(completion) - float(reference)) <= LIMIT


def vague(completion, reference):
    return 0.5


def broken(completion, reference):
    return {}[completion]
"""
COMPLETIONS = ["5", "5.4", "9"]


def eval_(*arguments, code=0):
    """What `quatro eval` says, as if in a process of its own: a module that an earlier call imported is forgotten."""
    sys.modules.pop("mine", None)
    return quatro("eval", *arguments, code=code)


def share(*arguments):
    return json.loads(eval_("passk", *arguments, "--k", "1", "--json").stdout)["rows"][0]["value"]


@pytest.fixture
def write_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "mine.py").write_text(f"LIMIT = 0.5\n{SOURCE}", encoding="utf-8")

    def write(**extra):
        row = {"benchmark": "rulers", "id": "p", "answer": 5, **extra}
        rows = [{**row, "sample_index": index, "completion": text} for index, text in enumerate(COMPLETIONS)]
        (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return tmp_path / "samples.jsonl"

    yield write
    sys.modules.pop("mine", None)


def test_the_verdicts_are_those_of_the_function_and_its_faults_name_the_line(write_samples):
    samples = write_samples()
    assert share(samples, "--grader", "mine:near") == pytest.approx(2 / 3)
    assert share(samples) == 0  # none has a box
    for name, says in {
        "mine:vague": "returned 0.5 for sample 0 of 'p'; expected True or False",
        "mine:broken": "raised KeyError on sample 0 of 'p': '5'\n  ",
        "mine:LIMIT": "is of type float; expected a function",
        "mine:absent": "mine.py has no absent",
        "near": "expected math, countdown, code, reasoning-gym or a function of your own as module:function",
    }.items():
        said = eval_("passk", samples, "--grader", name, code=2).stderr
        assert says in said
        assert "broken" not in name or "mine.py:12 in broken: return {}[completion]" in said


def test_a_graded_file_is_made_anew_once_the_function_was_changed(write_samples, tmp_path):
    samples = write_samples()
    grade = ("grade", samples, "--grader", "mine:near", "-o", tmp_path / "graded")
    assert "written" in eval_(*grade).stderr
    assert "done already" in eval_(*grade).stderr
    graded = tmp_path / "graded" / "samples.jsonl"
    assert "which was changed since" not in eval_("passk", graded, "--k", "1").stderr
    (tmp_path / "mine.py").write_text(f"LIMIT = 5.0\n{SOURCE}", encoding="utf-8")
    assert "was graded by mine:near, which was changed since" in eval_("passk", graded, "--k", "1").stderr
    assert "written" in eval_(*grade).stderr
    assert share(graded) == 1
    (tmp_path / "mine.py").unlink()  # who only reads the grades need not have it
    assert share(graded) == 1


def test_a_table_may_name_the_function_but_a_samples_file_alone_may_not(write_samples, tmp_path):
    samples = write_samples(judged_as={"grader": "mine:near", "has_short_answers": False})
    said = eval_("passk", samples, code=2).stderr
    assert "add --grader mine:near" in said
    assert "mine" not in sys.modules
    table = tmp_path / "quatro-benchmarks.toml"
    (tmp_path / "rulers.jsonl").write_text('{"id": "p", "problem": "How long?", "answer": "5"}\n', encoding="utf-8")
    table.write_text('[rulers]\nfile = "rulers.jsonl"\ngrader = "mine:near"\n', encoding="utf-8")
    assert share(samples) == pytest.approx(2 / 3)
    assert share(write_samples()) == pytest.approx(2 / 3)
    table.write_text('[rulers]\nfile = "rulers.jsonl"\ngrader = "near"\n', encoding="utf-8")
    says = "grader: expected math, countdown, code, reasoning-gym, or a function of your own as module:function, found"
    assert f"{says} 'near'" in eval_("passk", samples, code=2).stderr


def test_an_evaluation_during_training_asks_the_same_function(write_samples):
    write_samples()
    prompt = Prompt("rulers", "p", "How long?", "5", text="How long?", token_ids=(1,))
    rollouts = [Rollout(token_ids=(1,), text=text, finish_reason="stop") for text in COMPLETIONS]
    assert verdicts(make_grader("mine:near").score([prompt], [rollouts])) == [[True, True, False]]


def test_a_grader_of_ones_own_is_not_forgotten_when_samples_are_graded_again(write_samples, tmp_path):
    run, graded = tmp_path / "run", tmp_path / "graded" / "T1" / "samples.jsonl"
    (run / "samples" / "T1").mkdir(parents=True)
    (run / "config.yaml").write_text("model: m\n", encoding="utf-8")
    source = write_samples().rename(run / "samples" / "T1" / "samples.jsonl")
    for arguments in ((run,), (source, "-o", tmp_path / "graded")):
        eval_("grade", *arguments, "--grader", "mine:near")
    again = [("grade", run), ("grade", source, "-o", tmp_path / "graded"), ("grade", graded, "-o", tmp_path / "more")]
    for arguments in again:
        said = eval_(*arguments, code=2).stderr
        assert "was graded by mine:near" in said
        assert "--grader mine:near" in said
    for number, place in enumerate((run, source, graded)):
        assert share(place) == pytest.approx(2 / 3)
        for grader, expected in (("mine:near", 2 / 3), ("math", 0)):
            out = tmp_path / f"{number}-{grader}"
            eval_("grade", place, "-o", out, "--grader", grader)
            assert share(out) == pytest.approx(expected)
    (tmp_path / "mine.py").write_text(f"LIMIT = 5.0\n{SOURCE}", encoding="utf-8")
    assert "--grader mine:near" in eval_("passk", run, code=2).stderr  # not: graded anew as maths
    assert share(run, "--grader", "mine:near") == 1


@pytest.mark.parametrize(
    "signature", ["completion, reference", "completion, answer", "answer, completion", "reference, completion", "a, b"]
)
def test_a_grader_gets_its_two_texts_by_either_name_of_the_answer(write_samples, tmp_path, signature):
    names = ("completion", signature.replace("completion", "").strip(", ")) if "completion" in signature else ("a", "b")
    body = f"    return {names[0]} == '5' and {names[1]} == '5.0'\n"
    (tmp_path / "mine.py").write_text(f"def same({signature}):\n{body}", encoding="utf-8")
    assert share(write_samples(answer="5.0"), "--grader", "mine:same") == pytest.approx(1 / 3)
