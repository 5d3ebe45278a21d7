"""The toy of the paper's experiment: its tables are those of the set chances, whatever is killed on the way."""

import contextlib
import csv
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from evals.results.paper import BENCHMARKS
from experiments.toy_paper import LEVELS, SWEEP, chance, expected, problems_of
from quatro.sweep.file import load_sweep
from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.paper import NOTES, write_paper
from quatro.sweep.plan import SweepPlan
from quatro.sweep.run import run_sweep

N, NUM_PROBLEMS = 16, 5

# In place of `quatro train`: a run that is finished at once.
TRAIN = textwrap.dedent(
    """
    import json, pathlib, shutil, sys
    source, _, run = sys.argv[1:]
    run = pathlib.Path(run)
    run.mkdir(parents=True)
    rows = [{"step": step, "reward/mean": 0.1 * step, "entropy/token_mean": 1.0 / step} for step in range(1, 4)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    (run / "status.json").write_text(json.dumps({"status": "done", "reason": None}))
    shutil.copy(source, run / "config.yaml")
    """
)
# Of the nine rows, by their names in tables.
ROWS = {"Base": "base", "GSPO": "gspo", "Ours delta=0.1": "quatro 0.1", "Ours delta=0.001": "quatro 0.001"}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    plan = load_sweep(SWEEP)
    named = ("main-gspo", "main-quatro-delta=0.1", "main-quatro-delta=0.001")
    plan = SweepPlan(plan.name, tuple(point for point in plan.points if point.name in named), 0)
    outcomes = run_sweep(
        plan,
        folder / "sweep",
        train_command=[sys.executable, str(folder / "train.py")],
        sample_command=[*(sys.executable, "-m", "experiments.toy_paper", "sample", "--problems", str(NUM_PROBLEMS))],
        evaluation=SweepEvaluation(BENCHMARKS, N, top_ps=(0.7,)),
        jobs=2,
    )
    assert {(outcome.status, outcome.reason) for outcome in outcomes} == {("done", "")}
    (folder / "sweep" / NOTES).write_text("**A toy.**", encoding="utf-8")
    return folder / "sweep"


@pytest.mark.slow
def test_the_tables_are_those_that_the_chances_make(sweep, tmp_path):
    page = write_paper(sweep, tmp_path / "paper")
    ids = {name: [problem.id for problem in problems_of(name, NUM_PROBLEMS)] for name in BENCHMARKS}
    tables = tmp_path / "paper/tables"
    ours = [row for row in rows_of(tables / "average-passk.csv") if row["Model"].startswith("embedded")]
    passk = {(row["Method"], k): float(row[str(k)]) / 100 for row in ours for k in (1, N)}
    by_benchmark = rows_of(tables / "ucc.csv")
    ucc = {(label, k): sum(float(row[f"k = {k} {label}"]) for row in by_benchmark) / 6 for label, k in passk}
    for label, level in ROWS.items():
        c = np.array([[chance(level, name, id) for id in ids[name]] for name in BENCHMARKS])
        ways = LEVELS[level].ways
        for k in (1, N):
            wanted = [expected(level, name, ids[name], k) for name in BENCHMARKS]
            # k = 1 is a mean over N answers; at k = N a problem is solved or not, and so is a way found or not.
            solved, one_way = 1 - (1 - c) ** k, 1 - (1 - c / ways) ** k
            draws = N if k == 1 else 1
            error = np.sqrt((solved * (1 - solved)).sum() / draws) / c.size
            assert passk[label, k] == pytest.approx(np.mean([one[0] for one in wanted]), abs=4 * error), (label, k)
            error = np.sqrt((ways * one_way * (1 - one_way)).sum() / draws) / c.size
            assert ucc[label, k] == pytest.approx(np.mean([one[1] for one in wanted]), abs=4 * error + 0.01), (label, k)
    readme = (tmp_path / "paper/README.md").read_text(encoding="utf-8")
    assert "**A toy.**" in readme
    assert "QUATRO δ" not in readme, "one name for a method"
    assert {made.name for made in page.tables} >= {"average-passk", "passk", "ucc", "entropy"}
    assert {kind.name for kind, _ in page.figures} >= {"passk", "ucc", "similarity", "flips"}
    assert {kind.label for kind, _ in page.missing} >= {"tab:code_generation", "fig:temperature"}
    assert all(reason for _, reason in page.missing)


@pytest.mark.latex
def test_a_document_with_all_tables_compiles(sweep, tmp_path, compile_latex):
    page = write_paper(sweep, tmp_path)
    head = "\\documentclass{article}\\usepackage[margin=2cm]{geometry}\\usepackage{booktabs,rotating}"
    body = "\\clearpage\n".join(f"\\input{{tables/{made.name}.tex}}\n" for made in page.tables)
    log = compile_latex(f"{head}\\usepackage[table]{{xcolor}}\n\\begin{{document}}\n{body}\\end{{document}}\n")
    assert "Overfull \\hbox" not in log
    assert "Float too large" not in log


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def kill(driver: subprocess.Popen) -> None:
    """The sweep with everything that it has started, or the sweep alone, whose children go on."""
    everything = psutil.Process(driver.pid).children(recursive=True) if random.random() < 0.5 else []
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    for child in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@pytest.mark.long
def test_ten_kills_change_no_number(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text("base: quickstart\ncells: {main: {axes: {method.name: [gspo, quatro]}}}\n", encoding="utf-8")
    pages = {}
    for name, num_kills in (("whole", 0), ("killed", 10)):
        folder = tmp_path / name
        command = [*(sys.executable, "-m", "experiments.toy_paper"), str(folder), "--sweep", str(file)]
        command += ["--n", "8", "--problems", "3", "-s", "steps=3", "-s", "checkpoint.every=1"]
        for _ in range(num_kills):
            driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(random.uniform(1.0, 12.0))
            kill(driver)
        for _ in range(20):  # children of a killed sweep that still go on hold their runs
            if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(3)
        else:
            pytest.fail(f"{name}: the sweep does not end")
        write_paper(folder, folder / "paper")
        pages[name] = {
            path.relative_to(folder): path.read_bytes().replace(name.encode(), b"-")
            for pattern in ("paper/**/*.md", "paper/**/*.csv", "paper/**/*.png", "**/samples/*/*.jsonl")
            for path in sorted(folder.glob(pattern))
        }
        rows = csv.DictReader((folder / "summary.csv").read_text(encoding="utf-8").splitlines())
        pages[name]["summary"] = [{k: v for k, v in row.items() if not k.startswith("perf/")} for row in rows]
    assert pages["killed"] == pages["whole"]
