"""Flipped bits in all files of an interrupted run: found, harmless or a clear error, never another number unnoticed."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quatro.runs import checkpoint
from quatro.runs.views.doctor import examine
from tests.kit import read_json

if TYPE_CHECKING:
    from conftest import Laboratory

NUM_FLIPS = 500


@pytest.fixture(scope="module")
def interrupted(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed while it saved its second checkpoint: one is whole, and rows and responses go beyond it."""
    run = tmp_path_factory.mktemp("interrupted") / "run"
    assert lab.begin(run, root=run / "checkpoints", fail_at=75, kill=True).code == -signal.SIGKILL
    return run


def vouched_bytes(run: Path) -> dict[str, int]:
    """By path, how many bytes the checkpoint vouches for."""
    (folder,) = checkpoint.complete_checkpoints(run)
    vouched = {str(path.relative_to(run)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    written = read_json(folder / "state.json")
    for name in written["rollouts_sha256"]:
        vouched[f"rollouts/{name}"] = (run / "rollouts" / name).stat().st_size
    return {**vouched, "metrics.jsonl": written["metrics_bytes"]}


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(bytes(content))


def fault_of_a_flip(lab: Laboratory, interrupted: Path, run: Path, dice: random.Random) -> str:
    """Flip one bit of a copy, examine and resume it: what is wrong with what happened; empty if nothing is."""
    shutil.copytree(interrupted, run)
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.stat().st_size]
    sizes = [path.stat().st_size for path in files]
    path = dice.choices(files, weights=sizes)[0] if dice.random() < 0.5 else dice.choice(files)
    name, position = str(path.relative_to(run)), dice.randrange(path.stat().st_size)
    is_vouched = position < vouched_bytes(run).get(name, 0)
    flip(path, position, dice.randrange(8))
    is_noticed = bool(examine(run).damaged)  # as `quatro doctor RUN` does
    ended = lab.go_on(run)
    where = f"{name}, byte {position}: exit code {ended.code}"
    if is_vouched and not is_noticed:
        return f"{where}, and the run is called whole"
    if "Traceback" in ended.err or ended.code not in (0, 2, 4):
        return f"{where}\n{ended.err}"
    if ended.code == 0:
        # What no checkpoint vouches for may say something else, such as how many iterations are wanted.
        return "" if not is_vouched or lab.outcome(run) == lab.whole[0] else f"{where}, and other numbers"
    return "" if path.name in ended.err.replace("\n", "") else f"{where}, and the file is not named\n{ended.err}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_fault_07_52_a_flipped_bit_of_any_file_is_found_or_harmless(lab, interrupted, tmp_path, seed):
    dice, faults = random.Random(seed), []
    for number in range(NUM_FLIPS // 10):
        run = tmp_path / f"run-{number}"
        if fault := fault_of_a_flip(lab, interrupted, run, dice):
            faults.append(fault)
        shutil.rmtree(run)
    assert faults == []
