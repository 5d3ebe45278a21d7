"""Summaries of runs, read without changing them: state, last metrics, checkpoints; runs side by side; last lines."""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from evals.errors import QuatroError, UsageError
from evals.results.reading import labels_of
from evals.results.training_metrics import (
    EVALUATED,
    FIGURE_PANELS,
    LAST_ITERATIONS,
    SUMMARY_METRICS,
    TRAINING_METRICS,
    Rows,
    last_values,
    with_base,
)
from evals.text import clock_text, visible
from quatro.config import Config, differing_keys
from quatro.config.blocks import EMBEDDED_PROMPTS
from quatro.runs.checkpoint import checkpoint_steps, complete_checkpoints
from quatro.runs.directory import folder_bytes, require_run
from quatro.runs.identity import read_config
from quatro.runs.metrics import last_metrics, read_metrics
from quatro.runs.status import is_locked, read_environment, read_status
from quatro.runs.views.rollouts import failures_text, num_drawn, num_failures

REWARD = "reward/mean"

_METRICS = tuple(
    metric.name
    for metric in TRAINING_METRICS
    if (metric.name in SUMMARY_METRICS or metric in FIGURE_PANELS) and not metric.name.startswith(EVALUATED)
)
_PARTS = ("reward/parts/", "reward/mean/", "prompts/share/")
EXAMPLE = "NAME"  # of a benchmark, where none is known


@dataclass(frozen=True, repr=False)
class RunSummary:
    """One run. ``status`` is status.json's, or `killed` (running, but no process holds it) or `unreadable`.

    ``step`` iterations of ``steps`` are in metrics.jsonl; ``metrics`` is its last row. An unreadable run has no
    ``config``. It trains on ``num_prompts``; ``num_left_out`` more are too long.
    ``best`` is the metric by which a checkpoint is kept (else `eval/pass@1`), its largest value and the iteration of
    that. As a path it is its folder.
    """

    path: Path
    status: str
    reason: str | None = None
    step: int = 0
    steps: int | None = None
    started: str | None = None
    updated: str | None = None
    config: Config | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    checkpoints: tuple[int, ...] = ()
    num_prompts: int | None = None
    num_left_out: int = 0

    @cached_property
    def rows(self) -> Rows:
        """All metrics, of which a list of runs needs only the last row."""
        return list(read_metrics(self.path))

    @property
    def evaluations(self) -> list[dict[str, float]]:
        """`step` and the metrics below eval/ of each evaluation, from ``rows``; of step 0 before training."""
        return [
            {name: row[name] for name in row if name == "step" or name.startswith(EVALUATED)}
            for row in with_base(self.rows)
            if any(name.startswith(EVALUATED) for name in row)
        ]

    @cached_property
    def best(self) -> tuple[str, float, int] | None:
        """From ``rows``."""
        if self.config is None or not (self.config.checkpoint.keep.best or self.config.eval.every):
            return None
        metric = self.config.checkpoint.keep.best or "eval/pass@1"
        found = [(float(row[metric]), -int(row["step"])) for row in self.rows if row.get(metric) is not None]
        if not found:
            return None
        value, step = max(found)
        return metric, value, -step

    @cached_property
    def reward_failures(self) -> tuple[int, int] | None:
        """On how many of all rollouts the reward failed; None without a ``config``. From ``rows``."""
        if self.config is None:
            return None
        found = [(num_failures(row), num_drawn(row, self.config)) for row in self.rows]
        return sum(failed for failed, _ in found), sum(drawn for _, drawn in found)

    @property
    def failures_document(self) -> dict[str, int] | None:
        """``reward_failures`` as plain JSON values."""
        return self.reward_failures and dict(zip(("count", "of"), self.reward_failures, strict=True))

    @cached_property
    def size(self) -> int:
        """Bytes of its files, of which none is opened."""
        return folder_bytes(self.path)

    @cached_property
    def age_s(self) -> float | None:
        """Seconds since its status was written, which every iteration does; None if the status does not say."""
        try:
            since = datetime.now(UTC) - datetime.fromisoformat(self.updated or "")
        except (ValueError, TypeError):
            return None
        return max(0.0, since.total_seconds())

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        """Three lines: where it is and how far, what it trains, its last numbers."""
        of_all = "" if self.steps is None else f" of {self.steps}"
        where = f"{self.path}: {self.status}, {self.step}{of_all} iterations"
        trained = ""
        if self.config is not None:
            radius = self.config.method.kl_radius
            trained = (
                f"{self.config.method.name}{'' if radius is None else f', delta {radius:g},'} on {self.config.model}"
            )
        numbers = (f"{name} {self.metrics[name]:.4g}" for name in SUMMARY_METRICS if self.metrics.get(name) is not None)
        lines = ("; ".join(filter(None, (where, self.reason))), trained, ", ".join(numbers))
        return "\n".join(visible(line, keep="") for line in lines)


def value_text(row: Mapping[str, Any], metric: str) -> str | None:
    """The value of an evaluation, with its standard error where that is known."""
    return spread_text(row.get(metric), row.get(f"{metric}_se"))


def spread_text(value: float | None, spread: float | None) -> str | None:
    """`0.412 ± 0.02`, or without a ``spread`` the value alone; None without a value."""
    if value is None:
        return None
    return f"{value:.4g}" if spread is None else f"{value:.4g} ± {spread:.2g}"


def best_text(run: RunSummary, metric: str, step: int) -> str:
    """The best value of ``metric``, which was in ``step``, and that before training."""
    rows = {int(row["step"]): row for row in with_base(run.rows)}
    before = value_text(rows.get(0, {}), metric)
    return f"{value_text(rows[step], metric)} in step {step}" + (f"; before training {before}" if before else "")


def chosen_metrics(names: Iterable[str]) -> list[str]:
    """Those of ``names`` by which runs are shown and compared: the main ones but evaluations, and parts of these."""
    there = dict.fromkeys(names)
    parts = [name for name in there if name.startswith(_PARTS)]
    known = [name for name in _METRICS if name in there]
    return [*known[:1], *parts, *known[1:]]


def list_runs(root: Path) -> list[RunSummary]:
    """Every run below ``root`` (of sweeps too), unreadable ones as such; raises UsageError if that is no directory."""
    if not root.is_dir():
        raise UsageError(f"{root}: no such directory; name the one that holds the runs, as in `quatro runs list DIR`")
    found: list[Path] = []
    for folder, subfolders, files in os.walk(root):
        if "config.yaml" in files:
            subfolders.clear()  # what is inside a run is no run
            found.append(Path(folder))
    return [describe_or_unreadable(path) for path in sorted(found)]


def describe_run(path: Path) -> RunSummary:
    """One run.

    Raises UsageError if no run is there, and DataError if a file of it cannot be read, or is of another run.
    """
    require_run(path)
    status = read_status(path)
    state, reason = status.get("status", "unknown"), status.get("reason")
    if state == "running" and not is_locked(path):
        state, reason = "killed", f"no process holds it; continue with `quatro train {path} --resume`"
    config = read_config(path)
    metrics = last_metrics(path)
    environment = read_environment(path)
    return RunSummary(
        path=path,
        status=str(state),
        reason=reason,
        step=int(metrics.get("step") or status.get("step") or 0),
        steps=config.steps,
        started=status.get("started") or environment.get("time"),
        updated=status.get("updated"),
        config=config,
        metrics=metrics,
        checkpoints=checkpoint_steps(path),
        num_prompts=environment.get("prompts"),
        num_left_out=environment.get("prompts_left_out", 0),
    )


def describe_or_unreadable(path: Path) -> RunSummary:
    """`describe_run`, or why that is not possible."""
    try:
        return describe_run(path)
    except (QuatroError, OSError) as error:
        return RunSummary(path, "unreadable", reason=str(error))


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


def ending(path: Path) -> list[str]:
    """The lines about the run in ``path``, none unless it is done; raises DataError if metrics.jsonl is broken."""
    run = describe_run(path)
    return [f"{heading:11}{said}" for heading, said in _lines(run)] if run.status == "done" else []


def _lines(run: RunSummary) -> Iterator[tuple[str, str]]:
    assert run.config is not None
    rows = run.rows
    seconds = math.fsum(row.get("perf/step_s") or 0.0 for row in rows)
    of_all = "" if run.step == run.steps else f" of {run.steps}"
    yield run.status, f"{run.step}{of_all} iterations in {clock_text(seconds)}"
    width = min(LAST_ITERATIONS, max(1, len(rows) // 2))
    over = f" (means of {width} iterations)" if width > 1 else ""
    yield "reward", f"{_change(rows, 'reward/mean', width)}{over}"
    if failures := failures_text(*(run.reward_failures or (0, 0))):
        yield "failures", failures
    if run.best is not None:
        metric, _, step = run.best
        yield "best", f"{metric} {best_text(run, metric, step)}"
        if step not in run.checkpoints:
            yield "", f"no checkpoint of step {step}: checkpoint.keep.best={metric} keeps one"
    kl, ratio = _mean(rows, "kl/new_old"), _mean(rows, "kl/ratio_to_delta")
    radius = f", {ratio:.2g} x delta" if ratio is not None else ""
    moved = f"; KL of an iteration {kl:.3g} nats{radius}" if kl is not None else ""
    yield "entropy", f"{_change(rows, 'entropy/token_mean', width)}{moved}"
    flat = sum(1 for _ in itertools.takewhile(lambda row: row.get("groups/mixed_share") == 0, reversed(rows)))
    if flat:
        last = "the last iteration" if flat == 1 else f"the last {flat} iterations"
        yield "no signal", f"in {last} no prompt had responses with different rewards"
    saved = complete_checkpoints(run.path)[-1:]
    yield "checkpoint", str(saved[0]) if saved else "none"
    best = " --step best" if run.config.checkpoint.keep.best else ""
    embedded = [one.source for one in run.config.data.sources if one.source in EMBEDDED_PROMPTS]
    benchmark = ",".join(one for one, _ in run.config.evaluated.values()) or [*embedded, EXAMPLE][0]
    yield "next", f"quatro sample {run.path}{best} -b {benchmark}"
    yield "", f"quatro plot training {run.path}"
    yield "", f"quatro runs show {run.path}"


def _change(rows: Rows, metric: str, width: int) -> str:
    """The mean of the first ``width`` iterations, and that of the last; of a single iteration its value."""
    parts = [rows[:width], rows[-width:]] if len(rows) > 1 else [rows]
    means = [_mean(part, metric) for part in parts]
    return " -> ".join("-" if mean is None else f"{mean:#.3g}" for mean in means)


def _mean(rows: Rows, metric: str) -> float | None:
    """Over the rows that have it; None if there are none."""
    known = [value for row in rows if (value := row.get(metric)) is not None]
    return fmean(known) if known else None
