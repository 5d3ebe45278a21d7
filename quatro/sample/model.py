"""Finds the model to sample: by its name, in a run, or in a checkpoint. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from evals.errors import UsageError
from evals.files.whole import file_stem
from quatro.runs.checkpoint import MANIFEST, MODEL, Checkpoint, Step, load, run_and_step
from quatro.runs.identity import load_from, read_config, run_digest
from quatro.sample.settings import Source


@dataclass(frozen=True)
class SampledModel:
    """What to load (``name``: folder, Hub id or `embedded:` name), what to call it, and what its run suggests.

    ``template``, ``system``, ``max_tokens``, ``stop`` and ``thinking`` are what the run was trained with.
    """

    name: str
    source: Source
    run: Path | None = None
    checkpoint: Checkpoint | None = None
    template: str | None = None
    system: str | None = None
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
        ),
        run=path,
        checkpoint=checkpoint,
        template=config.data.template,
        system=config.data.system,
        max_tokens=config.rollout.max_new_tokens,
        stop=config.stop,
        thinking=config.rollout.thinking,
    )
