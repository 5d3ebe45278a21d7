"""Writes what the runs of a sweep measured: summary.csv, one row a point."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.files.frames import csv_cell
from evals.files.whole import write_text
from evals.results.training_metrics import SUMMARY_METRICS, last_mean
from quatro.runs.metrics import read_metrics
from quatro.sweep.plan import Point


@dataclass(frozen=True)
class PointOutcome:
    """The state of a point: ``status`` as in its status.json, ``killed`` or ``missing``; ``reason`` if it is not done.

    With an evaluation a trained point is ``unmeasured`` until ``measured`` holds its numbers. ``warnings`` are what the
    training and the sampling of the point warned of.
    """

    point: Point
    status: str
    reason: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        point = {"name": self.point.name, "cell": self.point.cell or None, "settings": self.point.settings}
        others = ("status", "reason", "measured", "warnings")
        return {**point, **{name: getattr(self, name) for name in others}}


def write_summary(outcomes: Sequence[PointOutcome], folder: Path) -> None:
    """summary.csv: a row for each point, with means of training metrics over its last iterations and sample metrics."""
    axes = list(dict.fromkeys(key for outcome in outcomes for key in outcome.point.settings))
    cell_column = ["cell"] if any(outcome.point.cell for outcome in outcomes) else []
    values = [_values(outcome, folder) for outcome in outcomes]
    measured = list(dict.fromkeys(name for outcome in outcomes for name in outcome.measured))
    metrics = [*SUMMARY_METRICS, *measured]
    rows: list[Sequence[object]] = [["point", *cell_column, "status", "steps", *axes, *metrics, "reason"]]
    for outcome, found in zip(outcomes, values, strict=True):
        place = [outcome.point.cell] if cell_column else []
        settings = [outcome.point.settings.get(key) for key in axes]
        numbers = [found.get(name) for name in metrics]
        steps = int(found["steps"] or 0)
        rows.append([outcome.point.name, *place, outcome.status, steps, *settings, *numbers, outcome.reason])
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)
    write_text(folder / "summary.csv", buffer.getvalue())


def _values(outcome: PointOutcome, folder: Path) -> dict[str, float | None]:
    rows = list(read_metrics(folder / "runs" / outcome.point.name))
    means = {name: last_mean(rows, name) for name in SUMMARY_METRICS}
    return {"steps": float(len(rows)), **means, **outcome.measured}
