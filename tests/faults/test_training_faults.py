"""A run whose process is killed or whose disk fails, at any moment, ends as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evals.errors import DataError
from quatro.runs import checkpoint
from quatro.runs.manifest import verify

if TYPE_CHECKING:
    from conftest import Laboratory

STEPS = 6


@pytest.fixture(scope="module")
def arguments(tiny_folder: Path) -> list[str]:
    """Short iterations of 4 optimiser steps."""
    settings = [
        *(f"model={tiny_folder}", "reward=digit_reward:share", f"steps={STEPS}", "threads=1"),
        *("prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=4", "inner_updates=2"),
        *("optimizer.lr=1e-3", "optimizer.warmup_steps=0", "checkpoint.every=2", "checkpoint.keep=2"),
    ]
    return ["train", "quickstart", *(word for setting in settings for word in ("-s", setting))]


@pytest.fixture(scope="module")
def whole(lab: Laboratory, arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, float]:
    """The uninterrupted run: its outcome, its number of file operations, its seconds."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended = lab.run([*arguments, "-o", str(run)], root=run)
    assert ended.code == 0, ended.err
    return outcome(run), ended.operations, ended.seconds


def outcome(run: Path) -> str:
    """Everything that must repeat: metrics but for times, rollouts, final weights and state."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [{key: value for key, value in row.items() if not key.startswith("perf/")} for row in rows]
    files = [*(run / "checkpoints" / f"step-{STEPS:06d}" / "model").iterdir(), *(run / "rollouts").iterdir()]
    files.append(run / "checkpoints" / f"step-{STEPS:06d}" / "tensors.safetensors")
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}
    return json.dumps([kept, digests], indent=1)


def go_on(lab: Laboratory, arguments: list[str], run: Path) -> str:
    """Resume, or begin where nothing had begun, without faults; the outcome."""
    has_begun = (run / "config.yaml").exists()
    ended = lab.run(["train", str(run), "--resume"] if has_begun else [*arguments, "-o", str(run)], root=run)
    assert ended.code == 0, ended.err
    return outcome(run)


@pytest.mark.slow
def test_the_laboratory_counts_and_fails(lab: Laboratory, arguments: list[str], whole: Any, tmp_path: Path) -> None:
    assert whole[1] > 100
    ended = lab.run([*arguments, "-o", str(tmp_path / "run")], root=tmp_path / "run", fail_at=1, sticky=True)
    assert ended.code == 1
    assert not (tmp_path / "run" / "config.yaml").exists()


def kill_and_resume(lab: Laboratory, arguments: list[str], whole: tuple[str, int, float], run: Path, seed: int) -> str:
    """The outcome after SIGKILL at a random moment, again while resuming with odds of one in two, then to the end."""
    dice = random.Random(seed)
    delay_s = dice.uniform(0.0, whole[2])
    lab.run([*arguments, "-o", str(run)], root=run, signals=[(delay_s, signal.SIGKILL)])
    if dice.random() < 0.5 and (run / "config.yaml").exists():
        again_s = dice.uniform(0.0, whole[2])
        lab.run(["train", str(run), "--resume"], root=run, signals=[(again_s, signal.SIGKILL)])
    return go_on(lab, arguments, run)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_killed_run_ends_as_if_nothing_had_happened(lab, arguments, whole, tmp_path, seed):
    assert kill_and_resume(lab, arguments, whole, tmp_path / "run", seed) == whole[0]


@pytest.mark.long
def test_fifty_killed_runs_end_as_if_nothing_had_happened(lab, arguments, whole, tmp_path):
    differing = {}
    for seed in range(100, 150):
        found = kill_and_resume(lab, arguments, whole, tmp_path / f"run-{seed}", seed)
        if found != whole[0]:
            pairs = zip(found.splitlines(), whole[0].splitlines(), strict=False)
            differing[seed] = [pair for pair in pairs if pair[0] != pair[1]][:3]
    assert differing == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signalled_run_saves_at_once_and_ends_as_if_nothing_had_happened(lab, arguments, whole, tmp_path, number):
    """Signals at random moments until the run is through; the exit status says which signal it was."""
    dice, run = random.Random(int(number)), tmp_path / "run"
    codes = []
    for _ in range(4):
        begun = (run / "config.yaml").exists()
        argv = ["train", str(run), "--resume"] if begun else [*arguments, "-o", str(run)]
        ended = lab.run(argv, root=run, signals=[(dice.uniform(0.3, 1.0) * whole[2], number)])
        assert "Traceback" not in ended.err
        # One that comes before anything has begun ends the process itself: to a shell that is the same status.
        codes.append(ended.code if ended.code >= 0 else 128 - ended.code)
    assert set(codes) <= {0, 128 + number}, codes
    assert go_on(lab, arguments, run) == whole[0]


def fail_and_resume(
    lab: Laboratory, arguments: list[str], whole: tuple[str, int, float], run: Path, at: int, *, sticky: bool
) -> None:
    ended = lab.run([*arguments, "-o", str(run)], root=run, fail_at=at, sticky=sticky)
    if ended.code == 0:  # a line of log.txt, the one file that a run does without
        assert not sticky
        assert outcome(run) == whole[0], f"operation {at} failed and nobody noticed"
        assert json.loads((run / "status.json").read_text(encoding="utf-8"))["status"] == "done"
        return
    assert "Traceback" not in ended.err, ended.err
    assert str(run) in ended.err, ended.err
    for folder in checkpoint.complete_checkpoints(run):
        verify(folder)
    if (run / "metrics.jsonl").exists():
        text = (run / "metrics.jsonl").read_text(encoding="utf-8")
        assert [json.loads(line)["step"] for line in text.splitlines()] == list(range(1, 1 + text.count("\n")))
    assert go_on(lab, arguments, run) == whole[0]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.3, 0.55, 0.97])
def test_a_disk_that_fills_up_is_named_and_loses_nothing(lab, arguments, whole, tmp_path, share):
    fail_and_resume(lab, arguments, whole, tmp_path / "run", 1 + int(share * whole[1]), sticky=True)


@pytest.mark.long
@pytest.mark.parametrize("sticky", [False, True])
def test_any_failing_operation_is_named_and_loses_nothing(lab, arguments, whole, tmp_path, sticky):
    # Every operation up to the first checkpoint, then every seventh: the same operations come again and again.
    for at in [*range(1, 70), *range(70, whole[1] + 1, 7)]:
        fail_and_resume(lab, arguments, whole, tmp_path / f"run-{at}", at, sticky=sticky)


@pytest.mark.long
def test_a_process_killed_before_any_file_operation_loses_nothing(lab, arguments, whole, tmp_path):
    for at in range(1, whole[1] + 1, 3):
        run = tmp_path / f"run-{at}"
        assert lab.run([*arguments, "-o", str(run)], root=run, fail_at=at, kill=True).code == -signal.SIGKILL
        assert go_on(lab, arguments, run) == whole[0], at


def test_two_hundred_flipped_bits_of_a_real_checkpoint_are_found(lab, arguments, tmp_path):
    run = tmp_path / "run"
    assert lab.run([*arguments, "-s", "steps=1", "-o", str(run)], root=run).code == 0
    folder = run / "checkpoints" / "step-000001"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    dice, sizes = random.Random(0), [path.stat().st_size for path in files]
    for _ in range(200):
        path = dice.choices(files, weights=sizes)[0] if dice.random() < 0.5 else dice.choice(files)
        before = path.read_bytes()
        position, bit = dice.randrange(len(before)), dice.randrange(8)
        damaged = bytearray(before)
        damaged[position] ^= 1 << bit
        path.write_bytes(bytes(damaged))
        with pytest.raises(DataError, match=path.name):
            checkpoint.load(folder)
        path.write_bytes(before)
    assert checkpoint.load(folder).step == 1
