"""Samples of benchmarks, drawn from a model or a run and measured: `quatro sample`. Imports no torch."""

from quatro.sample.benchmark import SampleFile
from quatro.sample.drawing import SamplePlan, draw_planned, draw_samples, plan_samples
from quatro.sample.measure import Measured, measure_samples
from quatro.sample.progress import DrawProgress, Pace

__all__ = [
    "DrawProgress",
    "Measured",
    "Pace",
    "SampleFile",
    "SamplePlan",
    "draw_planned",
    "draw_samples",
    "measure_samples",
    "plan_samples",
]
