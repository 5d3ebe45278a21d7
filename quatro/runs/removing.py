"""Removes runs, and the checkpoints of finished runs that are neither the newest nor the best."""

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from evals.errors import UsageError
from quatro.runs.checkpoint import complete_checkpoints, remove_checkpoint, verify
from quatro.runs.directory import folder_bytes, require_run, step_number
from quatro.runs.status import RunLock, is_locked, refuse_locked


def refuse_removal(run: Path) -> None:
    """Refuse to remove what is no run, or what a process works on.

    Raises UsageError if it is a symbolic link or no run, and LockedError if a process trains it.
    """
    if run.is_symlink():
        raise UsageError(f"{run} is a symbolic link to {run.resolve()}: name that folder to remove it")
    require_run(run)
    if not (run / "lock").is_file():  # a project of somebody may have a config.yaml, too
        raise UsageError(f"{run} has a config.yaml, but no file lock as every run does: it may be no run")
    refuse_locked(run)


def remove_run(run: Path) -> None:
    """Remove a run and all that is in its folder. Raises: as `refuse_removal`."""
    refuse_removal(run)
    with closing(RunLock(run)):
        shutil.rmtree(run.absolute())  # not `.`, which cannot be removed by that name


@dataclass(frozen=True)
class Pruning:
    """Which checkpoints of a finished run stay, which go, and how many bytes that frees."""

    run: Path
    kept: tuple[Path, ...]
    removed: tuple[Path, ...]
    num_bytes: int


def plan_pruning(run: Path, status: str, best: int | None, *, keep: int) -> Pruning | str:
    """What pruning would do to a run, or why it does nothing: the run is not done, or has nothing to spare.

    The ``keep`` newest checkpoints stay, and that of the iteration ``best``.
    """
    if status != "done":
        return status
    if is_locked(run):
        return "running"
    present = complete_checkpoints(run)
    kept = tuple(path for path in present if path in present[-keep:] or step_number(path.name) == best)
    removed = tuple(path for path in present if path not in kept)
    return Pruning(run, kept, removed, sum(map(folder_bytes, removed))) if removed else "with nothing to spare"


def prune(plan: Pruning) -> None:
    """Remove what ``plan`` says, once the checkpoints that stay were verified.

    Raises:
        DataError: a checkpoint that is to stay was changed; nothing is removed.
        LockedError: a process has begun to work on the run.
    """
    with closing(RunLock(plan.run)):
        for path in plan.kept:
            verify(path)
        for path in plan.removed:
            remove_checkpoint(path)
