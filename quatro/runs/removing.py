"""Runs and checkpoints that are removed for good: which may be, and how, so that a stop in between does no harm."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.errors import LockedError, UsageError
from evals.files.metric_rows import is_finite
from evals.files.strict_json import read_document
from quatro.runs.checkpoint import complete_checkpoints, find_checkpoint, remove_checkpoint
from quatro.runs.directory import FOLDERS, is_previous, require_run, step_name
from quatro.runs.imported import IMPORTED, is_imported
from quatro.runs.lock import held, is_held, refuse_locked
from quatro.runs.manifest import verify
from quatro.runs.metrics import read_metrics
from quatro.runs.summary import RunSummary, folder_bytes

_FOLDERS = {*FOLDERS, "results", "tensorboard", "wandb"}
_LAST = ("config.yaml", IMPORTED, "lock")  # what makes a folder a run goes last: a removal that was stopped can go on
_SAMPLING = "samples/*/sampling.json"
_PASS_1 = "eval/pass@1"


def refuse_removal(run: Path) -> None:
    """Refuse to remove what is no run, or what a process works on.

    Raises:
        UsageError: it is a symbolic link, no run, or holds a folder that no run has.
        LockedError: a process trains it or draws samples from it.
    """
    if run.is_symlink():
        raise UsageError(f"{run} is a symbolic link to {run.resolve()}: name that folder to remove it")
    if not is_imported(run):
        require_run(run)
        if not (run / "lock").is_file():
            raise UsageError(f"{run} has a config.yaml, but no file lock as every run does: it may be no run")
        refuse_locked(run)
    others = sorted(path.name for path in _folders(run) if not (path.name in _FOLDERS or is_previous(path.name)))
    if others:
        raise UsageError(f"{run} holds the folder {others[0]}, which no run has: move or remove that first")
    for file in run.glob("samples/**/*.jsonl"):
        if is_held(file):
            raise LockedError(f"samples are being drawn into {file}: wait until `quatro sample` ends, or stop it")


def remove_run(run: Path) -> None:
    """Remove a run; a symbolic link in it is removed, and what it leads to stays.

    Raises: as `refuse_removal`.
    """
    refuse_removal(run)
    with contextlib.nullcontext() if is_imported(run) else held(run):
        for folder in _folders(run):
            shutil.rmtree(folder)
        for file in sorted(run.iterdir(), key=lambda file: _LAST.index(file.name) if file.name in _LAST else -1):
            file.unlink()
    run.absolute().rmdir()  # not `.`, which cannot be removed by that name


def _folders(run: Path) -> list[Path]:
    return [path for path in run.iterdir() if path.is_dir() and not path.is_symlink()]


@dataclass(frozen=True)
class Pruning:
    """Which checkpoints of a finished run stay, which go, and how many bytes that frees.

    ``sampled`` are folders with samples of those that go: the samples stay, and no more can be drawn.
    """

    run: Path
    kept: tuple[Path, ...]
    removed: tuple[Path, ...]
    num_bytes: int
    sampled: tuple[Path, ...]


def plan_pruning(run: RunSummary, *, keep: int = 1) -> Pruning | str:
    """What pruning would do to a run, or why it does nothing: the run is not done, or has nothing to spare.

    The ``keep`` newest checkpoints stay, and the best one.

    Raises:
        DataError: the metrics, or how samples were drawn, cannot be read.
    """
    if run.status != "done" or run.config is None:
        return run.status
    if is_held(run.path / "lock"):
        return "running"
    present = complete_checkpoints(run.path)
    if any(path.is_symlink() for path in (run.path / "checkpoints", *present)):
        return "with checkpoints behind symbolic links"
    best = _best(run, present)
    kept = tuple(path for path in present if path in present[-keep:] or path == best)
    removed = tuple(path for path in present if path not in kept)
    if not removed:
        return "with nothing to spare"
    drawn = {file.parent: read_document(file).get("checkpoint") for file in sorted(run.path.glob(_SAMPLING))}
    gone = {path.name for path in removed}
    sampled = tuple(folder for folder, name in drawn.items() if name in gone)
    return Pruning(run.path, kept, removed, sum(map(folder_bytes, removed)), sampled)


def _best(run: RunSummary, present: Sequence[Path]) -> Path | None:
    """What `--step best` means, if the run keeps a best checkpoint; else the one of the largest `eval/pass@1`."""
    assert run.config is not None
    if run.config.checkpoint.best is not None:
        with contextlib.suppress(UsageError):
            return find_checkpoint(run.path, "best")
        return None
    rows = read_metrics(run.path)
    value_of = {step_name(int(row["step"])): row[_PASS_1] for row in rows if is_finite(row.get(_PASS_1))}
    return max((path for path in present if path.name in value_of), key=lambda path: value_of[path.name], default=None)


def prune(plan: Pruning) -> None:
    """Remove what ``plan`` says, once the checkpoints that stay were verified.

    Raises:
        DataError: a checkpoint that is to stay was changed; nothing is removed.
        LockedError: a process has begun to work on the run.
    """
    with held(plan.run):
        for path in plan.kept:
            verify(path)
        for path in plan.removed:
            remove_checkpoint(path)
