"""A real sweep, trained and sampled, that is killed without warning at random moments."""

from __future__ import annotations

import contextlib
import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit import settings

ROUNDS, KILLS = 2, 10
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def command(folder: Path) -> list[str]:
    """Three deltas and three seeds of a few short steps, each run sampled, two at a time."""
    short = ("steps=4", "prompts_per_step=4", "minibatch_prompts=4", "inner_updates=2", "checkpoint.every=1")
    chosen = settings(*short)
    grid = ["-g", "method.delta=0.1,0.01,0.001", "--seeds", "0,1,2", "--jobs", "2"]
    measured = ["--eval", "countdown", "--eval-n", "2"]
    return [sys.executable, "-m", "quatro_cli", "sweep", "quickstart", *grid, *measured, *chosen, "-o", str(folder)]


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, as the kernel knows them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text(encoding="ascii").split()):
                found += [child, *descendants(child)]
    return found


def without_times(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: text for name, text in row.items() if not name.startswith("perf/")} for row in rows]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Path, float]:
    """The sweep that nobody kills, and how many seconds it took."""
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    began_s = time.monotonic()
    subprocess.run(command(folder), check=True, **QUIET)
    return folder, time.monotonic() - began_s


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the children of the killed sweep in /proc")
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_fault_01_and_46_a_sweep_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(
    undisturbed, tmp_path, seed
):
    whole, whole_s = undisturbed
    killed = tmp_path / "killed"
    moments = random.Random(seed)
    for kill in range(KILLS):
        sweep = subprocess.Popen(command(killed), **QUIET)
        time.sleep(moments.uniform(0.02, 0.12) * whole_s)
        assert sweep.poll() is None, "the sweep ended before it was killed: it has to be killed earlier"
        children = descendants(sweep.pid)
        sweep.kill()
        sweep.wait()
        # Every other time its trainers live on, and the next sweep must neither disturb nor repeat them.
        for pid in children if kill % 2 else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    subprocess.run(command(killed), check=True, **QUIET)

    assert without_times(killed / "summary.csv") == without_times(whole / "summary.csv")
    rows = without_times(killed / "summary.csv")
    assert [row["status"] for row in rows] == ["done"] * 10  # nine runs and the base
    assert [row["steps"] for row in rows] == ["0"] + ["4"] * 9
    assert len({row["reward/mean"] + row["kl/new_old"] for row in rows[1:]}) > 3  # runs, not copies of one
    assert (killed / "sweep.yaml").read_bytes() == (whole / "sweep.yaml").read_bytes()
