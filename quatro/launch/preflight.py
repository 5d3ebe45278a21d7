"""Refuses a resume before torch is loaded: because of another configuration, or of changed files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.errors import DataError
from quatro.config import Config, leaves
from quatro.methods.scheduled import needs_fixed_steps
from quatro.runs import checkpoint
from quatro.runs.directory import step_name
from quatro.runs.integrity import refuse_changed
from quatro.runs.status import read_status

MAY_CHANGE = ("steps", "checkpoint", "save_rollouts", "tracking")  # none of them touches what an iteration computes


def is_finished(run: Path, config: Config) -> bool:
    """Whether the run in ``run`` has finished all its iterations, so that a resume has nothing to do.

    Raises:
        DataError: its last checkpoint, metrics or rollouts were changed, or it was made with another configuration.
    """
    status = read_status(run)
    if status.get("status") != "done" or status.get("step") != config.steps:
        return False
    newest = checkpoint.complete_checkpoints(run)[-1:]
    if [path.name for path in newest] != [step_name(config.steps)]:
        return False
    state = checkpoint.load(newest[0]).state
    refuse_other_settings(config, state, newest[0].name)
    refuse_changed(run, state)
    return (run / "metrics.jsonl").stat().st_size == int(state["metrics_bytes"])  # else rows are to be cut back


def refuse_other_settings(config: Config, state: Mapping[str, Any], name: str) -> None:
    """Refuse to go on with another configuration than the one that the run began with.

    Raises:
        DataError: keys differ; the message lists them.
    """
    may_change = set(MAY_CHANGE) - ({"steps"} if needs_fixed_steps(config.method) else set())
    now, then = (dict(leaves(tree)) for tree in (config.model_dump(mode="json"), _with_defaults(state["config"])))
    differing = [
        f"{key} was {then.get(key)!r}, is {now.get(key)!r}"
        for key in sorted(now.keys() | then.keys())
        if now.get(key) != then.get(key) and key.split(".")[0] not in may_change
    ]
    if state["step"] > config.steps:
        differing.append(f"{state['step']} iterations are finished, and steps is {config.steps}")
    refuse_differing(name, differing)


def refuse_differing(name: str, differing: Sequence[str]) -> None:
    """Raises DataError if something differs between checkpoint ``name`` and the run that goes on from it."""
    if differing:
        raise DataError(
            f"{name} cannot be continued: {'; '.join(differing)}. Undo the change, or begin a new run from config.yaml"
        )


def _with_defaults(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration of an earlier version, with defaults for keys that are newer."""
    try:
        return Config.model_validate_json(json.dumps(stored)).model_dump(mode="json")
    except ValueError:  # a key that is gone is a difference to be shown
        return stored
