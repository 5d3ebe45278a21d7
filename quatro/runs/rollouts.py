"""Reads the training responses of a run: rollouts/step-000020.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from evals.errors import UsageError
from evals.files.strict_json import parse_row, read_lines
from quatro.runs.directory import require_run, step_number

Order = Literal["file", "worst", "best"]


def read_rollouts(run: Path, step: int | None = None) -> tuple[int, list[dict[str, Any]]]:
    """``(step, rows)`` of the iteration ``step``, by default the last one that was written, in the order of the file.

    Raises:
        UsageError: no run is there, it kept no rollouts, or none of that iteration.
        DataError: a row cannot be read; names file and line.
    """
    require_run(run)
    files = {number: path for path in (run / "rollouts").glob("step-*.jsonl") if (number := step_number(path.stem))}
    if not files:
        raise UsageError(f"{run} has no rollouts: it has finished no iteration, or save_rollouts is false")
    step = max(files) if step is None else step
    if step not in files:
        raise UsageError(f"--step {step}: {run} has rollouts of the iterations {min(files)} to {max(files)}")
    file = files[step]
    rows = [parse_row(line, f"{file}:{number}") for number, line, _ in read_lines(file)]
    return step, [row for row in rows if row is not None]


def chosen(rows: list[dict[str, Any]], *, id: str | None, order: Order, count: int) -> list[dict[str, Any]]:
    """At most ``count`` of ``rows``: those of problem ``id``, if given, and those with the best or worst rewards first.

    Raises:
        UsageError: no row is of that problem.
    """
    if id is not None:
        ids = dict.fromkeys(str(row.get("id")) for row in rows)
        rows = [row for row in rows if str(row.get("id")) == id]
        if not rows:
            known = ", ".join(map(ascii, list(ids)[:5])) + (", ..." if len(ids) > 5 else "")
            raise UsageError(f"--id {id!a}: no rollout is of that problem; there are {known}")
    if order != "file":
        rows = sorted(rows, key=lambda row: row.get("reward") or 0.0, reverse=order == "best")
    return rows[:count]
