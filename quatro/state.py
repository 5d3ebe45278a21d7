"""Saving a run between two iterations, and going on from there bit by bit as if nothing had happened."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evals.errors import DataError
from quatro import checkpoint
from quatro.config import Config
from quatro.rundir import RunDir
from quatro.setup import Parts, assemble

logger = logging.getLogger(__name__)

MAY_CHANGE = ("steps", "checkpoint", "save_rollouts")  # none of them touches what an iteration computes


@dataclass(frozen=True)
class Position:
    """``step`` iterations are finished; ``old_logp`` as in InnerLoop (None: not decided yet)."""

    step: int = 0
    old_logp: str | None = None


def save(run: RunDir, parts: Parts, *, step: int, old_logp: str | None) -> Path:
    """A checkpoint after ``step`` iterations, no rollouts in flight."""
    tensors, plain = parts.policy.optimizer_state()
    tensors = {f"optimizer/{name}": value for name, value in tensors.items()}
    tensors["rng/torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["rng/cuda"] = torch.cuda.get_rng_state()
    state = {
        "step": step,
        "config": run.config.model_dump(mode="json"),
        "inputs": parts.fingerprints,
        "old_logp": old_logp,
        "optimizer": plain,
        "stream_position": parts.stream.position,
        "metrics_bytes": run.metrics_bytes,
        "engine": parts.engine.state(),
        # Nothing in the loop draws from the global generators; a method of one's own may. A reward function runs in
        # processes of its own: it must not draw at all if runs are to repeat.
        "rng": {"python": _plain(random.getstate()), "numpy": _plain(np.random.get_state())},  # noqa: NPY002
    }
    return checkpoint.save(run, step, lambda folder: parts.policy.save_model(folder, parts.tokenizer), state, tensors)


def restore(config: Config, run: RunDir) -> tuple[Parts, Position]:
    """The parts of a run at its newest checkpoint, with metrics and rollouts cut back to it; at step 0 if it has none.

    Raises:
        DataError: the checkpoint is damaged; nothing of it was loaded.
    """
    found = checkpoint.load_newest(run)
    parts = assemble(config, weights=found.model if found else None)
    device = {"device": str(parts.policy.device), "threads": torch.get_num_threads()}
    for key, (before, after) in run.add_to_environment(device).items():
        logger.warning(
            "%s was %s when this run began and is %s here: results will not be the same bit by bit", key, before, after
        )
    if found is None:
        run.truncate_metrics(0)
        run.remove_rollouts_after(0)
        return parts, Position()
    state, tensors = found.state, found.tensors()
    refuse_changes(config, parts, state, found.path.name)
    prefix = "optimizer/"
    optimizer = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    parts.policy.load_optimizer_state(optimizer, state["optimizer"])
    parts.stream.position = state["stream_position"]
    parts.engine.load_state(state["engine"])
    torch.set_rng_state(tensors["rng/torch"])
    if "rng/cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng/cuda"])
    random.setstate(_tuples(state["rng"]["python"]))
    np.random.set_state(_tuples(state["rng"]["numpy"]))  # noqa: NPY002
    run.truncate_metrics(state["metrics_bytes"])
    run.remove_rollouts_after(state["step"])
    logger.info("going on from %s", found.path.name)
    return parts, Position(state["step"], state["old_logp"])


def refuse_changes(config: Config, parts: Parts, state: Mapping[str, Any], name: str) -> None:
    """A run goes on with the configuration, model and data that it began with, or not at all.

    Raises:
        DataError: lists what differs.
    """
    now, then = _flat(config.model_dump(mode="json")), _flat(state["config"])
    differing = [
        f"{key} was {then.get(key)!r}, is {now.get(key)!r}"
        for key in sorted(now.keys() | then.keys())
        if now.get(key) != then.get(key) and key.split(".")[0] not in MAY_CHANGE
    ]
    differing += [
        f"the {what} changed since the run began"
        for what, digest in parts.fingerprints.items()
        if state["inputs"].get(what) != digest
    ]
    if differing:
        raise DataError(
            f"{name} cannot be continued: {'; '.join(differing)}. Put it back, or begin a new run from config.yaml"
        )


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return flat


def _plain(value: Any) -> Any:
    """Nested tuples and arrays as lists, which JSON keeps."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value
