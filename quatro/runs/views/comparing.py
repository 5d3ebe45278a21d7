"""Runs side by side: the settings in which they differ, and their last iterations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from evals.results.reading import labels_of
from evals.results.training_metrics import Rows, last_values
from quatro.config import differing_keys
from quatro.runs.views.summary import RunSummary, chosen_metrics, describe_run


class LastIterations(NamedTuple):
    """Mean of a metric over the last iterations of a run, and its standard deviation; None for a single one."""

    mean: float
    std: float | None
    num_iterations: int


@dataclass(frozen=True)
class RunsBeside:
    """Runs side by side; each list has an entry for each of ``runs``, None where a run has no such thing.

    ``settings`` are those in which runs differ, by key, as YAML.
    """

    names: Sequence[str]
    runs: Sequence[RunSummary]
    settings: Mapping[str, Sequence[str | None]]
    metrics: Mapping[str, Sequence[LastIterations | None]]

    def document(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
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
            "metrics": {name: [one and one._asdict() for one in values] for name, values in self.metrics.items()},
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
    chosen = chosen_metrics(name for run in runs for row in run.rows for name in row)
    found = {name: [_last_iterations(run.rows, name) for run in runs] for name in chosen}
    return RunsBeside(names, runs, settings, {name: values for name, values in found.items() if any(values)})


def _last_iterations(rows: Rows, metric: str) -> LastIterations | None:
    values = last_values(rows, metric)
    if not values:
        return None
    return LastIterations(fmean(values), stdev(values) if len(values) > 1 else None, len(values))
