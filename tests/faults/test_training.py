"""A run whose process is killed, whose disk fails or whose clock jumps, at any moment, ends as if nothing had happened.

The numbers are those of the list of faults in docs/guarantees.md.
"""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from evals.errors import DataError
from quatro.policy.loading import load_model, load_tokenizer, save_folder
from quatro.runs import checkpoint
from quatro.runs.checkpoint import verify
from tests.kit import read_json, read_rows

if TYPE_CHECKING:
    from conftest import Ended, Laboratory

PARTS = 5  # of what tries every file operation of a run, so that two workers share it


def rows_of(run: Path) -> list[dict]:
    path = run / "metrics.jsonl"
    return read_rows(path) if path.exists() else []


def is_outcome_of_whole(lab: Laboratory, run: Path) -> bool:
    return lab.finish(run) == lab.whole[0]


@pytest.mark.slow
def test_the_laboratory_counts_and_fails(lab, tmp_path):
    assert lab.whole[1].operations > 100
    assert lab.begin(tmp_path / "run", fail_at=1, sticky=True).code == 1
    assert not (tmp_path / "run" / "config.yaml").exists()


def kill_and_go_on(lab: Laboratory, run: Path, seed: int) -> bool:
    """SIGKILL at a random moment, again while resuming with odds of one in two, then to the end: is all as it was?"""
    dice = random.Random(seed)
    whole_s = lab.whole[1].seconds
    lab.begin(run, signals=[(dice.uniform(0.0, whole_s), signal.SIGKILL)])
    if dice.random() < 0.5 and (run / "config.yaml").exists():
        lab.go_on(run, signals=[(dice.uniform(0.0, whole_s), signal.SIGKILL)])
    return is_outcome_of_whole(lab, run)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_fault_01_a_killed_run_ends_as_if_nothing_had_happened(lab, tmp_path, seed):
    assert kill_and_go_on(lab, tmp_path / "run", seed)


@pytest.mark.long
def test_fault_01_a_hundred_killed_runs_end_as_if_nothing_had_happened(lab, tmp_path):
    differing = []
    for seed in range(100, 200):
        if not kill_and_go_on(lab, tmp_path / "run", seed):
            differing.append(seed)
        shutil.rmtree(tmp_path / "run")
    assert differing == []


def killed_while_saving(lab: Laboratory, run: Path, at: int) -> Ended:
    """Killed just before operation number ``at`` on the checkpoints."""
    ended = lab.begin(run, root=run / "checkpoints", fail_at=at, kill=True)
    assert ended.code == -signal.SIGKILL
    return ended


@pytest.mark.slow
def test_fault_02_a_checkpoint_that_was_being_written_is_named_and_not_used(lab, tmp_path):
    run = tmp_path / "run"
    killed_while_saving(lab, run, 75)
    (partial,) = (run / "checkpoints").glob(".step-000004.*.tmp")
    assert [path.name for path in checkpoint.complete_checkpoints(run)] == ["step-000002"]
    ended = lab.go_on(run)
    assert ended.code == 0
    said = " ".join(ended.err.split())
    assert f"{partial.name} was not finished when the process ended: removed" in said
    assert "going on from step-000002" in said
    assert not partial.exists()
    assert is_outcome_of_whole(lab, run)


@pytest.mark.parametrize("at", [75, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 50, 100))])
def test_fault_01_and_03_no_row_is_missing_or_twice_after_a_kill_beside_a_checkpoint(lab, tmp_path, at):
    run = tmp_path / "run"
    killed_while_saving(lab, run, at)
    assert [row["step"] for row in rows_of(run)] in ([1, 2], [1, 2, 3, 4])
    if at == 75:  # the rows of two iterations have to go
        assert [path.name for path in checkpoint.complete_checkpoints(run)] == ["step-000002"]
        assert len(rows_of(run)) == 4
    assert lab.go_on(run).code == 0
    assert [row["step"] for row in rows_of(run)] == [1, 2, 3, 4, 5, 6]
    assert is_outcome_of_whole(lab, run)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_fault_03_no_row_is_missing_or_twice_after_a_kill_at_any_file_operation(lab, tmp_path, part):
    for at in range(1 + part, lab.whole[1].operations + 1, PARTS):
        run = tmp_path / f"run-{at}"
        assert lab.begin(run, fail_at=at, kill=True).code == -signal.SIGKILL
        assert is_outcome_of_whole(lab, run), at


def fail_and_go_on(lab: Laboratory, run: Path, at: int, *, sticky: bool) -> None:
    ended = lab.begin(run, fail_at=at, sticky=sticky)
    if ended.code == 0:  # a line of log.txt, the one file that a run does without; for good: its last lines
        assert read_json(run / "status.json")["status"] == "done"
        assert lab.outcome(run) == lab.whole[0], f"operation {at} failed and nobody noticed"
        return
    assert "this is a bug" not in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err
    (error,) = (line for line in ended.err.splitlines() if line.startswith("error: "))
    assert str(run) in error, ended.err
    for folder in checkpoint.complete_checkpoints(run):
        verify(folder)
    assert [row["step"] for row in rows_of(run)] == list(range(1, 1 + len(rows_of(run))))
    assert is_outcome_of_whole(lab, run)


@pytest.mark.parametrize("share", [0.02, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.3, 0.55, 0.97))])
def test_fault_04_a_disk_that_fills_up_is_named_and_loses_nothing(lab, tmp_path, share):
    fail_and_go_on(lab, tmp_path / "run", 1 + int(share * lab.whole[1].operations), sticky=True)


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json"])
def test_fault_04_a_disk_that_is_full_for_a_part_of_the_model_is_an_error_that_names_it(tiny_folder, tmp_path, file):
    """Each is written by another library, and one of them raises a bare Exception."""
    (tmp_path / file).symlink_to("/dev/full")
    model, tokenizer = load_model(str(tiny_folder), torch.float32, "cpu"), load_tokenizer(str(tiny_folder))
    with pytest.raises(OSError, match=r"No space left on device") as raised:
        save_folder(model, tmp_path, tokenizer)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.long
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("part", range(PARTS))
def test_fault_04_any_failing_operation_is_named_and_loses_nothing(lab, tmp_path, part, sticky):
    for at in range(1 + part, lab.whole[1].operations + 1, PARTS):
        fail_and_go_on(lab, tmp_path / f"run-{at}", at, sticky=sticky)


@pytest.fixture(scope="module")
def short_run(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One iteration, with its checkpoint."""
    run = tmp_path_factory.mktemp("short") / "run"
    assert lab.run([*lab.train, "-s", "steps=1", "-o", str(run)], root=run).code == 0
    return run


def test_fault_07_two_hundred_flipped_bits_of_a_checkpoint_are_found(short_run):
    folder = short_run / "checkpoints" / "step-000001"
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


def test_fault_08_a_missing_or_extra_file_of_a_checkpoint_is_named_and_refused(short_run, lab, tmp_path):
    for name, is_extra in (("state.json", False), ("model/config.json", False), ("model/more.bin", True)):
        run = tmp_path / name.replace("/", "-")
        shutil.copytree(short_run, run)
        path = run / "checkpoints" / "step-000001" / name
        path.write_bytes(b"") if is_extra else path.unlink()
        ended = lab.run(["train", str(run), "--resume", "-s", "steps=2"], root=run)
        assert ended.code == 4
        assert f"{name} is {'extra' if is_extra else 'missing'}" in ended.err.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_fault_16_a_signalled_run_saves_at_once_and_ends_as_if_nothing_had_happened(lab, tmp_path, number):
    """Signals at random moments until the run is through; the exit status says which signal it was."""
    dice, run = random.Random(int(number)), tmp_path / "run"
    codes = []
    for _ in range(4):
        ended = lab.go_on(run, signals=[(dice.uniform(0.3, 1.0) * lab.whole[1].seconds, number)])
        assert "this is a bug" not in ended.err
        assert "Traceback" not in ended.err
        # One that comes before anything has begun ends the process itself: to a shell that is the same status.
        codes.append(ended.code if ended.code >= 0 else 128 - ended.code)
    assert set(codes) <= {0, 128 + number}, codes
    assert is_outcome_of_whole(lab, run)


@pytest.mark.slow
def test_fault_19_a_clock_that_jumps_changes_no_result_and_no_duration(lab, tmp_path):
    run, decade_s = tmp_path / "run", 10 * 365 * 86400
    ended = lab.begin(run, clock_s=decade_s)
    assert ended.code == 0, ended.err
    years = {line[:4] for line in (run / "log.txt").read_text(encoding="utf-8").splitlines() if line[:2] == "20"}
    assert len(years) > 1, "the clock should have jumped"
    seconds = [
        value for row in rows_of(run) for key, value in row.items() if key.endswith("_s") and "tokens" not in key
    ]
    assert seconds
    assert all(0 <= value <= ended.seconds for value in seconds)
    assert is_outcome_of_whole(lab, run)


NO_MEMORY = """
import resource, sys
from {module} import {kind}
from quatro_cli.app import main

def starved(self, *arguments, **options):
    global calls
    calls += 1
    if calls < {call}:
        return function(self, *arguments, **options)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
    taken = []
    try:
        while True:  # what is free and in one piece
            taken.append(bytearray(1 << 19))
    except MemoryError:
        return function(self, *arguments, **options)

calls, function = 0, {kind}.{name}
{kind}.{name} = starved
main()
"""


@pytest.fixture(scope="module")
def wide(lab) -> tuple[list[str], Path]:
    """The arguments of a run with tensors of more than half a megabyte, and that run."""
    train = [*lab.train, "-s", "rollouts_per_prompt=256"]
    run = lab.folder / "wide"
    assert lab.run([*train, "-o", str(run)], root=run).code == 0
    return train, run


def starve(lab: Laboratory, fork: Any, train: list[str], run: Path, **where: Any) -> tuple[int, str]:
    """Train, from one call of a method of ours on without a free half megabyte: the exit code and what was said."""
    script = run.with_name("starved.py")
    script.write_text(NO_MEMORY.format(**where), encoding="utf-8")
    child = fork([script, *train, "-o", str(run)], cwd=lab.folder)
    return child.wait(), " ".join(child.communicate()[1].split())


MEMORY_FAULTS = {
    "draw": ("quatro.rollout.transformers", "TransformersEngine", "generate", 4, "from here on"),
    "learn": ("quatro.policy.torch_policy", "LocalPolicy", "update", 11, "with microbatch_tokens=16384"),  # of four
}


@pytest.mark.slow
@pytest.mark.parametrize("work", MEMORY_FAULTS)
def test_fault_36_a_run_that_runs_out_of_memory_goes_on_with_less_at_once(lab, fork, wide, tmp_path, work):
    train, whole = wide
    run = tmp_path / "run"
    module, kind, name, call, tells = MEMORY_FAULTS[work]
    code, said = starve(lab, fork, train, run, module=module, kind=kind, name=name, call=call)
    assert code == 0
    assert "out of memory" in said
    assert tells in said
    assert len(rows_of(run)) == 6
    for mine, theirs in zip(rows_of(run)[:3], rows_of(whole)[:3], strict=True):  # then other responses may come
        for metric in ("reward/mean", "kl/old_new", "grad/norm"):
            assert mine[metric] == pytest.approx(theirs[metric], rel=1e-4)
