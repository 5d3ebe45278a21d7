"""A sweep that is killed without warning and typed again ends where an undisturbed one does."""

import contextlib
import csv
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from quatro.config import config_to_yaml, load_config
from quatro.runs.status import is_locked

# Keeps the contract of `quatro train`: one process a run, resumable, status.json last. Slow enough to be killed.
TRAIN = """
import fcntl, json, os, pathlib, sys, time
arguments = sys.argv[1:]
resume = arguments[-1] == "--resume"
run = pathlib.Path(arguments[0] if resume else arguments[arguments.index("-o") + 1])
run.mkdir(parents=True, exist_ok=True)
lock = open(run / "lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (run / "refused").touch()
    sys.exit(75)
with open(run.parent.parent / "pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
def say(status):
    (run / ".status").write_text(json.dumps({"status": status, "reason": None}))
    os.replace(run / ".status", run / "status.json")
if (run / "config.yaml").exists() != resume:
    sys.exit("error: a run is begun once")
say("running")
if not resume:
    (run / ".config").write_text(pathlib.Path(arguments[0]).read_text())
    os.replace(run / ".config", run / "config.yaml")
path = run / "metrics.jsonl"
present = len(path.read_text().splitlines()) if path.exists() else 0
with open(path, "a") as metrics:
    for step in range(present + 1, 13):
        time.sleep(float(os.environ.get("STEP_S", "0.02")))
        os.write(metrics.fileno(), (json.dumps({"step": step, "reward/mean": step * len(run.name)}) + "\\n").encode())
say("done")
"""

# Keeps the contract of `quatro sample`: the file is complete when the command ends well.
SAMPLE = """
import json, os, pathlib, sys, time, zlib
arguments = sys.argv[1:]
folder = pathlib.Path(arguments[arguments.index("-o") + 1])
n = int(arguments[arguments.index("-n") + 1])
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "calls", "a") as calls:
    calls.write("1")
time.sleep(0.05)
name = folder.parent.parent.name
rows = [
    {"benchmark": "toy", "id": str(p), "sample_index": i, "answer": "1", "completion": f"the answer is {i}",
     "correct": zlib.crc32(f"{name} {p} {i}".encode()) % 3 == 0}
    for p in range(3) for i in range(n)
]
partial = folder / f".{os.getpid()}"
partial.write_text("".join(json.dumps(row) + "\\n" for row in rows))
os.replace(partial, folder / "toy.jsonl")
"""

DRIVER = """
import sys
from pathlib import Path
from quatro.processes.stop import StopRequest
from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import run_sweep
base, folder, train, sample = map(Path, sys.argv[1:])
plan = plan_sweep(base, [Axis("method.delta", ("0.1", "0.01", "0.001"))], seeds=[0, 1, 2])
with StopRequest() as stop:
    outcomes = run_sweep(
        plan, folder, jobs=3, train_command=[sys.executable, "-S", str(train)],
        sample_command=[sys.executable, "-S", str(sample)], evaluation=SweepEvaluation(("toy",), n=4), stop=stop)
sys.exit(stop.exit_code or any(outcome.status != "done" for outcome in outcomes))
"""


@pytest.fixture
def command(base, tmp_path):
    longer = base.read_text(encoding="utf-8").replace("steps: 2", "steps: 12")
    names = {"base.yaml": longer, "train.py": TRAIN, "sample.py": SAMPLE, "driver.py": DRIVER}
    for name, text in names.items():
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def of(folder: str) -> list[str]:
        files = ("base.yaml", folder, "train.py", "sample.py")
        return [sys.executable, *(str(tmp_path / name) for name in ("driver.py", *files))]

    return of


@pytest.mark.slow
def test_five_kills_leave_the_summary_of_an_undisturbed_sweep(command, tmp_path):
    began_s = time.monotonic()
    subprocess.run(command("whole"), check=True, timeout=120)
    whole_s = time.monotonic() - began_s

    moments = random.Random(0)
    for kill in range(5):
        sweep = subprocess.Popen(command("killed"))
        time.sleep(moments.uniform(0.3, 0.9) * whole_s / 2)
        sweep.kill()
        sweep.wait()
        if kill % 2:  # else its children live on, and the next sweep must not start a second one in the same run
            _kill_trainers(tmp_path / "killed")
    subprocess.run(command("killed"), check=True, timeout=120)

    for name in ("summary.csv", "sweep.yaml"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    with (tmp_path / "killed/summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done"] * 10  # nine points and the base
    assert [row["steps"] for row in rows] == ["0"] + ["12"] * 9
    assert all(row["toy/p1/pass@4"] for row in rows)


def _kill_trainers(folder):
    """Kill the children of the fake trainer that still hold a run: those whose pid it wrote and whose command it is."""
    pids = folder / "pids"
    for line in pids.read_text(encoding="utf-8").split() if pids.exists() else ():
        with contextlib.suppress(OSError):
            with open(f"/proc/{line}/cmdline", encoding="utf-8") as file:
                if str(folder) not in file.read():
                    continue
            os.kill(int(line), signal.SIGKILL)


def test_fault_46_a_run_that_outlived_its_sweep_is_waited_for(command, tmp_path):
    run = tmp_path / "s/runs/delta=0.1-seed=0"
    point = tmp_path / "point.yaml"
    point.write_text(config_to_yaml(load_config(tmp_path / "base.yaml", overrides=["method.delta=0.1", "seed=0"])))
    arguments = [sys.executable, "-S", str(tmp_path / "train.py"), str(point), "-o", str(run)]
    orphan = subprocess.Popen(arguments, env={**os.environ, "STEP_S": "0.5"})
    while not (run / "config.yaml").exists():
        assert orphan.poll() is None
        time.sleep(0.02)
    subprocess.run(command("s"), check=True, timeout=120)
    assert orphan.wait(timeout=10) == 0
    assert not (run / "refused").exists()  # waited for, not tried again and again
    assert len((tmp_path / "s/pids").read_text(encoding="utf-8").split()) == 9  # none of the nine runs had two trainers


@pytest.mark.slow
def test_an_interrupt_stops_what_runs_and_the_rest_is_done_later(command, tmp_path):
    sweep = subprocess.Popen(command("s"))
    pids = tmp_path / "s/pids"
    deadline_s = time.monotonic() + 60
    while not pids.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(timeout=60) == 130
    with (tmp_path / "s/summary.csv").open(encoding="utf-8", newline="") as file:
        statuses = {row["status"] for row in csv.DictReader(file)}
    assert "missing" in statuses  # it was early enough for points that never began
    assert not any(is_locked(run) for run in (tmp_path / "s/runs").iterdir())
    subprocess.run(command("s"), check=True, timeout=120)


@pytest.mark.slow
def test_a_finished_sweep_draws_nothing_again(command, tmp_path):
    subprocess.run(command("s"), check=True, timeout=120)
    summary = (tmp_path / "s/summary.csv").read_bytes()
    pids = (tmp_path / "s/pids").read_text(encoding="utf-8")
    subprocess.run(command("s"), check=True, timeout=120)
    assert (tmp_path / "s/summary.csv").read_bytes() == summary
    assert (tmp_path / "s/pids").read_text(encoding="utf-8") == pids
    calls = list((tmp_path / "s").rglob("calls"))
    assert len(calls) == 10
    assert all(path.read_text(encoding="utf-8") == "1" for path in calls)  # the base too: once a sweep
