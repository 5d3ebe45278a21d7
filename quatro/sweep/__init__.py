"""Many runs from one grid, each a process of its own: planned, run, measured and read again. Imports no torch."""

from quatro.runs.points import is_sweep, require_sweep
from quatro.sweep.cost import SweepCost, sweep_cost
from quatro.sweep.file import find_sweep, load_sweep, read_evaluation
from quatro.sweep.measure import SweepEvaluation, other_weights
from quatro.sweep.plan import Axis, Point, SweepPlan, parse_axis, part_of, plan_sweep
from quatro.sweep.recorded import find_begun, read_plan
from quatro.sweep.results import (
    SweptRun,
    flip_results,
    labelled_results,
    labelled_runs,
    read_sweep,
    run_tables,
    temperature_results,
)
from quatro.sweep.run import Board, SweepProgress, all_points, run_sweep, status_of, warnings_of, write_plan
from quatro.sweep.submit import SlurmOptions, SubmissionKind, write_submission
from quatro.sweep.summary import PointOutcome

__all__ = [
    "Axis",
    "Board",
    "Point",
    "PointOutcome",
    "SlurmOptions",
    "SubmissionKind",
    "SweepCost",
    "SweepEvaluation",
    "SweepPlan",
    "SweepProgress",
    "SweptRun",
    "all_points",
    "find_begun",
    "find_sweep",
    "flip_results",
    "is_sweep",
    "labelled_results",
    "labelled_runs",
    "load_sweep",
    "other_weights",
    "parse_axis",
    "part_of",
    "plan_sweep",
    "read_evaluation",
    "read_plan",
    "read_sweep",
    "require_sweep",
    "run_sweep",
    "run_tables",
    "status_of",
    "sweep_cost",
    "temperature_results",
    "warnings_of",
    "write_plan",
    "write_submission",
]
