"""What is asked of a model, as far as options say it, and what is going to be drawn. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import Template, find_template
from evals.errors import UsageError
from quatro.rollout.endpoint import Endpoint
from quatro.runs.checkpoint import Step
from quatro.sample.model import SampledModel
from quatro.sample.settings import SampleSettings
from quatro.types import Sampling

USUAL: Mapping[str, Any] = {"n": 256, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
# How others sample, so that results can be compared.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # The paper's words. Its temperature and top_p are verl's defaults for generation, which also keep 50 tokens.
    "paper": {"n": 256, "temperature": 1.0, "top_p": 0.7, "top_k": 0, "max_tokens": 1024},
    "verl-generation": {"n": 256, "temperature": 1.0, "top_p": 0.7, "top_k": 50, "max_tokens": 1024},
}


@dataclass(frozen=True)
class SampleRequest:
    """The arguments of `draw_samples`, which explains them. None is an option that is not given."""

    model: str | os.PathLike[str]
    benchmarks: str | Sequence[str]
    _: KW_ONLY
    step: Step | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    preset: str | None = None
    template: str | None = None
    system: str | None = None
    thinking: str | None = None
    seed: int = 0
    tag: str | None = None
    out: str | os.PathLike[str] | None = None
    engine: str | None = None
    gpus: str | None = None
    base_url: str | None = None
    served_model: str | None = None
    chat: bool = False
    text: bool = False
    concurrency: int | None = None
    grade: bool = False
    limit: int | None = None

    @property
    def preset_max_tokens(self) -> int | None:
        """The longest response of the preset, which does not cut a run."""
        longest: int | None = PRESETS.get(self.preset or "", {}).get("max_tokens")
        return longest

    def numbers(self) -> tuple[int, Sampling, list[str]]:
        """n, how responses are drawn (but for length and stop), and where options replace numbers of the preset.

        Raises:
            UsageError: unknown preset, or a value out of range.
        """
        if self.preset not in (None, *PRESETS):
            raise UsageError(f"unknown preset {self.preset!r}; the presets are {', '.join(PRESETS)}")
        of_preset, longest = PRESETS.get(self.preset or "", {}), self.max_tokens
        given = {name: value for name in (*USUAL, "max_tokens") if (value := getattr(self, name)) is not None}
        n, temperature, top_p, top_k = ({**USUAL, **of_preset, **given}[name] for name in USUAL)
        if not 0 < temperature < float("inf") or not 0 < top_p <= 1:
            raise UsageError(f"temperature must be above 0 and top_p in (0, 1], found {temperature:g} and {top_p:g}")
        if n < 1 or top_k < 0 or (longest is not None and longest < 1):
            raise UsageError(
                f"n and max_tokens must be at least 1 and top_k at least 0, found n {n}, max_tokens {longest} and "
                f"top_k {top_k}"
            )
        replaced = [
            f"{name} {value:g} replaces {of_preset[name]:g} of the preset {self.preset}"
            for name, value in given.items()
            if name in of_preset and value != of_preset[name]
        ]
        return n, Sampling(temperature, top_p, top_k), replaced


@dataclass(frozen=True)
class BenchmarkPlan:
    """What is drawn of one benchmark, and how; ``grader`` judges its samples where they are graded."""

    name: str
    problems: list[Problem]
    grader: str
    settings: SampleSettings

    @property
    def template(self) -> Template:
        """The prompt template with the system prompt."""
        return find_template(self.settings.template, self.settings.system)


@dataclass(frozen=True)
class SamplePlan:
    """What a call of `draw_samples` is going to draw, checked as far as it can be before torch is loaded.

    ``gpus`` are devices as CUDA_VISIBLE_DEVICES names them; ``notes`` say where an option replaces a preset's value.
    ``endpoint`` is the server that draws, where ``engine`` is `server`.
    """

    request: SampleRequest
    model: SampledModel
    benchmarks: list[BenchmarkPlan]
    folder: Path
    engine: str
    gpus: list[str]
    notes: list[str]
    endpoint: Endpoint | None
