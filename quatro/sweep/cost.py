"""What is left of a sweep: responses, samples, disk, and time once a run of it is done. Imports no torch."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from evals.benchmarks.catalogue import registry
from evals.benchmarks.loading import load_problems
from evals.results.training_metrics import last_mean
from evals.text import clock_text, size_text
from quatro.runs.directory import folder_bytes, rows_bytes
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_status
from quatro.sweep.measure import BASE_CELL, SweepEvaluation, measured, run_folder
from quatro.sweep.plan import Point


@dataclass(frozen=True)
class SweepCost:
    """Sums over what is left of the points: ``num_runs`` are not done, ``num_done`` are.

    ``seconds`` are those of training here, one run after the other, at the pace of this sweep's runs of the same model;
    None while a model has no iteration. ``disk_bytes`` are as in its finished runs of the same model;
    None where one has none.
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
            lines.append("how long it takes is known once a run of each model has made an iteration")
        else:
            lines.append(
                f"about {clock_text(self.seconds)} of training (h:mm:ss or m:ss), at the pace of the iterations so far"
            )
        if self.disk_bytes is None:
            return [*lines, "how much disk it takes is known once a run of each model is done"]
        return [*lines, f"about {size_text(self.disk_bytes)} on disk: checkpoints, rollouts and samples"]


def sweep_cost(points: Sequence[Point], folder: Path, evaluation: SweepEvaluation | None) -> SweepCost:
    """The cost of what is left to do of ``points``, bases among them; a run that has begun counts by its last steps.

    Raises MissingError or DataError if a benchmark is not here, or a result cannot be read.
    """
    num_problems = sum(map(_num_problems, evaluation.benchmarks)) if evaluation else 0
    samples_each = num_problems * evaluation.n * len(evaluation.tags) if evaluation else 0
    runs = [point for point in points if point.cell != BASE_CELL]
    unmeasured = [point for point in points if measured(evaluation, run_folder(folder, point)) is None]
    steps = {point.name: _steps_left(point, folder) for point in runs}
    left = [point for point in runs if steps[point.name]]
    sizes = defaultdict[str, list[float]](list)
    for point in runs:
        if point not in left and point not in unmeasured:
            sizes[point.config.model].append(folder_bytes(run_folder(folder, point)))
    disk = sum(fmean(sizes[one.config.model] or [math.nan]) for one in left)
    disk += sum(rows_bytes(samples_each, one.config) for one in unmeasured if one not in left)
    return SweepCost(
        num_runs=len(left),
        num_done=len(runs) - len(left),
        rollouts=sum(steps[one.name] * one.config.prompts_per_step * one.config.rollouts_per_prompt for one in left),
        samples=samples_each * len(unmeasured),
        seconds=_seconds_left(runs, steps, folder),
        disk_bytes=None if math.isnan(disk) else disk,
    )


def _seconds_left(runs: Sequence[Point], steps: Mapping[str, int], folder: Path) -> float | None:
    """Of training what is left, one run after another; None while a model that is needed has no iteration."""
    paces = defaultdict[str, list[float]](list)
    for point in runs:
        if (found := last_mean(list(read_metrics(run_folder(folder, point))), "perf/step_s")) is not None:
            paces[point.config.model].append(found)
    total = sum(steps[one.name] * fmean(paces[one.config.model] or [math.nan]) for one in runs if steps[one.name])
    return None if math.isnan(total) else total


def _steps_left(point: Point, folder: Path) -> int:
    status = read_status(run_folder(folder, point))
    return 0 if status.get("status") == "done" else max(1, point.config.steps - int(status.get("step") or 0))


def _num_problems(benchmark: str) -> int:
    """As the registry says: a plan is made before the data are fetched."""
    entry = registry().get(benchmark)
    return entry.count - entry.num_left_out if entry is not None and entry.count else len(load_problems(benchmark))
