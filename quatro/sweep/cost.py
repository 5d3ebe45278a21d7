"""What is left to do of a sweep: responses, samples, the disk of its checkpoints, and time once a run of it is done.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.benchmarks.catalogue import registry
from evals.benchmarks.loading import load_problems
from evals.files.strict_json import read_document
from evals.text import size_text
from evals.training_metrics import last_mean
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_status
from quatro.sweep.measure import BASE_CELL, SweepEvaluation, all_measured, run_folder
from quatro.sweep.plan import Point


@dataclass(frozen=True)
class SweepCost:
    """Sums over what is left of the points: ``num_runs`` are not done, ``num_done`` are.

    ``seconds`` are those of training here, one run after the other, at the pace of the runs that are done; None while
    none is. ``disk_bytes`` are those of checkpoints; None where no config.json says how large a model is.
    """

    num_runs: int
    num_done: int
    rollouts: int
    samples: int
    seconds: float | None
    disk_bytes: float | None

    @property
    def lines(self) -> list[str]:
        """For a person."""
        if not self.num_runs and not self.samples:
            return ["nothing is left to draw or to learn from"]
        lines = [
            f"{self.num_runs} of {self.num_runs + self.num_done} runs are left: they draw and learn from "
            f"{self.rollouts:,} responses; measuring draws {self.samples:,} samples"
        ]
        if self.seconds is None:
            lines.append("how long it takes is known once the first run is done")
        else:
            lines.append(f"about {self.seconds / 60:,.0f} minutes of training, at the pace of the runs that are done")
        return lines if self.disk_bytes is None else [*lines, f"about {size_text(self.disk_bytes)} of checkpoints"]


def sweep_cost(points: Sequence[Point], folder: Path, evaluation: SweepEvaluation | None) -> SweepCost:
    """The cost of what is left to do of ``points``, bases among them; a run that has begun counts by its last steps.

    Raises:
        MissingError, DataError: a benchmark is not here, or a result cannot be read.
    """
    num_problems = sum(map(_num_problems, evaluation.benchmarks)) if evaluation else 0
    samples_each = num_problems * evaluation.n * len(evaluation.tags) if evaluation else 0
    runs = [point for point in points if point.cell != BASE_CELL]
    steps = [_steps_left(point, folder) for point in runs]
    left = [point for point, number in zip(runs, steps, strict=True) if number]
    pace = _pace([run_folder(folder, point) for point in runs if point not in left])
    # Weights and both moments of the optimiser in float32.
    sizes = [12.0 * (_num_parameters(one.config.model) or 0) * one.config.checkpoint.num_kept for one in left]
    return SweepCost(
        num_runs=len(left),
        num_done=len(runs) - len(left),
        rollouts=sum(
            number * point.config.prompts_per_step * point.config.rollouts_per_prompt
            for point, number in zip(runs, steps, strict=True)
        ),
        samples=samples_each * sum(all_measured(evaluation, run_folder(folder, point)) is None for point in points),
        seconds=None if pace is None else pace * sum(steps),
        disk_bytes=sum(sizes) if all(sizes) else None,
    )


def _steps_left(point: Point, folder: Path) -> int:
    status = read_status(run_folder(folder, point))
    return 0 if status.get("status") == "done" else max(1, point.config.steps - int(status.get("step") or 0))


def _num_problems(benchmark: str) -> int:
    """As the registry says: a plan is made before the data are fetched."""
    entry = registry().get(benchmark)
    return entry.count - entry.num_left_out if entry is not None and entry.count else len(load_problems(benchmark))


def _num_parameters(model: str) -> float | None:
    """Of a dense decoder, without biases and norms, as config.json of its folder says."""
    path = Path(model, "config.json")
    if not path.is_file():
        return None
    shape = read_document(path, allow_non_finite=True)
    try:
        width, heads, vocabulary = (shape[key] for key in ("hidden_size", "num_attention_heads", "vocab_size"))
        head = shape.get("head_dim") or width // heads
        attention = 2 * width * head * (heads + shape.get("num_key_value_heads", heads))
        layers = shape["num_hidden_layers"] * (attention + 3 * width * shape["intermediate_size"])
    except (KeyError, TypeError):
        return None
    return float(layers + vocabulary * width * (1 if shape.get("tie_word_embeddings") else 2))


def _pace(done: Sequence[Path]) -> float | None:
    """Seconds of an iteration, the mean over the runs ``done``."""
    found = [last_mean(list(read_metrics(run)), "perf/step_s") for run in done]
    paces = [pace for pace in found if pace is not None]
    return sum(paces) / len(paces) if paces else None
