"""Texts that a model or a stranger wrote: they act on no terminal, spreadsheet, table, report or file name."""

from __future__ import annotations

import csv
import io
import json
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.kit import quatro, read_json, write_rows

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m[/nope][bold]\u202e\x08"
ID = f"../../../{ESCAPES}"
BENCHMARK = "../../outside"
FORMULAS = ("=cmd()", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "x\r=1", "x\r\n=1")
TEX = r"\input{/etc/passwd} % & $x^2$ # _ { } ~ \end{tabular}"


def controls(text: str) -> set[str]:
    """The characters of ``text`` that act on a terminal."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}


def rows(benchmark: str, problem: str) -> Iterator[dict]:
    texts = (f"{ESCAPES} \\boxed{{4}}", f"{ESCAPES} other \\boxed{{4}}", f"{ESCAPES} \\boxed{{{ESCAPES}}}", TEX)
    for index, text in enumerate(texts):
        yield {"benchmark": benchmark, "id": problem, "sample_index": index, "completion": text, "answer": "4"}


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "samples.jsonl", [*rows("toy", ID), *rows("toy", "plain")])


COMMANDS = {
    "passk": ["eval", "passk", "{samples}", "--k", "1,2"],
    "ucc": ["eval", "ucc", "{samples}", "--k", "2"],
    "flips": ["eval", "flips", "{samples}", "{samples}"],
    "compare": ["eval", "compare", "{samples}", "{samples}", "--k", "1"],
    "clusters": ["eval", "clusters", "{samples}", "--id", ID],
    "similarity": ["eval", "similarity", "{samples}"],
    "explain": ["eval", "grade", "{samples}", "--explain"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_fault_35_no_text_of_a_model_acts_on_the_terminal(samples, name):
    result = quatro(*(samples if word == "{samples}" else word for word in COMMANDS[name]))
    assert controls(result.stdout + result.stderr) == set()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was written down by hand, with hostile texts wherever a text may stand."""
    from quatro.config import load_config
    from quatro.runs.directory import RunDir, log_only

    path = tmp_path / "run"
    with RunDir.create(path, load_config("quickstart")) as opened:
        opened.append_metrics({"step": 1.0, "reward/mean": 0.5, "reward/errors": 1.0})
        rollouts = [
            {"id": ID, "prompt": ESCAPES, "completion": ESCAPES, "reward": 0.0, "error": f"KeyError: {ESCAPES}"}
        ]
        opened.write_rollouts(1, rollouts)
        log = opened.log_handler()
        try:
            raise KeyError(ESCAPES)
        except KeyError as error:
            log_only(log, f"the reward failed on {ESCAPES}", error=error)
        log.close()
        opened.set_status("failed", step=1, reason=f"broken: {ESCAPES}")
    return path


@pytest.mark.parametrize("argv", [["runs", "show"], ["runs", "list"], ["rollouts"], ["doctor"]], ids=" ".join)
def test_fault_35_no_text_of_a_run_acts_on_the_terminal(run, argv):
    command, *options = argv if argv[0] != "runs" else [" ".join(argv)]
    result = quatro(*command.split(), run, *options)
    assert controls(result.stdout + result.stderr) == set()


def test_fault_35_a_log_can_be_shown_on_a_terminal(run):
    log = (run / "log.txt").read_text(encoding="utf-8")
    assert "KeyError" in log
    assert controls(log) == set()


def test_fault_32_names_of_problems_and_benchmarks_leave_no_folder(tmp_path):
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    samples = write_rows(folder / "samples.jsonl", [*rows(BENCHMARK, ID), *rows(BENCHMARK, "/etc/x")])
    before = set(tmp_path.rglob("*"))
    quatro("eval", "grade", samples, "-o", folder / "graded")
    quatro("eval", "ucc", samples, "--k", "2", "-o", folder / "ucc.json")
    quatro("table", folder / "ucc.json", "-o", folder / "ucc.csv")
    outside = {path for path in set(tmp_path.rglob("*")) - before if folder not in path.parents}
    assert outside == set()
    assert any((folder / "graded").rglob("*.jsonl"))


def result_named(path: Path, name: str) -> Path:
    """A result document of `eval passk` whose label is ``name``."""
    samples = write_rows(path.with_suffix(".jsonl"), rows("math500", "1"))
    quatro("eval", "passk", samples, "--k", "1,2", "--label", name, "-o", path)
    return path


@pytest.mark.parametrize("name", FORMULAS)
def test_fault_33_no_cell_of_a_csv_file_is_a_formula(tmp_path, name):
    result = result_named(tmp_path / "result.json", name)
    quatro("table", result, "--format", "csv", "-o", tmp_path / "table.csv")
    text = (tmp_path / "table.csv").read_bytes().decode("utf-8")
    # As a spreadsheet reads it: rows end at a carriage return, too.
    cells = [cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line]
    assert any(name[-2:] in cell for cell in cells)
    assert not [cell for cell in cells if cell.strip()[:1] in tuple("=+@-")]


def test_fault_34_no_name_is_latex(tmp_path):
    """What LaTeX makes of it is tried by `make test-latex`."""
    result = result_named(tmp_path / "result.json", TEX)
    quatro("table", result, "--format", "latex", "-o", tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert "passwd" in text
    assert "\\input" not in text
    assert text.count("\\end{tabular}") == text.count("\\begin{tabular}")


def test_fault_47_a_report_of_hostile_text_is_inert(run, tmp_path):
    """What a browser makes of it is tried by `make test-report`."""
    markup = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    status = read_json(run / "status.json")
    (run / "status.json").write_text(json.dumps({**status, "reason": markup}), encoding="utf-8")
    write_rows(
        run / "samples" / "toy.jsonl", [{**row, "completion": markup + row["completion"]} for row in rows("toy", ID)]
    )
    quatro("report", run, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "Content-Security-Policy" in page


def test_fault_35_no_name_of_a_tensor_acts_on_the_terminal(tiny_folder, tmp_path, fork):
    """transformers reports tensors that it does not know, by name."""
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "\x1b[2Jname": torch.zeros(1)}, folder / "model.safetensors", {"format": "pt"})
    program = f"from quatro.policy.loading import load_model; load_model({str(folder)!r}, torch.float32, 'cpu')"
    (tmp_path / "load.py").write_text(f"import torch; {program}\n", encoding="utf-8")
    child = fork([tmp_path / "load.py"])
    _, said = child.communicate()
    assert child.returncode == 0, said
    assert "\\x1b[2Jname" in said
    assert "\x1b" not in said
