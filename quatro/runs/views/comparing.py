"""Runs side by side: the settings in which they differ, their last iterations and their evaluations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

from evals.results.reading import labels_of
from evals.training_metrics import EVALUATED, Rows, evaluation_metrics, is_finite, last_values, with_base
from quatro.config import differing_keys
from quatro.runs.views.summary import RunSummary, chosen_metrics, describe_run

Value = TypeVar("Value")


class LastIterations(NamedTuple):
    """Mean of a metric over the last iterations of a run, and its standard deviation; None for a single one."""

    mean: float
    std: float | None
    num_iterations: int


class Evaluated(NamedTuple):
    """The value of a metric of an evaluation after ``step``; ``error``: standard error over problems, where known."""

    value: float
    step: int
    error: float | None = None


@dataclass(frozen=True)
class RunsBeside:
    """Runs side by side; each list has an entry for each of ``runs``, None where a run has no such thing.

    ``settings`` are those in which runs differ, by key, as YAML. ``base``, ``last`` and ``best`` are of evaluations
    before and during training, by metric.
    """

    names: Sequence[str]
    runs: Sequence[RunSummary]
    settings: Mapping[str, Sequence[str | None]]
    metrics: Mapping[str, Sequence[LastIterations | None]]
    base: Mapping[str, Sequence[Evaluated | None]]
    last: Mapping[str, Sequence[Evaluated | None]]
    best: Mapping[str, Sequence[Evaluated | None]]

    def document(self) -> dict[str, Any]:
        """All of it as plain JSON values."""

        def plain(table: Mapping[str, Sequence[LastIterations | Evaluated | None]]) -> dict[str, Any]:
            return {name: [value and value._asdict() for value in values] for name, values in table.items()}

        return {
            "schema": 1,
            "runs": [
                {
                    "name": name,
                    "run": str(run.path),
                    "status": run.status,
                    "step": run.step,
                    "steps": run.steps,
                    "reward_failures": run.failures_document,
                }
                for name, run in zip(self.names, self.runs, strict=True)
            ],
            "settings": self.settings,
            "metrics": plain(self.metrics),
            "evaluation": {"base": plain(self.base), "last": plain(self.last), "best": plain(self.best)},
        }


def compare_runs(paths: Sequence[Path]) -> RunsBeside:
    """The runs at ``paths`` side by side; reads all of their metrics.

    Raises UsageError if a path is not a run, or is named twice, and DataError if a file of a run cannot be read.
    """
    names = labels_of(paths)
    runs = [describe_run(path) for path in paths]
    configs = [run.config for run in runs]
    settings = {}
    for key, values in differing_keys([config for config in configs if config is not None]).items():
        known = iter(values)
        settings[key] = [None if config is None else next(known) for config in configs]
    names_of_metrics = [name for run in runs for row in run.rows for name in row]
    evaluated = evaluation_metrics(name for name in names_of_metrics if name.startswith(f"{EVALUATED}pass@"))

    def table(metrics: Iterable[str], value_of: Callable[[Rows, str], Value | None]) -> dict[str, list[Value | None]]:
        """Rows of metrics that a run has a value of."""
        found = {name: [value_of(run.rows, name) for run in runs] for name in metrics}
        return {name: values for name, values in found.items() if any(value is not None for value in values)}

    metrics = table(chosen_metrics(names_of_metrics), _last_iterations)
    base, last, best = (table(evaluated, value_of) for value_of in (_base, _last, _best))
    return RunsBeside(names, runs, settings, metrics, base, last, best)


def _last_iterations(rows: Rows, metric: str) -> LastIterations | None:
    values = last_values(rows, metric)
    if not values:
        return None
    return LastIterations(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def _evaluations(rows: Rows, metric: str) -> list[Evaluated]:
    found = [row for row in rows if is_finite(row.get(metric))]
    return [Evaluated(float(row[metric]), int(row["step"]), row.get(f"{metric}_se")) for row in found]


def _base(rows: Rows, metric: str) -> Evaluated | None:
    return next((found for found in _evaluations(with_base(rows), metric) if found.step == 0), None)


def _last(rows: Rows, metric: str) -> Evaluated | None:
    return next(reversed(_evaluations(rows, metric)), None)


def _best(rows: Rows, metric: str) -> Evaluated | None:
    return max(_evaluations(rows, metric), key=lambda found: found.value, default=None)
