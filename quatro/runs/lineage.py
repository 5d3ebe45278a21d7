"""Where the weights came from that a run began with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from evals.errors import QuatroError
from quatro.config import load_config
from quatro.runs.checkpoint import MODEL
from quatro.runs.directory import step_number


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
