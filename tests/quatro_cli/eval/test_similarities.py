"""Similarities that a built-in one is added to, and those of the user's own, from the outside."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from evals.similarity import SIMILARITIES, Similarity
from evals.similarity.measures import distinct, similarity_of_distinct
from quatro_cli.app import app
from tests.kit import quatro

ROOT = Path(__file__).parents[3]
TEXTS = ["add one", "add two", "take one", "take two"]
runner = CliRunner()


def write_samples(path, texts):
    """Two problems with the texts as answers, all right; returns the file's name."""
    rows = [
        {"benchmark": "toy", "id": id, "sample_index": index, "completion": text, "answer": "1", "correct": True}
        for id in "pq" for index, text in enumerate(texts)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def samples(tmp_path, monkeypatch):
    """A file with the four texts, in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return write_samples(tmp_path / "samples.jsonl", TEXTS)


def invoke(*arguments):
    return quatro(*arguments).stdout


def first_letter(unique, tokens):
    """1 where the first letters are equal, else 0.25."""
    letter_U = np.array([text[0] for text in unique.texts])
    return np.where(letter_U[:, None] == letter_U, 1.0, 0.25)


def test_one_function_and_one_entry_make_a_similarity(samples, monkeypatch, tmp_path):
    entry = Similarity("First letter", f"{__name__}:first_letter", "equal beginnings", 0.7, has_tokens=True)
    monkeypatch.setitem(SIMILARITIES, "first-letter", entry)
    assert "edit,first-letter,embed:MODELoryourown" in "".join(invoke("eval", "ucc", "--help").split())
    assert "0.9 (tfidf), 0.7 (first-letter), 0.8 (others)" in " ".join(invoke("eval", "ucc", "--help").split())
    shown = invoke("eval", "ucc", samples, "--similarity", "first-letter", "--k", "4", "-o", "ucc.json")
    assert "first-letter >= 0.7, components, math tokens" in shown
    rows = json.loads(Path("ucc.json").read_text(encoding="utf-8"))["rows"]
    assert [row["value"] for row in rows if (row["metric"], row["benchmark"]) == ("ucc@k", "toy")] == [2.0]
    assert "first-letter" in invoke("table", "ucc.json", "--metric", "ucc@k")
    shown = invoke("eval", "similarity", samples, "-o", "similarity.json")
    assert "first-letter" in shown
    assert "pairs at 1, %" in shown
    for what in (["similarity", "similarity.json"], ["heatmap", samples, "--id", "p", "--similarity", "first-letter"]):
        invoke("plot", *what, "-o", f"{what[0]}.svg")
    assert "First letter" in Path("similarity.svg").read_text(encoding="utf-8")
    assert "first-letter" in Path("heatmap.svg").read_text(encoding="utf-8")
    generate = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    module = importlib.util.module_from_spec(generate)
    generate.loader.exec_module(module)
    assert "| `first-letter` | equal beginnings | 0.7 | yes |" in module.similarity_page()


OWN = """
import os
from pathlib import Path


def first_word(texts):
    with open("calls", "a") as stream:
        stream.write(f"{os.getpid()} {len(texts)}\\n")
    same = float(Path("same").read_text()) if Path("same").exists() else 1.0
    first = [text.split()[0] for text in texts]
    return [[1.0 if a is b else same * (a == b) for b in first] for a in first]


def filled(diagonal, value, other):
    def matrix(texts):
        rows = [[value] * len(texts) for _ in texts]
        for place, row in enumerate(rows):
            row[place] = diagonal
        rows[0][1] = other
        return rows

    return matrix


rounded = filled(1 - 1e-6, 0.5, 0.5 + 1e-6)
distance, infinite, signed = filled(0, 1, 1), filled(1, 0, float("inf")), filled(1, -0.5, -0.5)
lopsided, words = filled(1, 0.2, 0.4), lambda texts: "alike"
wide, absent = lambda texts: [[1.0, 1.0]], None


def raises(texts):
    return deeper(texts)


def deeper(texts):
    return float(texts[0])


def leaves(texts):
    raise SystemExit(3)


def dies(texts):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def own(samples, tmp_path, monkeypatch):
    """The samples, beside a module of the user's own."""
    (tmp_path / "own_similarities.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "own_broken.py").write_text("import json\n\njson.loads('{')\n", encoding="utf-8")
    for name in ("own_similarities", "own_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry])
    return samples


def calls():
    return [line.split() for line in Path("calls").read_text(encoding="utf-8").splitlines()]


NAME = "own_similarities:first_word"


def test_a_similarity_of_ones_own_is_called_once_a_problem_and_named_wherever_it_was_used(own):
    how = ["--similarity", NAME, "--threshold", "0.4,0.6,0.8"]
    shown = invoke("eval", "ucc", own, *how, "--k", "4", "--per-problem", "-o", "ucc.json")
    assert f"{NAME} >= 0.6, components)\n" in shown
    assert [int(num) for _, num in calls()] == [4, 4]
    document = json.loads(Path("ucc.json").read_text(encoding="utf-8"))
    assert {entry["similarity"] for entry in document["problems"]} == {NAME}
    assert [entry["clusters"] for entry in document["problems"]] == [[2, 2]] * 6
    one = ["--similarity", NAME, "--threshold", "0.6"]
    for command in (
        ["eval", "clusters", own, "--id", "p"],
        ["eval", "compare", own, own, "--metric", "ucc@k", "--k", "2"],
    ):
        assert NAME in invoke(*command, *one), command
    assert NAME in invoke("eval", "similarity", own, "--similarity", NAME, "-o", "similarity.json")
    invoke("plot", "heatmap", own, "--id", "p", *one, "-o", "heatmap.svg")
    Path("own_similarities.py").unlink()
    sys.modules.pop("own_similarities")
    for format in ("markdown", "latex"):
        assert NAME.replace("_", r"\_") in invoke("table", "ucc.json", "--metric", "ucc@k", "--format", format)
    invoke("plot", "similarity", "similarity.json", "-o", "similarity.svg")
    for name in ("similarity", "heatmap"):
        drawn = Path(f"{name}.svg").read_text(encoding="utf-8")
        assert NAME in drawn, name
        assert "default threshold" not in drawn


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own_similarities:distance", "gave 0 for text 0 ('add one') and itself; expected 1"),
        ("own_similarities:infinite", "gave inf for text 0 ('add one') and text 1 ('add two'); expected a finite"),
        (
            "own_similarities:signed",
            "gave -0.5 for text 0 ('add one') and text 1 ('add two'); expected a similarity",
        ),
        ("own_similarities:lopsided", "gave 0.4 for text 0 ('add one') and text 1 ('add two'); expected the same both"),
        ("own_similarities:wide", "gave an array of shape (1, 2); expected shape (4, 4)"),
        ("own_similarities:words", "gave a str, 'alike'; expected an array of numbers of shape (4, 4)"),
        ("own_similarities:absent", "is of type NoneType; expected a function"),
        ("own_similarities:missing", "own_similarities.py has no missing"),
        ("own_similarities:raises", "in deeper: return float(texts[0])"),
        ("own_similarities:leaves", "in leaves: raise SystemExit(3)"),
        ("own_broken:f", "own_broken.py:3 in <module>: json.loads('{')"),
        ("own_absent:f", "there is no own_absent.py in "),
        ("own-similarities:f", "name your own function as module:function"),
    ],
    ids=lambda text: text.split(":")[-1] if text.startswith("own") and ":" in text else "",
)
def test_what_is_wrong_with_a_similarity_of_ones_own_is_said_with_its_file(own, name, says):
    result = runner.invoke(app, ["eval", "ucc", own, "--similarity", name, "--threshold", "0.5", "--k", "2"])
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert "own_" in result.stderr or "own-" in result.stderr


def test_rounding_of_ones_own_is_rounded_away_and_a_threshold_is_asked_for(own):
    found = similarity_of_distinct("own_similarities:rounded", distinct(TEXTS))
    assert (found == found.T).all()
    assert found.diagonal().tolist() == [1.0] * 4
    assert found[0, 1] == pytest.approx(0.5, abs=1e-6)
    for command in (["eval", "ucc", own], ["plot", "heatmap", own, "--id", "p"]):
        result = runner.invoke(app, [*command, "--similarity", NAME])
        assert (result.exit_code, "has no default threshold; choose one with --threshold" in result.stderr) == (2, True)
    assert not Path("calls").exists()


@pytest.mark.slow
def test_processes_import_it_themselves_and_one_that_dies_is_no_wait_for_ever(own):
    how = ["eval", "ucc", own, "--threshold", "0.5", "--k", "4", "--json"]
    one, two = (invoke(*how, "--similarity", NAME, *jobs) for jobs in ([], ["--jobs", "2"]))
    assert one == two
    assert {pid for pid, _ in calls()[:2]} == {str(os.getpid())}
    assert str(os.getpid()) not in {pid for pid, _ in calls()[2:]}
    result = runner.invoke(app, [*how, "--similarity", "own_similarities:dies", "--jobs", "2"])
    assert (result.exit_code, "2 processes that compare answers ended early" in result.stderr) == (1, True)


def is_at_work(pid: str) -> bool:
    """Whether a process is there and not merely unreaped, as an ended one stays where the first process is no init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_processes_end_with_a_command_that_is_killed(tmp_path):
    words = random.Random(0)
    file = write_samples(tmp_path / "many.jsonl", [" ".join(words.choices("abcdefgh", k=300)) for _ in range(1000)])
    how = ["--similarity", "edit", "--threshold", "0.9", "--linkage", "average", "--k", "1", "--jobs", "2"]
    command = subprocess.Popen([sys.executable, "-m", "quatro_cli", "eval", "ucc", file, *how])
    place, workers, until = Path(f"/proc/{command.pid}/task/{command.pid}/children"), [], time.monotonic() + 60
    while len(workers) < 3 and time.monotonic() < until:  # two that compare, and what tracks resources
        workers = place.read_text(encoding="ascii").split()
        time.sleep(0.1)
    command.kill()
    command.wait()
    assert len(workers) == 3
    until = time.monotonic() + 30
    while alive := [pid for pid in workers if is_at_work(pid)]:
        assert time.monotonic() < until, alive
        time.sleep(0.1)
