"""Writes what the runs of a sweep measured: summary.csv, one row a point, and summary-seeds.csv, one row a setting."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.files.frames import csv_cell
from evals.files.whole import write_text
from evals.intervals import mean_over_seeds
from evals.results.entries import FEWEST_SEEDS
from evals.training_metrics import SUMMARY_METRICS, last_mean
from quatro.runs.metrics import read_metrics
from quatro.runs.points import group_by_seed
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.plan import SEED_AXIS, Point


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
    """summary.csv: one row for each point, with means of training metrics over its last iterations and sample metrics.

    summary-seeds.csv: one row for the points that differ in the seed only, with mean, low and high of each metric (95 %
    Student t interval over the seeds, empty for fewer than three, as in tables). Points that are not done do not count
    there.
    """
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
    _write_rows(folder / "summary.csv", rows)

    axes = [key for key in axes if key != SEED_AXIS]
    spread = [f"{name}{end}" for name in metrics for end in ("", " low", " high")]
    rows = [[*cell_column, *axes, "num_seeds", *spread]]

    def setting_of(one: tuple[PointOutcome, object]) -> tuple[str | None, ...]:
        # Two models to begin from are two rows, not two seeds.
        point = one[0].point
        row = [point.name if point.cell == BASE_CELL else point.cell] if cell_column else []
        return (*row, *map(point.settings.get, axes))

    for setting, members in group_by_seed(zip(outcomes, values, strict=True), setting_of).items():
        done = [found for outcome, found in members if outcome.status == "done"]
        intervals = [_interval([found.get(name) for found in done]) for name in metrics]
        rows.append([*setting, len(done), *(number for interval in intervals for number in interval)])
    _write_rows(folder / "summary-seeds.csv", rows)


def _interval(values: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """Mean, low and high; all unknown where a seed lacks the value: a mean over fewer seeds would say too much."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or len(known) < len(values):
        return None, None, None
    found = mean_over_seeds(known)
    return (found.mean, found.low, found.high) if len(known) >= FEWEST_SEEDS else (found.mean, None, None)


def _values(outcome: PointOutcome, folder: Path) -> dict[str, float | None]:
    rows = list(read_metrics(folder / "runs" / outcome.point.name))
    means = {name: last_mean(rows, name) for name in SUMMARY_METRICS}
    return {"steps": float(len(rows)), **means, **outcome.measured}


def _write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)
    write_text(path, buffer.getvalue())
