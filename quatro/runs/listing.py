"""Which runs a list shows, and in what order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Any

from evals.errors import UsageError
from quatro.config.errors import closest
from quatro.runs.summary import STATUSES, RunSummary

ORDERS = ("name", "age", "size", "step", "reward", "best")
REWARD = "reward/mean"


def choose_runs(
    runs: Sequence[RunSummary],
    *,
    methods: Collection[str] | None = None,
    statuses: Collection[str] | None = None,
    name: str | None = None,
) -> list[RunSummary]:
    """The runs with one of ``methods``, one of ``statuses`` and a path like ``name``; None lets all pass.

    ``name`` is a shell pattern for the run's path or its last part; without `*`, `?` and `[` it is a part of the path.
    Capital and small letters are the same to it.

    Raises:
        UsageError: a run never has such a status.
    """
    for status in statuses or ():
        if status not in STATUSES:
            raise UsageError(
                f"--status {status}: a run never has it{closest(status, STATUSES)}; expected {', '.join(STATUSES)}"
            )
    pattern = "*" if name is None else name.lower() if set("*?[") & set(name) else f"*{name.lower()}*"
    return [
        run
        for run in runs
        if (methods is None or (run.config is not None and run.config.method.name in methods))
        and (statuses is None or run.status in statuses)
        and (fnmatchcase(str(run.path).lower(), pattern) or fnmatchcase(run.path.name.lower(), pattern))
    ]


def none_chosen(runs: Sequence[RunSummary], **given: object) -> str:
    """What to say where `choose_runs` finds none of ``runs``: what was ``given``, and what there is to choose from."""
    options = " ".join(
        f"--{name} {value if isinstance(value, str) else ','.join(map(str, value))}"
        for name, value in given.items()
        if isinstance(value, str | list)
    )
    methods = sorted({run.config.method.name for run in runs if run.config is not None})
    statuses = [status for status in STATUSES if any(run.status == status for run in runs)]
    known = {"method": f"the methods are {', '.join(methods)}", "status": f"the statuses are {', '.join(statuses)}"}
    there = [text for name, text in known.items() if given.get(name) is not None]
    return "; ".join([f"none of the {len(runs)} runs has {options}", *there])


def metric_of(order: str) -> str | None:
    """The metric by which ``order`` sorts, if it does."""
    return None if order in ORDERS and order != "reward" else REWARD if order == "reward" else order


def sort_runs(runs: Sequence[RunSummary], order: str) -> list[RunSummary]:
    """``runs`` by name, newest, largest, furthest or `best` first, or by a metric of their last row, largest first.

    A run without the value comes last.

    Raises:
        UsageError: ``order`` is not in `ORDERS`, and no run has such a metric.
    """
    metric = metric_of(order)
    if metric is not None and runs and not any(metric in run.metrics for run in runs) and metric != REWARD:
        known = sorted({name for run in runs for name in run.metrics if "/" in name})
        raise UsageError(
            f"--sort {order}: expected {', '.join(ORDERS)} or a metric in the last row of a run"
            f"{closest(order, [*ORDERS, *known])}"
        )

    def value(run: RunSummary) -> Any:
        if metric is not None:
            return run.metrics.get(metric)
        if order == "age":
            return None if run.age_s is None else -run.age_s
        if order == "best":
            return run.best and run.best[1]
        return run.size if order == "size" else run.step

    if order == "name":
        return list(runs)
    return sorted(runs, key=lambda run: (value(run) is None, -(value(run) or 0)))
