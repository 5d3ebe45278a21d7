"""`quatro eval import`: from another tool's file to numbers."""

import json

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()


@pytest.fixture
def rollouts(tmp_path):
    path = tmp_path / "40.jsonl"
    rows = [
        {"input": f"{q}?", "output": rf"\boxed{{{q + i}}}", "gts": str(q), "score": 0.0, "step": 40}
        for q in range(3)
        for i in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_imported_samples_can_be_measured(rollouts, tmp_path):
    out = tmp_path / "toy.jsonl"
    result = quatro("eval", "import", rollouts, "--from", "verl", "-b", "toy", "-o", out)
    assert result.stdout == f"{out}\n"
    assert "6 samples of 3 problems of toy" in result.stderr
    measured = json.loads(runner.invoke(app, ["eval", "passk", str(out), "--k", "1,2", "--json"]).stdout)
    assert [row["value"] for row in measured["rows"] if row["benchmark"] == "toy"] == [0.5, 1.0]


def test_columns_are_named_on_the_command_line(rollouts, tmp_path):
    out = tmp_path / "toy.jsonl"
    options = ["--from", "verl", "-b", "toy", "--column", "correct=score", "-o", str(out)]
    quatro("eval", "import", rollouts, *options)
    measured = json.loads(runner.invoke(app, ["eval", "passk", str(out), "--k", "2", "--json"]).stdout)
    assert measured["rows"][0]["value"] == 0.0  # the tool's word was asked for


def test_a_whole_solution_as_the_answer_leads_to_answer_after(tmp_path):
    row = {"id": 1, "completion": "\\boxed{20}", "answer": "4*5=20\n#### 20", "score": 1}
    (tmp_path / "g.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    options = ["--from", "jsonl", "-b", "gsm8k", "-o", str(out)]
    refused = runner.invoke(app, ["eval", "import", str(tmp_path / "g.jsonl"), *options])
    assert (refused.exit_code, out.exists()) == (4, False)
    assert "--answer-after '####'" in refused.stderr
    quatro("eval", "import", tmp_path / "g.jsonl", *options, "--answer-after", "####")
    assert json.loads(out.read_text(encoding="utf-8"))["answer"] == "20"
    out.unlink()
    own = [*options, "--column", "correct=score"]  # nobody grades by the reference answer
    quatro("eval", "import", tmp_path / "g.jsonl", *own)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--from", "helm"], 2, "lm-eval, inspect, lighteval"),
        (["--from", "verl"], 2, "--benchmark"),
        (["--from", "lm-eval", "-b", "toy"], 4, "input, output, gts, score, step"),
        (["--from", "verl", "-b", "toy", "--column", "answer"], 2, "NAME=FIELD"),
        (["--from", "verl", "-b", "toy", "--column", "id=input", "--column", "id=gts"], 2, "each NAME once"),
        (["--from", "parquet", "-b", "toy"], None, "parquet"),
    ],
)
def test_what_cannot_be_imported_says_why_and_writes_nothing(rollouts, tmp_path, arguments, code, said):
    out = tmp_path / "toy.jsonl"
    result = runner.invoke(app, ["eval", "import", str(rollouts), *arguments, "-o", str(out)])
    assert result.exit_code in ((code,) if code else (3, 4))  # without pyarrow, or not parquet
    assert said in result.stderr
    assert not out.exists()
    assert "this is a bug" not in result.stderr
    assert "Traceback" not in result.stderr
