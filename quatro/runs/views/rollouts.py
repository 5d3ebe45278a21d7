"""Reads the training responses of a run: rollouts/step-000020.jsonl."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from evals.errors import UsageError
from evals.files.strict_json import parse_row, read_lines
from quatro.config import Config
from quatro.runs.directory import require_run, step_number
from quatro.runs.identity import newest_state, refuse_changed_rollouts
from quatro.runs.status import read_status

Order = Literal["file", "worst", "best"]


def read_rollouts(run: Path, step: int | None = None) -> tuple[int, list[dict[str, Any]]]:
    """``(step, rows)`` of the iteration ``step``, by default the last one that was written, in the order of the file.

    Raises:
        UsageError: no run is there, it kept no rollouts, or none of that iteration.
        DataError: a row cannot be read, which names file and line; or the file is not what the run has written.
    """
    require_run(run)
    files = {number: path for path in (run / "rollouts").glob("step-*.jsonl") if (number := step_number(path.stem))}
    if not files:
        raise UsageError(f"{run} has no rollouts: it has finished no iteration, or save_rollouts is false")
    step = max(files) if step is None else step
    if step not in files:
        raise UsageError(f"--step {step}: {run} has rollouts of the iterations {min(files)} to {max(files)}")
    file = files[step]
    refuse_changed_rollouts(file, newest_state(run, read_status(run)))
    rows = [parse_row(line, f"{file}:{number}") for number, line, _ in read_lines(file)]
    return step, [row for row in rows if row is not None]


def num_failures(metrics: Mapping[str, Any]) -> int:
    """On how many rollouts of an iteration the reward failed."""
    return int((metrics.get("reward/errors") or 0) + (metrics.get("reward/timeouts") or 0))


def num_drawn(metrics: Mapping[str, Any], config: Config) -> int:
    """How many rollouts an iteration drew; the metric `rollouts` counts what is left of them where some are dropped."""
    return int(config.prompts_per_step * config.rollouts_per_prompt * metrics.get("sampling/rounds", 1.0))


def failures_text(failed: int, drawn: int) -> str:
    """What a run says if the reward failed on ``failed`` of ``drawn`` rollouts; empty if on none."""
    return f"the reward failed on {failed} of {drawn} responses" if failed else ""


def chosen(rows: list[dict[str, Any]], *, id: str | None, order: Order, count: int) -> list[dict[str, Any]]:
    """At most ``count`` of ``rows``: those of problem ``id``, if given, and those with the best or worst rewards first.

    By reward, those that were dropped, which have none, come last. Raises UsageError if no row is of that problem.
    """
    if id is not None:
        of_problem = [row for row in rows if str(row.get("id")) == id]
        if rows and not of_problem:
            raise UsageError(f"--id {id!a}: no rollout is of that problem; the first is of {str(rows[0].get('id'))!a}")
        rows = of_problem
    if order != "file":
        sign = -1.0 if order == "best" else 1.0
        rows = sorted(rows, key=lambda row: (row.get("reward") is None, sign * (row.get("reward") or 0.0)))
    return rows[:count]
