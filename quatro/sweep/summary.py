"""Writes what the runs of a sweep measured: summary.csv, one row a point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.files.frames import TEXT, frame_of, write_frame
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
    axes = (key for outcome in outcomes for key in outcome.point.settings if key != "steps")
    measured = (name for outcome in outcomes for name in outcome.measured)
    place = ("point", "cell", "status") if any(outcome.point.cell for outcome in outcomes) else ("point", "status")
    columns = {**dict.fromkeys(place, TEXT), "steps": "int64", **dict.fromkeys(axes, TEXT)}
    columns |= {**dict.fromkeys((*SUMMARY_METRICS, *measured), "float64"), "reason": TEXT}
    write_frame(frame_of([_row(outcome, folder) for outcome in outcomes], columns), folder / "summary.csv")


def _row(outcome: PointOutcome, folder: Path) -> dict[str, Any]:
    point, rows = outcome.point, list(read_metrics(folder / "runs" / outcome.point.name))
    about = {"point": point.name, "cell": point.cell, "status": outcome.status, "reason": outcome.reason}
    means = {name: last_mean(rows, name) for name in SUMMARY_METRICS}
    return {**about, **point.settings, "steps": len(rows), **means, **outcome.measured}
