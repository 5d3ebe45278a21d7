"""The plan of a sweep as its folder has it, so that the sweep goes on without the command that began it."""

from __future__ import annotations

from pathlib import Path

from evals.errors import DataError
from quatro.config.yaml_reader import load_yaml
from quatro.runs.points import SWEEP, config_file, is_sweep, planned_config, read_points
from quatro.sweep.plan import Point, SweepPlan


def find_begun(source: str | Path) -> Path | None:
    """The folder of a sweep that ``source`` means: the folder, or the sweep.yaml in it; None for anything else."""
    path = Path(source)
    if path.name == SWEEP and path.is_file() and "points" in load_yaml(path).data:
        return path.parent
    return path if is_sweep(path) else None


def read_plan(folder: Path) -> SweepPlan:
    """Every point of the sweep in ``folder`` with the configuration that it was planned with.

    Raises:
        DataError: sweep.yaml or the configuration of a point is missing or damaged, or is of another point.
    """
    points = []
    for name, (cell, settings) in read_points(folder).items():
        file = config_file(folder, name)
        if not file.is_file():
            raise DataError(f"{file} is missing: {folder} cannot go on without it; repeat the command that began it")
        points.append(Point(name, settings, planned_config(folder, name, settings), cell))
    data = load_yaml(folder / SWEEP).data
    num_collapsed = data.get("num_collapsed")
    return SweepPlan(str(data.get("name")), tuple(points), num_collapsed if type(num_collapsed) is int else 0)
