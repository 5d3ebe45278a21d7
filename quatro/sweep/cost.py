"""What a sweep is going to cost: tokens, GPU hours and disk, from assumptions that are said with the numbers.

Imports no torch. Once a run of the sweep is done, its own seconds take the place of the assumptions about training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.benchmarks.catalogue import registry
from evals.benchmarks.loading import load_problems
from evals.files.metric_rows import last_mean
from evals.text import size_text
from quatro.config import Config
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_status
from quatro.sweep.measure import BASE_CELL, SweepEvaluation, all_measured, run_folder
from quatro.sweep.plan import Point

# Of an H100 or H200: dense bfloat16 operations a second (data sheet), and the shares of them that we assume.
PEAK = 989e12
DRAWING, LEARNING = 0.10, 0.40
RESPONSE_SHARE = 0.5  # how long responses are, of their limit
PROMPT_TOKENS = 150
BYTES_PER_TOKEN = 4  # of text
BYTES_PER_ROLLOUT_TOKEN = 30  # in rollouts/: text, and log-probabilities as digits
HOUR_S = 3600


@dataclass(frozen=True)
class SweepCost:
    """Sums over what is left of the points: ``num_runs`` are not done, ``num_done`` are.

    ``gpu_hours`` is None where the size of a model is not known from its name. ``seconds`` are those of the runs on
    this machine, from runs of this sweep that are done; None while none is.
    """

    num_runs: int
    rollouts: int
    tokens: float
    samples: int
    sampled_tokens: float
    gpu_hours: float | None
    seconds: float | None
    disk_bytes: float
    num_done: int = 0

    @property
    def lines(self) -> list[str]:
        """For a person: the numbers, and what was assumed."""
        if not self.num_runs and not self.samples:
            return ["nothing is left to draw or to learn from"]
        who = (
            f"{self.num_runs} of {self.num_runs + self.num_done} runs are left: they"
            if self.num_done
            else f"{self.num_runs} runs"
        )
        lines = [f"{who} draw and learn from {self.rollouts:,} responses, {_count(self.tokens)} tokens"]
        if self.samples:
            lines.append(f"measuring draws {self.samples:,} samples, {_count(self.sampled_tokens)} tokens")
        if self.seconds is not None:
            lines.append(
                f"about {_hours(self.seconds / HOUR_S)} of training here, at the pace of the runs that are done"
            )
        elif self.gpu_hours is not None:
            lines.append(
                f"about {_hours(self.gpu_hours)} of one H100: assumed are responses of half their limit, {DRAWING:.0%} "
                f"of the GPU's {PEAK / 1e12:.0f} TFLOP/s while drawing and {LEARNING:.0%} while learning"
            )
        else:
            lines.append("how long it takes is known once the first run is done")
        return [*lines, f"about {size_text(self.disk_bytes)} of disk"]


def sweep_cost(points: Sequence[Point], folder: Path, evaluation: SweepEvaluation | None) -> SweepCost:
    """The cost of what is left to do of ``points``, bases among them; a run that has begun counts by its last steps.

    Raises:
        MissingError, DataError: a benchmark is not here, or a result cannot be read.
    """
    num_problems = sum(map(_num_problems, evaluation.benchmarks)) if evaluation else 0
    samples_each = num_problems * evaluation.n * len(evaluation.tags) if evaluation else 0
    runs = [point for point in points if point.cell != BASE_CELL]
    steps = {point.name: _steps_left(point, folder) for point in runs}
    left = [point for point in runs if steps[point.name]]
    rows = {point.name: steps.get(point.name, 0) * _rollouts_per_step(point.config) for point in points}
    unmeasured = [point for point in points if all_measured(evaluation, run_folder(folder, point)) is None]
    sampled = {one.name: samples_each * RESPONSE_SHARE * one.config.rollout.max_new_tokens for one in unmeasured}
    sizes = {point.name: _num_parameters(point.config.model) for point in points}
    gpu_seconds = [
        None
        if (size := sizes[one.name]) is None
        else _gpu_seconds(one, size, rows[one.name], sampled.get(one.name, 0.0))
        for one in points
    ]
    known = [found for found in gpu_seconds if found is not None]
    pace = _pace(runs, folder)
    return SweepCost(
        num_runs=len(left),
        rollouts=sum(rows.values()),
        tokens=sum(rows[point.name] * _row_tokens(point.config) for point in left),
        samples=samples_each * len(unmeasured),
        sampled_tokens=sum(sampled.values()),
        gpu_hours=sum(known) / HOUR_S if len(known) == len(gpu_seconds) else None,
        seconds=None if pace is None else pace * sum(steps.values()),
        disk_bytes=sum(_disk(point, sizes[point.name] or 0.0, rows[point.name]) for point in left)
        + BYTES_PER_TOKEN * sum(sampled.values()),
        num_done=len(runs) - len(left),
    )


def _steps_left(point: Point, folder: Path) -> int:
    status = read_status(run_folder(folder, point))
    return 0 if status.get("status") == "done" else max(1, point.config.steps - int(status.get("step") or 0))


def _num_problems(benchmark: str) -> int:
    """As the registry says: a plan is made before the data are fetched."""
    entry = registry().get(benchmark)
    return entry.count - entry.num_left_out if entry is not None and entry.count else len(load_problems(benchmark))


def _rollouts_per_step(config: Config) -> int:
    return config.prompts_per_step * config.rollouts_per_prompt


def _response_tokens(config: Config) -> float:
    return RESPONSE_SHARE * config.rollout.max_new_tokens


def _row_tokens(config: Config) -> float:
    return min(PROMPT_TOKENS, config.data.max_prompt_tokens) + _response_tokens(config)


def _gpu_seconds(point: Point, size: float, rows: int, sampled_tokens: float) -> float:
    """Of one H100, for ``rows`` responses: 2 operations a parameter and token forward, 6 with the gradient."""
    config = point.config
    drawn = sampled_tokens + rows * _response_tokens(config)
    scored = 1.0 + (config.kl.beta > 0)  # old and reference log-probabilities
    learnt = rows * _row_tokens(config) * (6.0 * config.most_inner_updates + 2.0 * scored)
    return size * (2.0 * drawn / (DRAWING * PEAK) + learnt / (LEARNING * PEAK))


def _disk(point: Point, size: float, rows: int) -> float:
    """Checkpoints with weights and both moments in float32, and ``rows`` training responses."""
    config = point.config
    kept = BYTES_PER_ROLLOUT_TOKEN * rows * _response_tokens(config) if config.save_rollouts else 0.0
    return 12.0 * size * config.checkpoint.num_kept + kept


def _num_parameters(model: str) -> float | None:
    """From a name such as `Qwen2.5-Math-1.5B`."""
    found = re.findall(r"(?<!\d)(\d+(?:\.\d+)?)b(?![a-z])", Path(model).name.lower())
    return float(found[-1]) * 1e9 if found else None


def _pace(runs: Sequence[Point], folder: Path) -> float | None:
    """Seconds of an iteration, the mean over the runs that are done."""
    paces = []
    for point in runs:
        run = run_folder(folder, point)
        if read_status(run).get("status") == "done":
            pace = last_mean(list(read_metrics(run)), "perf/step_s")
            paces += [pace] if pace is not None else []
    return sum(paces) / len(paces) if paces else None


def _count(number: float) -> str:
    for limit, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f} {word}"
    return f"{number:.0f}"


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:,.0f} hours" if hours >= 10 else f"{hours:.1f} hours"
    return f"{hours * 60:.0f} minutes" if hours * 60 >= 2 else f"{hours * HOUR_S:.0f} seconds"
