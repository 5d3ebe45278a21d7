"""What a run may go on from: the settings that it was begun with, and whether anything is left to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.errors import DataError
from quatro.config import Config
from quatro.runs.best import ends_early
from quatro.runs.checkpoint import complete_checkpoints, load
from quatro.runs.directory import step_name
from quatro.runs.identity import refuse_changed, refuse_other_config
from quatro.runs.status import read_status


def why_finished(run: Path, config: Config) -> str:
    """Why a resume of the run in ``run`` has nothing to do: all its iterations are done, or it ends early; else "".

    Raises:
        DataError: its last checkpoint, metrics or rollouts were changed, or it was made with another configuration.
    """
    status = read_status(run)
    newest = complete_checkpoints(run)[-1:]
    if status.get("status") != "done" or [path.name for path in newest] != [step_name(status.get("step", 0))]:
        return ""
    state = load(newest[0]).state
    early = ends_early(config, state["carried"])
    if state["step"] != config.steps and not early:
        return ""
    refuse_other_settings(run, config, state, newest[0].name)
    refuse_changed(run, state)
    if (run / "metrics.jsonl").stat().st_size != int(state["metrics_bytes"]):
        return ""  # rows are to be cut back
    if state["step"] == config.steps:
        return f"all {config.steps} iterations"
    return f"{early}; -s early_stop.patience=0 goes on to iteration {config.steps}"


def refuse_other_settings(run: Path, config: Config, state: Mapping[str, Any], name: str) -> None:
    """Raises DataError, with the keys, if the checkpoint ``name`` with ``state`` does not go on with ``config``."""
    refuse_other_config(run, config, state, name)
    differing = []
    if config.optimizer.schedule != "constant" and state["config"]["steps"] != config.steps:
        differing.append(f"steps was {state['config']['steps']!r}, is {config.steps!r}")
    if state["step"] > config.steps:
        differing.append(f"{state['step']} iterations are finished, and steps is {config.steps}")
    refuse_differing(name, differing)


def refuse_differing(name: str, differing: Sequence[str]) -> None:
    """Raises DataError if something differs between checkpoint ``name`` and the run that goes on from it."""
    if differing:
        raise DataError(
            f"{name} cannot be continued: {'; '.join(differing)}. Undo the change, or begin a new run from config.yaml"
        )
