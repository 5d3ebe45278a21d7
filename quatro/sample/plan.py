"""What `draw_samples` is going to do. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import Template, find_template
from quatro.rollout.endpoint import Endpoint
from quatro.sample.model import SampledModel
from quatro.types import Sampling


@dataclass(frozen=True)
class BenchmarkPlan:
    """What is drawn of one benchmark; ``grader`` judges its samples where they are graded.

    ``system`` is a system prompt in place of the template's own, and ``thinking`` the markers of thoughts.
    """

    name: str
    problems: list[Problem]
    sampling: Sampling
    template: str
    grader: str
    system: str | None = None
    thinking: str | None = None

    @property
    def prompt_template(self) -> Template:
        """The template with the system prompt."""
        return find_template(self.template, self.system)


@dataclass(frozen=True)
class SamplePlan:
    """What a call of `draw_samples` is going to draw, checked as far as it can be before torch is loaded.

    ``gpus`` are devices as CUDA_VISIBLE_DEVICES names them; ``notes`` say where an option replaces a preset's value.
    ``endpoint`` is the server that draws, where ``engine`` is `server`.
    """

    model: SampledModel
    benchmarks: list[BenchmarkPlan]
    n: int
    seed: int
    folder: Path
    engine: str
    gpus: list[str]
    grade: bool
    notes: list[str]
    endpoint: Endpoint | None = None
