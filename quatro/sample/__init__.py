"""Samples of benchmarks, drawn from a model or a run and measured: `quatro sample`. Imports no torch."""

from quatro.sample.benchmark import DrawProgress, Pace, SampleFile
from quatro.sample.drawing import draw_planned, draw_samples, plan_samples
from quatro.sample.measure import Measured, measure_samples
from quatro.sample.request import SamplePlan, SampleRequest
from quatro.sample.served import request_note

__all__ = [
    "DrawProgress",
    "Measured",
    "Pace",
    "SampleFile",
    "SamplePlan",
    "SampleRequest",
    "draw_planned",
    "draw_samples",
    "measure_samples",
    "plan_samples",
    "request_note",
]
