"""Sampling and measuring the runs of a sweep: Pass@1, Pass@n and UCC@n of a benchmark, and the same of the base."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evals.errors import UsageError
from quatro.runs.tag import Tag
from quatro.sample.measure import PASSK, UCC
from quatro.sweep.plan import Point, SweepPlan

if TYPE_CHECKING:
    from evals.results.document import Result

BASE_CELL = "base"


@dataclass(frozen=True)
class SweepEvaluation:
    """``n`` samples of every problem of a benchmark at temperature 1, at each of ``top_ps``."""

    benchmark: str
    n: int = 256
    top_ps: tuple[float, ...] = field(default=(1.0,))

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(f"--eval-n {self.n}: expected at least 1 sample per problem")
        wrong = [top_p for top_p in self.top_ps if not 0 < top_p <= 1]
        if wrong or not self.top_ps or len(set(self.top_ps)) < len(self.top_ps):
            shown = ",".join(f"{top_p:g}" for top_p in self.top_ps)
            raise UsageError(f"--eval-top-p {shown}: expected different numbers in (0, 1], such as 1,0.7")


def base_points(plan: SweepPlan) -> list[Point]:
    """One stand-in point for each model that the sweep's runs begin from and each length they are sampled to."""
    found: dict[tuple[str, int], Point] = {}
    for point in plan.points:
        key = (point.config.model, point.config.rollout.max_new_tokens)
        if key not in found:
            slug = re.sub(r"[^A-Za-z0-9._]+", "-", key[0]).strip("-.")[-80:]
            name = f"base-{slug}"
            twin = any(other.name == name for other in found.values())
            found[key] = Point(f"{name}-{key[1]}" if twin else name, {}, point.config, BASE_CELL)
    names = [point.name for point in found.values()]
    if len(set(names)) < len(names):
        raise UsageError("two models of this sweep have names that look the same in a file name; sweep them apart")
    return list(found.values())


def run_folder(folder: Path, point: Point) -> Path:
    """The run of a point; for a base, where its samples are."""
    return folder / ("base" if point.cell == BASE_CELL else "runs") / point.name


def sample_arguments(evaluation: SweepEvaluation, point: Point, run: Path, top_p: float) -> list[str]:
    """What `quatro sample` is called with; drawing again draws only what is missing."""
    model = point.config.model if point.cell == BASE_CELL else str(run)
    length, out = str(point.config.rollout.max_new_tokens), str(Tag(top_p=top_p).folder(run))
    what = [model, "-b", evaluation.benchmark, "-n", str(evaluation.n), "--top-p", f"{top_p:g}"]
    stops = ["--stop=" + text.replace("\\", "\\\\") for text in point.config.stop]
    return what + ["--max-tokens", length, *stops, "--grade", "-o", out]


def measured(evaluation: SweepEvaluation, run: Path, top_p: float) -> dict[str, float] | None:
    """Name -> value as in summary.csv; None where it has not been measured at this n.

    Raises:
        DataError: a result cannot be read.
    """
    from evals.results.document import read_result

    folder = Tag(top_p=top_p).folder(run)
    paths = [folder / PASSK, folder / UCC]
    if not all(path.exists() for path in paths):
        return None
    passk, ucc = (read_result(path) for path in paths)
    found = {
        "pass@1": _value(passk, "pass@k", 1),
        f"pass@{evaluation.n}": _value(passk, "pass@k", evaluation.n),
        f"ucc@{evaluation.n}": _value(ucc, "ucc@k", evaluation.n),
    }
    if None in found.values():
        return None
    stem = Path(evaluation.benchmark).stem
    return {f"{stem}/p{top_p:g}/{name}": value for name, value in found.items() if value is not None}


def all_measured(evaluation: SweepEvaluation | None, run: Path) -> Mapping[str, float] | None:
    """`measured` at every top_p; None where one is missing, empty where nothing is to be measured."""
    everything: dict[str, float] = {}
    for top_p in evaluation.top_ps if evaluation is not None else ():
        assert evaluation is not None
        found = measured(evaluation, run, top_p)
        if found is None:
            return None
        everything |= found
    return everything


def _value(result: Result, metric: str, k: int) -> float | None:
    rows: Sequence[float] = [
        row.value for row in result.rows if (row.metric, row.k) == (metric, k) and row.benchmark != "average"
    ]
    return rows[0] if rows else None
