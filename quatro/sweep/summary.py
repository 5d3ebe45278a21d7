"""Writes what the runs of a sweep measured: summary.csv, one row a point, and summary-seeds.csv, one row a setting."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.files.frames import csv_cell, grouped
from evals.files.whole import write_text
from evals.intervals import mean_of_seeds
from evals.results.document import largest_value
from evals.results.training_metrics import SUMMARY_METRICS, last_mean
from quatro.runs.metrics import read_metrics
from quatro.sweep.measure import BASE_CELL, run_folder, told_by
from quatro.sweep.plan import SEED_AXIS, Point
from quatro.sweep.results import counts_in


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

    summary-seeds.csv: one row for the points that differ in the seed only, with the mean of each metric, the ends of
    its 95 % interval as in tables, and what that is over. Points that are not done do not count there.
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
    spread = [f"{name}{end}" for name in metrics for end in ("", " low", " high", " over")]
    rows = [[*cell_column, *axes, "num_seeds", *spread]]

    def setting_of(one: tuple[PointOutcome, object]) -> tuple[str | None, ...]:
        # Two models to begin from are two rows, not two seeds.
        point = one[0].point
        row = [point.name if point.cell == BASE_CELL else point.cell] if cell_column else []
        return (*row, *map(point.settings.get, axes))

    for setting, members in grouped(zip(outcomes, values, strict=True), setting_of).items():
        done = [one for one in members if one[0].status == "done"]
        intervals = [_interval(name, done, folder) for name in metrics]
        rows.append([*setting, len(done), *(number for interval in intervals for number in interval)])
    _write_rows(folder / "summary-seeds.csv", rows)


def _interval(
    name: str, seeds: Sequence[tuple[PointOutcome, Mapping[str, float | None]]], folder: Path
) -> tuple[float | str | None, ...]:
    """Mean, low, high and what these are over; unknown where a seed lacks it: a mean over fewer would say too much."""
    known = [value for _, found in seeds if (value := found.get(name)) is not None and math.isfinite(value)]
    if not known or len(known) < len(seeds):
        return None, None, None, None
    by_problem, largest = [], None
    if all(name in one.measured for one, _ in seeds):
        benchmark, tag, metric, k = told_by(name)
        largest = largest_value(metric, k, None)
        counts = [counts_in(run_folder(folder, one.point), tag)[benchmark] for one, _ in seeds]
        values = [own.passed(k) if metric == "pass@k" else own.unique(k) for own in counts]
        by_problem = [[dict(zip(own.ids, found, strict=True)) for own, found in zip(counts, values, strict=True)]]
    found = mean_of_seeds(known, by_problem, largest)
    return (found.mean, found.low, found.high, found.over) if found.low is not None else (found.mean, None, None, None)


def _values(outcome: PointOutcome, folder: Path) -> dict[str, float | None]:
    rows = list(read_metrics(folder / "runs" / outcome.point.name))
    means = {name: last_mean(rows, name) for name in SUMMARY_METRICS}
    return {"steps": float(len(rows)), **means, **outcome.measured}


def _write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)
    write_text(path, buffer.getvalue())
