"""Runs side by side: the settings in which they differ, their last iterations, their evaluations and their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from evals.errors import DataError, UsageError
from evals.files.metric_rows import Rows, is_finite, last_values
from evals.metrics.comparing import compare_passk
from evals.metrics.counted import Counted, count_samples
from evals.results.comparison import Comparison
from evals.results.labels import labels_of
from evals.samples.graded import Asked, agreed_grader
from evals.training_metrics import TRAINING_METRICS
from quatro.config import differing_keys
from quatro.runs.metrics import read_metrics
from quatro.runs.summary import RunSummary, describe_run

EVALUATION = "eval/"
METRICS = tuple(
    metric.name
    for metric in TRAINING_METRICS
    if (metric.is_in_summary or metric.is_in_figure) and not metric.name.startswith(EVALUATION)
)


class LastIterations(NamedTuple):
    """Mean of a metric over the last iterations of a run, and its standard deviation; None for a single one."""

    mean: float
    std: float | None
    num_iterations: int


class Evaluated(NamedTuple):
    """The value of a metric of the evaluation during training, and the iteration after which it was measured."""

    value: float
    step: int


@dataclass(frozen=True)
class RunsBeside:
    """Runs side by side; each list has an entry for each of ``runs``, None where a run has no such thing.

    ``settings`` are those in which runs differ, by key, as YAML. ``last`` and ``best`` are of the evaluation during
    training, by metric. ``samples`` compare Pass@k of the first run with that of each other, for samples that were
    drawn alike; what could not be compared is in ``notes``.
    """

    names: Sequence[str]
    runs: Sequence[RunSummary]
    settings: Mapping[str, Sequence[str | None]]
    metrics: Mapping[str, Sequence[LastIterations | None]]
    last: Mapping[str, Sequence[Evaluated | None]]
    best: Mapping[str, Sequence[Evaluated | None]]
    samples: Sequence[Comparison]
    notes: Sequence[str]

    @property
    def tags(self) -> list[str]:
        """Folders of samples that were compared."""
        return list(dict.fromkeys(Path(found.a).name for found in self.samples))

    def compared(self, tag: str) -> list[Comparison | None]:
        """How the samples of each run but the first compare with those of the first."""
        by_run = {Path(found.b).parents[1]: found for found in self.samples if Path(found.b).name == tag}
        return [by_run.get(run.path) for run in self.runs[1:]]

    def document(self) -> dict[str, Any]:
        """All of it as plain JSON values."""

        def plain(table: Mapping[str, Sequence[LastIterations | Evaluated | None]]) -> dict[str, Any]:
            return {name: [value and value._asdict() for value in values] for name, values in table.items()}

        return {
            "schema": 1,
            "runs": [
                {"name": name, "run": str(run.path), "status": run.status, "step": run.step, "steps": run.steps}
                for name, run in zip(self.names, self.runs, strict=True)
            ],
            "settings": self.settings,
            "metrics": plain(self.metrics),
            "evaluation": {"last": plain(self.last), "best": plain(self.best)},
            "samples": [found.document() for found in self.samples],
            "notes": self.notes,
        }


def compare_runs(paths: Sequence[Path]) -> RunsBeside:
    """The runs at ``paths`` side by side; reads all of their metrics, and grades no samples.

    Raises:
        UsageError: a path is no run, or is named twice.
        DataError: a file of a run cannot be read.
    """
    names = labels_of(paths)
    runs = [describe_run(path) for path in paths]
    rows = [list(read_metrics(path)) for path in paths]
    places = [place for place, run in enumerate(runs) if run.config is not None]
    differing = differing_keys([run.config for run in runs if run.config is not None])
    settings = {
        key: [values[places.index(place)] if place in places else None for place in range(len(runs))]
        for key, values in differing.items()
    }
    metrics = {name: [_last_iterations(one, name) for one in rows] for name in METRICS}
    evaluated = dict.fromkeys(
        name for one in rows for row in one for name in row if name.startswith(f"{EVALUATION}pass@")
    )
    last = {name: [_last(one, name) for one in rows] for name in evaluated}
    best = {name: [_best(one, name) for one in rows] for name in evaluated}
    samples, notes = _compared_samples(paths)
    return RunsBeside(names, runs, settings, _known(metrics), last, best, samples, notes)


def _known(table: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The rows in which a run has a value."""
    return {name: values for name, values in table.items() if any(value is not None for value in values)}


def _last_iterations(rows: Rows, metric: str) -> LastIterations | None:
    values = last_values(rows, metric)
    if not values:
        return None
    return LastIterations(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def _evaluations(rows: Rows, metric: str) -> list[Evaluated]:
    return [Evaluated(float(row[metric]), int(row["step"])) for row in rows if is_finite(row.get(metric))]


def _last(rows: Rows, metric: str) -> Evaluated | None:
    return next(reversed(_evaluations(rows, metric)), None)


def _best(rows: Rows, metric: str) -> Evaluated | None:
    return max(_evaluations(rows, metric), key=lambda found: found.value, default=None)


def _compared_samples(paths: Sequence[Path]) -> tuple[list[Comparison], list[str]]:
    """Of every tag that the first run and another have: Pass@1 and Pass@n of the other minus those of the first."""
    first, *others = paths
    found, notes = [], []
    counted: dict[Path, Counted] = {}

    def count(folder: Path) -> Counted:
        if folder not in counted:
            counted[folder] = count_samples([folder], asked=Asked(may_grade=False))
            counted[folder].keep()
        return counted[folder]

    for tag in sorted(folder.name for folder in first.glob("samples/*") if folder.is_dir()):
        for other in others:
            folders = (first / "samples" / tag, other / "samples" / tag)
            if not folders[1].is_dir():
                continue
            try:
                a, b = map(count, folders)
                agreed_grader({str(folder): count(folder).grader for folder in folders})
                ks = [1, min(problem.n for problem in a.problems)]
                found.append(compare_passk(a, b, names=(str(folders[0]), str(folders[1])), ks=ks))
            except (DataError, UsageError) as error:
                notes.append(f"{folders[0]} and {folders[1]} are not compared: {error}")
    return found, notes
