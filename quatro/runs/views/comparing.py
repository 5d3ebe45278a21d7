"""Runs side by side: the settings in which they differ, and their last iterations."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from evals.results.reading import labels_of
from evals.results.training_metrics import Rows, last_values
from quatro.config import differing_keys
from quatro.runs.views.summary import chosen_metrics, describe_run


def compare_runs(paths: Sequence[Path]) -> dict[str, Any]:
    """The runs at ``paths`` side by side, as plain JSON values; reads all of their metrics.

    `settings` are those in which runs differ, by key, as YAML, and `metrics` what each has in its last iterations; both
    have an entry for each of `runs`, None where a run has no such thing.

    Raises UsageError if a path is not a run, or is named twice, and DataError if a file of a run cannot be read.
    """
    names, runs = labels_of(paths), [describe_run(path) for path in paths]
    configs = [run.config for run in runs]
    settings = {}
    for key, values in differing_keys([config for config in configs if config is not None]).items():
        known = iter(values)
        settings[key] = [None if config is None else next(known) for config in configs]
    chosen = chosen_metrics(name for run in runs for row in run.rows for name in row)
    metrics = {name: [_last_iterations(run.rows, name) for run in runs] for name in chosen}
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
            for name, run in zip(names, runs, strict=True)
        ],
        "settings": settings,
        "metrics": {name: values for name, values in metrics.items() if any(values)},
    }


def _last_iterations(rows: Rows, metric: str) -> dict[str, Any] | None:
    """Mean of a metric over the last iterations, and its standard deviation; None for a single one."""
    values = last_values(rows, metric)
    if not values:
        return None
    std = stdev(values) if len(values) > 1 else None
    return {"mean": fmean(values), "std": std, "num_iterations": len(values)}
