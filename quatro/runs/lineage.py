"""Where the weights came from that a run began with, and which runs began with those of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evals.errors import QuatroError
from quatro.config import load_config
from quatro.runs.checkpoint import MODEL
from quatro.runs.directory import step_number
from quatro.runs.summary import runs_below


class Origin(NamedTuple):
    """A checkpoint of a run, which may be gone."""

    run: Path
    step: int


def origin_of(model: str) -> Origin | None:
    """The checkpoint in which ``model``, as a configuration names it, lies; None for any other model."""
    folder = Path(model)
    if folder.name != MODEL or len(folder.parts) < 4 or folder.parents[1].name != "checkpoints":
        return None
    step = step_number(folder.parent.name)
    return None if step is None else Origin(folder.parents[2], step)


def origins(model: str) -> tuple[list[Origin], str | None]:
    """The checkpoints behind ``model``, the nearest first, and the model of the first run; None if that is unknown."""
    found: list[Origin] = []
    name: str | None = model
    while name is not None and (origin := origin_of(name)) is not None and origin not in found:
        found.append(origin)
        try:
            name = load_config(origin.run).model
        except (QuatroError, OSError):
            name = None
    return found, name


class Heir(NamedTuple):
    """A run that cannot be resumed without the checkpoint of ``step``, and what for it is used."""

    run: Path
    step: int
    use: str


def heirs(runs: Sequence[Path]) -> dict[Path, list[Heir]]:
    """The runs beside each of ``runs``, or below `runs`, that need a checkpoint of it.

    Those of ``runs`` themselves do not count, nor does a run whose configuration cannot be read.
    """
    own = {run.resolve(): run for run in runs}
    beside = [path.parent for folder in {run.parent for run in own} for path in sorted(folder.glob("*/config.yaml"))]
    found: dict[Path, list[Heir]] = {run: [] for run in runs}
    seen = set(own)
    for path in [*runs_below(Path("runs")), *beside]:
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        with contextlib.suppress(QuatroError, OSError):
            config = load_config(path)
            for use, model in (("began with", config.model), ("has as its KL reference", config.kl.reference)):
                origin = origin_of(model or "")
                if origin is not None and (run := own.get(origin.run.resolve())) is not None:
                    found[run].append(Heir(path, origin.step, use))
    return found
