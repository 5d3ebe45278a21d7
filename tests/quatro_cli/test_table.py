"""`quatro table`: from samples files, hostile ones too, to tables that are safe to paste."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro, says

runner = CliRunner()

HOSTILE_NAMES = (
    "=cmd|' /C calc'!A0",
    "\\input{/etc/passwd}",
    "[bold red]x[/nope]",
    "\x1b[2J\x1b]0;x\x07",
    "%s|{0}",
    "-",
)


def run(*arguments):
    return runner.invoke(app, ["table", *map(str, arguments)])


def text(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def result_file(tmp_path):
    def make(name, values, *, metric="pass@k", **head):
        rows = [
            {"metric": metric, "benchmark": benchmark, "k": k, "value": value, "num_problems": 3, "n": 8}
            for (benchmark, k), value in values.items()
        ]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"schema": 1, "metric": metric, "rows": rows, **head}), encoding="utf-8")
        return path

    return make


@pytest.fixture
def two(result_file):
    values = {("math500", 1): 0.5, ("math500", 8): 0.75, ("aime24", 1): 0.25, ("aime24", 8): 0.5}
    better = {key: value + 0.125 for key, value in values.items()}
    return [result_file("grpo", values), result_file("two", better, label="Ours delta=0.01")]


def test_pass_at_k_is_shown_a_benchmark_at_a_time(two):
    found = list(csv.DictReader(io.StringIO(text(*two, "--format", "csv"))))
    assert found == [
        {"Dataset": "MATH500", "Method": "grpo", "1": "50.00", "8": "75.00"},
        {"Dataset": "MATH500", "Method": "Ours delta=0.01", "1": "62.50", "8": "87.50"},
        {"Dataset": "AIME24", "Method": "grpo", "1": "25.00", "8": "50.00"},
        {"Dataset": "AIME24", "Method": "Ours delta=0.01", "1": "37.50", "8": "62.50"},
    ]


def test_average_shows_means_over_benchmarks(two):
    shown = text(*two, "--average")
    assert "| grpo            |     37.50 |     62.50 |" in shown
    assert "| Ours delta=0.01 | **50.00** | **75.00** |" in shown


def test_with_paper_puts_published_rows_beside_ones_own(two):
    document = json.loads(text(two[0], "--average", "--with-paper", "--format", "json", "--k", "1,8"))
    rows = [row for section in document["tables"][0]["sections"] for row in section["rows"]]
    assert {"grpo", "GSPO (paper)", "Ours delta=0.1 (paper)"} <= {row["label"] for row in rows}


def test_rows_and_models_have_the_names_that_options_give(two):
    found = list(csv.DictReader(io.StringIO(text(*two, "--labels", "GRPO,Mine", "--format", "csv"))))
    assert [row["Method"] for row in found] == ["GRPO", "Mine"] * 2
    assert "**Pass@k" in text(*two, "--models", "Qwen")
    result = run(*two, "--labels", "GRPO")
    assert result.exit_code == 2
    assert "expected 2, one for each of grpo, Ours delta=0.01" in result.stderr


def test_the_metric_chooses_the_layout(result_file, two):
    assert "k = 8 ucc" in text(result_file("ucc", {("a", 8): 3.0}, metric="ucc@k"), "--format", "csv")
    assert "HumanEval" in text(result_file("x", {("humaneval", 1): 0.5}))
    mixed = run(two[0], result_file("u", {("a", 8): 3.0}, metric="ucc@k"))
    assert mixed.exit_code == 2
    assert "choose one with --metric" in mixed.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ci"], "no file has intervals"),
        (["--k", "3"], "only at 1, 8"),
        (["--k", "x"], "expected numbers"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(two, options, said):
    result = run(*two, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_result_may_be_called_as_its_samples_are(two, tmp_path):
    (tmp_path / "samples.jsonl.json").write_bytes(Path(two[0]).read_bytes())
    assert run(tmp_path / "samples.jsonl.json").exit_code == 0


def test_what_is_not_a_result_or_a_run_is_named(tmp_path):
    (tmp_path / "samples.jsonl").write_text('{"benchmark": "a"}\n', encoding="utf-8")
    for path in (tmp_path / "samples.jsonl", tmp_path / "missing.json", tmp_path):
        result = run(path)
        assert result.exit_code == 4
        assert str(path) in result.stderr


@pytest.mark.parametrize("num_rows", [1, 2])
@pytest.mark.parametrize("name", ["drawn.jsonl", "drawn.jsonl.gz"])
@pytest.mark.parametrize("command", [("table",), ("plot", "passk")], ids=" ".join)
def test_samples_in_place_of_a_result_are_recognised(command, name, num_rows, tmp_path):
    path = tmp_path / name
    row = {"benchmark": "toy", "id": "p", "completion": "so 1", "answer": "1", "correct": True}
    lines = "".join(json.dumps({**row, "sample_index": i}) + "\n" for i in range(num_rows)).encode()
    path.write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    assert f"quatro eval passk {path} -o" in quatro(*command, path, code=4).stderr


def test_a_file_is_written_whole_or_not_at_all(two, tmp_path, monkeypatch):
    out = tmp_path / "new" / "t.tex"
    assert text(*two, "--format", "latex", "-o", out) == ""
    before = out.read_text(encoding="utf-8")
    assert before == text(*two, "--format", "latex")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    result = run(*two, "--format", "csv", "-o", out)
    assert result.exit_code == 1
    assert "No space left" in result.stderr
    assert out.read_text(encoding="utf-8") == before
    assert [path.name for path in out.parent.iterdir()] == ["t.tex"]


def test_a_run_shows_its_final_entropy_and_its_results(tmp_path, result_file):
    folder = tmp_path / "quickstart-gspo-0"
    (folder / "results").mkdir(parents=True)
    shown = quatro("config", "show", "quickstart", "-m", "gspo")
    (folder / "config.yaml").write_text(shown.stdout, encoding="utf-8")
    rows = [json.dumps({"step": step, "entropy/token_mean": 0.25}) for step in range(1, 13)]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert "Baselines quickstart-gspo-0" in text(folder)
    assert "0.25" in text(folder)
    result_file("passk", {("math500", 1): 0.5}).rename(folder / "results" / "passk.json")
    assert "quickstart-gspo-0" in text(folder, "--format", "csv")
    assert "50.00" in text(folder, "--format", "csv")
    assert "0.25" in text(folder, "--metric", "entropy")


def test_files_given_a_label_twice_are_averaged_and_said_to_be(result_file):
    paths = [result_file(f"s{i}", {("a", 1): value}, label="M", seed=i) for i, value in enumerate((0.25, 0.75))]
    says(run(paths[0], "--ci"), key="--ci", advice="quatro eval passk FILE --ci -o RESULT.json")
    says(run(*paths, "--ci"), key="--ci")
    result = run(*paths)
    assert result.exit_code == 0
    assert "50.00" in result.stdout
    assert "Means of 2 seeds." in result.stdout
    assert "needs 3" in result.stdout  # an interval over seeds alone
    assert "Means of 2 seeds." in run(*paths, "--format", "csv").stderr


def check_formats(path):
    """Every format of a hostile result: no escape sequence, and no formula."""
    for name in ("csv", "markdown", "json", "latex"):
        result = run(path, "--format", name)
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout + result.stderr
        assert "this is a bug" not in result.stderr
        assert "Traceback" not in result.stderr
    for cells in csv.reader(io.StringIO(text(path, "--format", "csv"))):
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_labels_benchmarks_and_ids_come_through(tmp_path, name):
    samples = tmp_path / "s.jsonl"
    rows = [
        {"benchmark": name, "id": name, "sample_index": i, "completion": name, "answer": "1", "correct": i == 0}
        for i in range(2)
    ]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "R.json"
    quatro("eval", "passk", samples, "--label", name, "-o", out)
    check_formats(out)


HOSTILE_FILES = sorted(Path(os.environ.get("QUATRO_BAD_INPUTS", "nowhere")).rglob("hostile_*.jsonl"))


@pytest.mark.skipif(not HOSTILE_FILES, reason="QUATRO_BAD_INPUTS names no folder with hostile_*.jsonl")
@pytest.mark.parametrize("file", HOSTILE_FILES, ids=lambda path: path.stem)
def test_hostile_samples_files_come_through(tmp_path, file):
    out = tmp_path / "R.json"
    arguments = ["eval", "passk", str(file), "--per-problem", "-o", str(out)]
    quatro(*arguments)
    check_formats(out)


def test_it_works_without_torch(two):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from quatro_cli.app import app\n"
        f"app({['table', *map(str, two), '--average']!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "62.50" in done.stdout
