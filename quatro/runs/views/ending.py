"""What a run says of itself when it is done, in a few lines for the terminal and log.txt."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.files.metric_rows import LAST_ITERATIONS
from evals.text import clock_text
from quatro.config.blocks import EMBEDDED_PROMPTS
from quatro.runs.checkpoint import complete_checkpoints
from quatro.runs.views.rollouts import failures_text
from quatro.runs.views.summary import RunSummary, best_text, describe_run

Row = Mapping[str, Any]
EXAMPLE = "NAME"  # of a benchmark, where none is known


def ending(path: Path) -> list[str]:
    """The lines about the run in ``path``; none unless it is done.

    Raises:
        DataError: metrics.jsonl is broken.
    """
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
    best = " --step best" if run.config.checkpoint.best else ""
    prompts = run.config.data.prompts
    benchmark = run.config.eval.benchmark or (prompts if prompts in EMBEDDED_PROMPTS else EXAMPLE)
    yield "next", f"quatro sample {run.path}{best} -b {benchmark}"
    yield "", f"quatro plot training {run.path}"
    yield "", f"quatro runs show {run.path}"


def _change(rows: Sequence[Row], metric: str, width: int) -> str:
    """The mean of the first ``width`` iterations, and that of the last; of a single iteration its value."""
    parts = [rows[:width], rows[-width:]] if len(rows) > 1 else [rows]
    means = [_mean(part, metric) for part in parts]
    return " -> ".join("-" if mean is None else f"{mean:#.3g}" for mean in means)


def _mean(rows: Sequence[Row], metric: str) -> float | None:
    """Over the rows that have it; None if there are none."""
    known = [value for row in rows if (value := row.get(metric)) is not None]
    return math.fsum(known) / len(known) if known else None
