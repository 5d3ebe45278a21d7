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
from quatro.config import Config
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_status
from quatro.sweep.measure import BASE_CELL, SweepEvaluation, run_folder
from quatro.sweep.plan import Point

# Of an H100 or H200: dense bfloat16 operations a second (data sheet), and the shares of them that we assume.
PEAK = 989e12
DRAWING, LEARNING = 0.10, 0.40
RESPONSE_SHARE = 0.5  # how long responses are, of their limit
PROMPT_TOKENS = 150
BYTES_PER_TOKEN = 4  # of text
BYTES_PER_ROLLOUT_TOKEN = 30  # in rollouts/: text, and log-probabilities as digits
GIB, HOUR_S = 2**30, 3600


@dataclass(frozen=True)
class SweepCost:
    """Sums over the points. ``gpu_hours`` is None where the size of a model is not known from its name.

    ``seconds`` are those of the runs on this machine, from runs of this sweep that are done; None while none is.
    """

    num_runs: int
    rollouts: int
    tokens: float
    samples: int
    sampled_tokens: float
    gpu_hours: float | None
    seconds: float | None
    disk_bytes: float

    @property
    def lines(self) -> list[str]:
        """For a person: the numbers, and what was assumed."""
        lines = [f"{self.num_runs} runs draw and learn from {self.rollouts:,} responses, {_count(self.tokens)} tokens"]
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
        return [*lines, f"about {self.disk_bytes / GIB:.1f} GiB of disk"]


def sweep_cost(points: Sequence[Point], folder: Path, evaluation: SweepEvaluation | None) -> SweepCost:
    """The cost of all ``points``, bases among them, done or not.

    Raises:
        MissingError, DataError: a benchmark is not here.
    """
    num_problems = sum(map(_num_problems, evaluation.benchmarks)) if evaluation else 0
    samples_each = num_problems * evaluation.n * len(evaluation.tags) if evaluation else 0
    runs = [point for point in points if point.cell != BASE_CELL]
    sampled = [samples_each * RESPONSE_SHARE * point.config.rollout.max_new_tokens for point in points]
    sizes = [_num_parameters(point.config.model) for point in points]
    gpu_seconds = [
        None if size is None else _gpu_seconds(point, size, tokens)
        for point, size, tokens in zip(points, sizes, sampled, strict=True)
    ]
    known = [found for found in gpu_seconds if found is not None]
    return SweepCost(
        num_runs=len(runs),
        rollouts=sum(_rollouts(point.config) for point in runs),
        tokens=sum(_rollouts(point.config) * _row_tokens(point.config) for point in runs),
        samples=samples_each * len(points),
        sampled_tokens=sum(sampled),
        gpu_hours=sum(known) / HOUR_S if len(known) == len(gpu_seconds) else None,
        seconds=_seconds(runs, folder),
        disk_bytes=sum(_disk(point, size or 0.0) for point, size in zip(points, sizes, strict=True))
        + BYTES_PER_TOKEN * sum(sampled),
    )


def _num_problems(benchmark: str) -> int:
    """As the registry says: a plan is made before the data are fetched."""
    entry = registry().get(benchmark)
    return entry.count - entry.num_left_out if entry is not None and entry.count else len(load_problems(benchmark))


def _rollouts(config: Config) -> int:
    return config.steps * config.prompts_per_step * config.rollouts_per_prompt


def _response_tokens(config: Config) -> float:
    return RESPONSE_SHARE * config.rollout.max_new_tokens


def _row_tokens(config: Config) -> float:
    return min(PROMPT_TOKENS, config.data.max_prompt_tokens) + _response_tokens(config)


def _gpu_seconds(point: Point, size: float, sampled_tokens: float) -> float:
    """Of one H100: 2 operations a parameter and token forward, 6 with the gradient."""
    config = point.config
    drawn, learnt = sampled_tokens, 0.0
    if point.cell != BASE_CELL:
        rows = _rollouts(config)
        drawn += rows * _response_tokens(config)
        scored = 1.0 + (config.kl.beta > 0)  # old and reference log-probabilities
        learnt = rows * _row_tokens(config) * (6.0 * config.most_inner_updates + 2.0 * scored)
    return size * (2.0 * drawn / (DRAWING * PEAK) + learnt / (LEARNING * PEAK))


def _disk(point: Point, size: float) -> float:
    """Checkpoints with weights and both moments in float32, and the training responses."""
    config = point.config
    if point.cell == BASE_CELL:
        return 0.0
    kept = BYTES_PER_ROLLOUT_TOKEN * _rollouts(config) * _response_tokens(config) if config.save_rollouts else 0.0
    return 12.0 * size * config.checkpoint.num_kept + kept


def _num_parameters(model: str) -> float | None:
    """From a name such as `Qwen2.5-Math-1.5B`."""
    found = re.findall(r"(\d+(?:\.\d+)?)b(?![a-z])", Path(model).name.lower())
    return float(found[-1]) * 1e9 if found else None


def _seconds(runs: Sequence[Point], folder: Path) -> float | None:
    """What all runs take, one after another, if each iteration takes what it took where runs are done."""
    paces = []
    for point in runs:
        run = run_folder(folder, point)
        if read_status(run).get("status") == "done":
            pace = last_mean(list(read_metrics(run)), "perf/step_s")
            paces += [pace] if pace is not None else []
    if not paces:
        return None
    return sum(paces) / len(paces) * sum(point.config.steps for point in runs)


def _count(number: float) -> str:
    for limit, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f} {word}"
    return f"{number:.0f}"


def _hours(hours: float) -> str:
    return f"{hours:,.0f} hours" if hours >= 10 else f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.0f} minutes"
