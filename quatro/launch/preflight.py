"""Refuses a resume before torch is loaded: because of another configuration, or of changed files."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.whole import file_digest
from quatro.config import Config, leaves
from quatro.loop.best import ends_early
from quatro.runs import checkpoint
from quatro.runs.directory import step_name
from quatro.runs.status import read_status

logger = logging.getLogger(__name__)

PUT_BACK = "put it back as it was, or begin a new run from config.yaml"
# None of them touches what an iteration computes.
MAY_CHANGE = ("steps", "checkpoint", "early_stop", "save_rollouts", "tracking")


def why_finished(run: Path, config: Config) -> str:
    """Why a resume of the run in ``run`` has nothing to do: all its iterations are done, or it ends early; else "".

    Raises:
        DataError: its last checkpoint, metrics or rollouts were changed, or it was made with another configuration.
    """
    status = read_status(run)
    if status.get("status") != "done":
        return ""
    newest = checkpoint.complete_checkpoints(run)[-1:]
    if [path.name for path in newest] != [step_name(status.get("step", 0))]:
        return ""
    state = checkpoint.load(newest[0]).state
    early = ends_early(config, state["carried"])
    if state["step"] != config.steps and not early:
        return ""
    refuse_other_settings(config, state, newest[0].name)
    refuse_changed(run, state)
    if (run / "metrics.jsonl").stat().st_size != int(state["metrics_bytes"]):
        return ""  # rows are to be cut back
    if state["step"] == config.steps:
        return f"all {config.steps} iterations"
    return f"{early}; -s early_stop.patience=0 goes on to iteration {config.steps}"


def refuse_other_settings(config: Config, state: Mapping[str, Any], name: str) -> None:
    """Refuse to go on with another configuration than the one that the run began with.

    Raises:
        DataError: keys differ; the message lists them.
    """
    may_change = set(MAY_CHANGE) - ({"steps"} if config.optimizer.schedule != "constant" else set())
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


def missing_rollouts(run: Path, written: Mapping[str, Any]) -> list[str]:
    """The files of rollouts that `RunDir.written` knew at a checkpoint and that are gone."""
    return [name for name in written.get("rollouts_sha256", {}) if not (run / "rollouts" / name).exists()]


def refuse_changed(run: Path, written: Mapping[str, Any]) -> None:
    """Compare metrics.jsonl and the rollouts of a run with what `RunDir.written` was at a checkpoint.

    Rollouts that are gone are named in a warning. A checkpoint of an earlier version may hold no hashes.

    Raises:
        DataError: rows are gone or changed; the file is named, with both hashes.
    """
    path, num_bytes = run / "metrics.jsonl", written["metrics_bytes"]
    size = path.stat().st_size if path.exists() else 0
    if num_bytes > size:
        raise DataError(
            f"{path} has {size} bytes, but {num_bytes} when the checkpoint was written: rows are gone; {PUT_BACK}"
        )
    with path.open("rb") as stream:
        stream.seek(max(0, num_bytes - 1))
        if num_bytes and stream.read(1) != b"\n":
            raise DataError(
                f"{path} was changed: byte {num_bytes}, where a checkpoint ended, is inside a line; {PUT_BACK}"
            )
    found = file_digest(path, num_bytes).hexdigest()
    if written.get("metrics_sha256", found) != found:
        raise DataError(
            f"{path} was changed: its first {num_bytes} bytes have SHA-256 {found}, and "
            f"{written['metrics_sha256']} when the run wrote them; {PUT_BACK}"
        )
    gone = missing_rollouts(run, written)
    for name, expected in written.get("rollouts_sha256", {}).items():
        path = run / "rollouts" / name
        if name not in gone and (found := file_digest(path).hexdigest()) != expected:
            raise DataError(
                f"{path} was changed: it has SHA-256 {found}, and {expected} when the run wrote it; {PUT_BACK}, "
                "or remove the file to go on without it"
            )
    if gone:
        names = ", ".join(gone[:3]) + (", ..." if len(gone) > 3 else "")
        logger.warning(
            "%s: the rollouts of %d finished iterations are gone (%s); the run goes on without them",
            run / "rollouts",
            len(gone),
            names,
        )


def _with_defaults(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration of an earlier version, with defaults for keys that are newer."""
    try:
        return Config.model_validate_json(json.dumps(stored)).model_dump(mode="json")
    except ValueError:  # a key that is gone is a difference to be shown
        return stored
