"""Summaries of runs, read without changing them: their state, their last metrics, their checkpoints."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from evals.errors import QuatroError, UsageError
from evals.files.metric_rows import with_base
from evals.training_metrics import EVALUATED, TRAINING_METRICS
from quatro.config import Config
from quatro.runs.checkpoint import checkpoint_steps
from quatro.runs.directory import require_run
from quatro.runs.identity import read_config
from quatro.runs.imported import is_imported, read_source
from quatro.runs.lock import is_locked
from quatro.runs.metrics import last_metrics, read_metrics
from quatro.runs.rollouts import num_drawn, num_failures
from quatro.runs.status import read_environment, read_status

STATUSES = ("running", "done", "interrupted", "failed", "killed", "imported", "unreadable", "unknown")

_METRICS = tuple(
    metric.name
    for metric in TRAINING_METRICS
    if (metric.is_in_summary or metric.is_in_figure) and not metric.name.startswith(EVALUATED)
)
_REWARD_PARTS = "reward/parts/"


@dataclass(frozen=True)
class RunSummary:
    """One run. ``status`` is status.json's, or `killed` (running, but no process holds it), `imported` or `unreadable`.

    ``step`` iterations of ``steps`` are in metrics.jsonl; ``metrics`` is its last row. An imported run has no
    ``config``. It trains on ``num_prompts``, which earlier runs did not record; ``num_left_out`` more are too long.
    ``best`` is the metric by which a checkpoint is kept (else `eval/pass@1`), its largest value and the iteration of
    that. As a path it is its folder.
    """

    path: Path
    status: str
    reason: str | None = None
    step: int = 0
    steps: int | None = None
    started: str | None = None
    updated: str | None = None
    config: Config | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    checkpoints: tuple[int, ...] = ()
    num_prompts: int | None = None
    num_left_out: int = 0

    @cached_property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """All metrics, of which a list of runs needs only the last row."""
        return list(read_metrics(self.path))

    @property
    def evaluations(self) -> list[dict[str, float]]:
        """`step` and the metrics below eval/ of each evaluation, from ``rows``; of step 0 before training."""
        return [
            {name: row[name] for name in row if name == "step" or name.startswith(EVALUATED)}
            for row in with_base(self.rows)
            if any(name.startswith(EVALUATED) for name in row)
        ]

    @cached_property
    def best(self) -> tuple[str, float, int] | None:
        """From ``rows``."""
        if self.config is None or not (self.config.checkpoint.best or self.config.eval.every):
            return None
        metric = self.config.checkpoint.best or "eval/pass@1"
        found = [(float(row[metric]), -int(row["step"])) for row in self.rows if row.get(metric) is not None]
        if not found:
            return None
        value, step = max(found)
        return metric, value, -step

    @cached_property
    def reward_failures(self) -> tuple[int, int] | None:
        """On how many of all rollouts the reward failed; None without a ``config``. From ``rows``."""
        if self.config is None:
            return None
        found = [(num_failures(row), num_drawn(row, self.config)) for row in self.rows]
        return sum(failed for failed, _ in found), sum(drawn for _, drawn in found)

    @property
    def failures_document(self) -> dict[str, int] | None:
        """``reward_failures`` as plain JSON values."""
        return self.reward_failures and dict(zip(("count", "of"), self.reward_failures, strict=True))

    @cached_property
    def size(self) -> int:
        """Bytes of its files, of which none is opened."""
        return folder_bytes(self.path)

    @cached_property
    def age_s(self) -> float | None:
        """Seconds since its status was written, which every iteration does; None if the status does not say."""
        try:
            since = datetime.now(UTC) - datetime.fromisoformat(self.updated or "")
        except (ValueError, TypeError):
            return None
        return max(0.0, since.total_seconds())

    def __fspath__(self) -> str:
        return str(self.path)


def chosen_metrics(names: Iterable[str]) -> list[str]:
    """Those of ``names`` by which runs are shown and compared: the main ones but evaluations, and parts of rewards."""
    there = dict.fromkeys(names)
    parts = [name for name in there if name.startswith(_REWARD_PARTS)]
    known = [name for name in _METRICS if name in there]
    return [*known[:1], *parts, *known[1:]]


def folder_bytes(folder: Path) -> int:
    """Sizes of all files below ``folder``; a symbolic link counts as itself, not as what it leads to."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with contextlib.suppress(FileNotFoundError, PermissionError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with contextlib.suppress(FileNotFoundError):  # a run under way renames its files
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def list_runs(root: Path) -> list[RunSummary]:
    """Every run below ``root`` (runs of sweeps too), by path. A run that cannot be read is listed as such.

    Raises:
        UsageError: there is no such directory.
    """
    if not root.is_dir():
        raise UsageError(f"{root}: no such directory; name the one that holds the runs, as in `quatro runs list DIR`")
    return [describe_or_unreadable(path) for path in sorted(runs_below(root))]


def describe_run(path: Path) -> RunSummary:
    """One run.

    Raises:
        UsageError: no run is there.
        DataError: a file of it cannot be read, or is of another run.
    """
    if is_imported(path):
        source, metrics = read_source(path), last_metrics(path)
        return RunSummary(
            path,
            "imported",
            reason=f"from {source['file']} of {source['from']}",
            step=int(metrics.get("step") or 0),
            updated=source["time"],
            metrics=metrics,
        )
    require_run(path)
    status = read_status(path)
    state, reason = status.get("status", "unknown"), status.get("reason")
    if state == "running" and not is_locked(path):
        state, reason = "killed", f"no process holds it; continue with `quatro train {path} --resume`"
    config = read_config(path)
    metrics = last_metrics(path)
    environment = read_environment(path)
    return RunSummary(
        path=path,
        status=str(state),
        reason=reason,
        step=int(metrics.get("step") or status.get("step") or 0),
        steps=config.steps,
        started=status.get("started") or environment.get("time"),
        updated=status.get("updated"),
        config=config,
        metrics=metrics,
        checkpoints=checkpoint_steps(path),
        num_prompts=environment.get("prompts"),
        num_left_out=environment.get("prompts_left_out", 0),
    )


def runs_below(root: Path) -> Iterator[Path]:
    """The folders below ``root`` that hold a run, imported ones too."""
    for folder, subfolders, files in os.walk(root):
        if "config.yaml" in files or is_imported(Path(folder)):
            subfolders.clear()
            yield Path(folder)


def describe_or_unreadable(path: Path) -> RunSummary:
    """`describe_run`, or why that is not possible."""
    try:
        return describe_run(path)
    except (QuatroError, OSError) as error:
        return RunSummary(path, "unreadable", reason=str(error))
