"""What is asked of a model, as far as options say it, which model it is, and what will be drawn. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import Template, find_template
from evals.errors import UsageError
from evals.files.whole import file_stem
from quatro.config.blocks import DataConfig
from quatro.rollout.server import Endpoint
from quatro.runs.checkpoint import MANIFEST, MODEL, Checkpoint, Step, load, run_and_step
from quatro.runs.identity import load_from, read_config, run_digest
from quatro.sample.settings import SampleSettings, Source
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
    chat_template_kwargs: Mapping[str, Any] | None = None
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
        return PRESETS.get(self.preset or "", {}).get("max_tokens")

    def numbers(self) -> tuple[int, Sampling]:
        """n and the sampling but for length and stop; UsageError for an unknown preset or a value out of range."""
        if self.preset not in (None, *PRESETS):
            raise UsageError(f"unknown preset {self.preset!r}; the presets are {', '.join(PRESETS)}")
        given = {name: value for name in USUAL if (value := getattr(self, name)) is not None}
        values = {**USUAL, **PRESETS.get(self.preset or "", {}), **given}
        n, temperature, top_p, top_k = (values[name] for name in USUAL)
        longest = self.max_tokens
        if not 0 < temperature < float("inf") or not 0 < top_p <= 1:
            raise UsageError(f"temperature must be above 0 and top_p in (0, 1], found {temperature:g} and {top_p:g}")
        if n < 1 or top_k < 0 or (longest is not None and longest < 1):
            raise UsageError(
                f"n and max_tokens must be at least 1 and top_k at least 0, found n {n}, max_tokens {longest} and "
                f"top_k {top_k}"
            )
        return n, Sampling(temperature, top_p, top_k)


@dataclass(frozen=True)
class SampledModel:
    """What to load (``name``: folder, Hub id or `embedded:` name), what to call it, and what its run suggests.

    ``data`` and what follows it are what the run was trained with.
    """

    name: str
    source: Source
    run: Path | None = None
    checkpoint: Checkpoint | None = None
    data: DataConfig | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    thinking: str | None = None

    @property
    def samples_folder(self) -> Path:
        """Where its samples go by default, each setting in a folder below: ``RUN/samples`` or ``samples/MODEL``."""
        if self.run is not None:
            return self.run / "samples"
        return Path("samples") / file_stem(re.sub(r"[/:]+", "-", self.source.model).strip("-."))


def find_model(name: str, step: Step | None = None) -> SampledModel:
    """The model of a run directory (its newest checkpoint, or that of ``step``), of a checkpoint, or of that name.

    RUN@STEP and RUN@best are the checkpoint of a run too, as in the key `model`.

    Raises:
        UsageError: the run's config.yaml is wrong, it has no checkpoint of ``step``, or no run is there that could.
        DataError: a run without a checkpoint, or a checkpoint that is damaged.
    """
    path = Path(name)
    if not (path / "config.yaml").is_file():
        if step is None and (named := run_and_step(name)) is not None:
            return find_model(str(named[0]), named[1])
        if step is not None:
            raise UsageError(f"--step {step} chooses a checkpoint of a run, and {name} is not a run; leave it out")
        folder = path.parent if path.name == MODEL and not (path / MANIFEST).is_file() else path
        if not (folder / MANIFEST).is_file():
            return SampledModel(name, Source(model=name))
        # A checkpoint, or the model in it: what it knows of its base is worth as much without the run.
        checkpoint = load(folder)
        source = Source(model=name, checkpoint=checkpoint.path.name)
        return SampledModel(str(checkpoint.model), source, checkpoint=checkpoint)
    config, checkpoint = read_config(path), load_from(path, step)
    method = config.method
    label = method.name if method.kl_radius is None else f"{method.name} delta={method.kl_radius:g}"
    return SampledModel(
        name=str(checkpoint.model),
        source=Source(
            model=config.model,
            method=label,
            checkpoint=checkpoint.path.name,
            run_digest=run_digest(path, config),
            base_digest=checkpoint.trained_on,
        ),
        run=path,
        checkpoint=checkpoint,
        data=config.data,
        max_tokens=config.rollout.max_new_tokens,
        stop=config.stop,
        thinking=config.rollout.thinking,
    )


@dataclass(frozen=True)
class BenchmarkPlan:
    """What is drawn of one benchmark, and how; ``grader`` judges its samples where they are graded."""

    name: str
    problems: list[Problem]
    grader: str
    settings: SampleSettings

    @property
    def template(self) -> Template:
        """The prompt template with the system prompt, and what the chat template is told."""
        return find_template(self.settings.template, self.settings.system, self.settings.chat_template_kwargs)


@dataclass(frozen=True)
class SamplePlan:
    """What a call of `draw_samples` is going to draw, checked as far as it can be before torch is loaded.

    ``gpus`` are devices as CUDA_VISIBLE_DEVICES names them; ``notes`` say where a run replaces a number of the preset.
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
