"""Saving a run between two iterations, and going on from there bit by bit as if nothing had happened."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quatro import shards
from quatro.checkpoint import Checkpoint, below, tidy
from quatro.config import Config
from quatro.inflight import Inflight
from quatro.preflight import refuse_differing, refuse_other_settings
from quatro.rundir import RunDir, refuse_changed
from quatro.setup import Parts, assemble
from quatro.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position:
    """``step`` iterations are finished; ``old_logp`` as in InnerLoop (None: not decided yet).

    ``num_skipped_in_a_row``: of the last optimiser steps, how many were not finite. ``carried`` is what the method
    takes from one iteration to the next. ``inflight`` is the iteration after ``step``, if a stop ended it inside its
    inner loop.
    """

    step: int = 0
    old_logp: str | None = None
    num_skipped_in_a_row: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    inflight: Inflight | None = None


def save(run: RunDir, parts: Parts, position: Position) -> Path:
    """A checkpoint between two iterations or, with rollouts in flight, between two optimiser steps."""
    step = position.step
    tensors, plain = parts.policy.optimizer_state()
    tensors = {f"optimizer/{name}": value for name, value in tensors.items()}
    tensors["rng/torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["rng/cuda"] = torch.cuda.get_rng_state()
    state = {
        "step": step,
        "config": run.config.model_dump(mode="json"),
        "inputs": parts.fingerprints,
        "old_logp": position.old_logp,
        "num_skipped_in_a_row": position.num_skipped_in_a_row,
        "carried": dict(position.carried),
        "optimizer": plain,
        "stream_position": parts.stream.position,
        **run.written,
        "ranks": parts.policy.world.size,
        # Memory may have run out on one rank only.
        "microbatch_tokens": parts.policy.world.gather_objects(parts.policy.budget_state(), "the token budgets"),
        "engine": parts.engine.state(),
        # Nothing in the loop draws from the global generators; a method of one's own may. A reward function runs in
        # processes of its own: it must not draw at all if runs are to repeat.
        "rng": {"python": _plain(random.getstate()), "numpy": _plain(np.random.get_state())},  # noqa: NPY002
    }
    if position.inflight is not None:
        more, state["inflight"] = position.inflight.state(parts.stream.prompts, parts.policy.world)
        if parts.policy.world.is_first:
            tensors |= {f"inflight/{name}": value for name, value in more.items()}
    is_inside = position.inflight is not None
    return shards.save(run, step, parts.policy, parts.tokenizer, state, tensors, is_inside=is_inside)


def restore(config: Config, run: RunDir, world: World) -> tuple[Parts, Position]:
    """The parts of a run at its newest checkpoint, with metrics and rollouts cut back to it; at step 0 if it has none.

    Raises:
        DataError: the checkpoint is damaged, what the run wrote was changed, or settings, model, data or ranks are
            others now. Metrics, rollouts and checkpoints are as they were.
    """
    found = shards.load_newest(run, world)
    if found is not None:  # before minutes of loading
        refuse_other_settings(config, found.state, found.path.name)
        if world.is_first:
            refuse_changed(run.path, found.state)
    parts = assemble(config, weights=found.model if found else None, world=world)
    device = {"device": str(parts.policy.device), "threads": torch.get_num_threads(), "ranks": world.size}
    for key, (before, after) in run.add_to_environment(device).items():
        logger.warning(
            "%s was %s when this run began and is %s here: results will not be the same bit by bit", key, before, after
        )
    position = Position() if found is None else _load(found, parts)
    world.barrier("every rank to have loaded its part")  # of them, none can refuse to go on any more
    run.go_back(position.step, found.state if found else {})
    if world.is_first:
        tidy(run.path)
    return parts, position


def _load(found: Checkpoint, parts: Parts) -> Position:
    """Where ``found`` stands, with ``parts`` brought there.

    Raises:
        DataError: model or data are others now, or another number of ranks saved it.
    """
    state, policy, world = found.state, parts.policy, parts.policy.world
    refuse_other_inputs(parts, state, found.path.name)
    tensors = shards.tensors(found, policy)
    policy.load_optimizer_state(below(tensors, "optimizer/"), state["optimizer"])
    budgets = state.get("microbatch_tokens", ())
    if len(budgets) == world.size:
        policy.load_budget_state(budgets[world.rank])
    parts.stream.position = state["stream_position"]
    parts.engine.load_state(state["engine"])
    torch.set_rng_state(tensors["rng/torch"])
    if "rng/cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng/cuda"])
    random.setstate(_tuples(state["rng"]["python"]))
    np.random.set_state(_tuples(state["rng"]["numpy"]))  # noqa: NPY002
    inflight = None
    if "inflight" in state:
        is_own = world.is_first or not policy.is_sharded
        saved = below(tensors if is_own else found.tensors(), "inflight/")  # they are with rank 0's tensors
        inflight = Inflight.from_state(saved, state["inflight"], parts.stream.prompts, policy.device, world)
    logger.info("going on from %s%s", found.path.name, ", inside an iteration" if inflight else "")
    return Position(
        step=state["step"],
        old_logp=state["old_logp"],
        num_skipped_in_a_row=state.get("num_skipped_in_a_row", 0),
        carried=state.get("carried", {}),
        inflight=inflight,
    )


def refuse_other_inputs(parts: Parts, state: Mapping[str, Any], name: str) -> None:
    """A run goes on with the model and data that it began with, or not at all.

    Raises:
        DataError: says what is another one.
    """
    found = parts.fingerprints.items()
    refuse_differing(
        name, [f"the {what} changed since the run began" for what, own in found if state["inputs"].get(what) != own]
    )


def _plain(value: Any) -> Any:
    """Nested tuples and arrays as lists, which JSON keeps."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value
