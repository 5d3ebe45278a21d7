"""Builds the parts of a run, saves it as it is, and restores it bit by bit. `runs/checkpoint.py` writes the files.

    checkpoints/step-000100/  model/...  state.json  tensors.safetensors  ranks/rank-00001.safetensors  manifest.json

Rank 0 writes the model and its own state, and every rank its shard of the optimiser. The manifest, written last and by
rank 0, covers the shards too. All ranks must see one file system.
"""

import json
import logging
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from evals.errors import DataError
from evals.files.own_code import OWN_CODE, is_own, recorded
from quatro.config import Config
from quatro.config.load import seen_from
from quatro.config.paths import PATHS
from quatro.launch.begin import Prepared, prepare
from quatro.launch.describe import host_notes
from quatro.loop.position import OTHER, Iteration, Learner, Parts, Position
from quatro.policy import embedded
from quatro.policy.base import Policy, below
from quatro.policy.facts import refuse_non_finite
from quatro.policy.kinds import PolicyKind
from quatro.policy.loading import load_tokenizer
from quatro.policy.model_files import base_of, model_digest
from quatro.processes.launcher import launched
from quatro.processes.stop import StopCheck, StopRequest
from quatro.processes.world import World
from quatro.registry import ENGINES, POLICIES
from quatro.rollout.engine import Engine, EngineKind, Recipe
from quatro.rollout.prompts import PromptSet, PromptStream, digest_prompts
from quatro.runs import checkpoint
from quatro.runs.checkpoint import Checkpoint, tidy
from quatro.runs.directory import RunDir
from quatro.runs.identity import refuse_changed, refuse_differing, refuse_other_settings
from quatro.types import Sampling

logger = logging.getLogger(__name__)

# ruff: noqa: NPY002 (a checkpoint holds the global generator of numpy)


RANKS = "ranks"  # the folder of the shards


class Stateful(Protocol):
    """A part of a run that a checkpoint keeps: tensors and JSON values."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None: ...


class Generators:
    """The random generators of Python, numpy and torch: the loop draws from none, but a method of your own may.

    A reward function runs in other processes: a run repeats only if the function draws no random numbers.
    """

    @staticmethod
    def seed(seed: int) -> None:
        """Seed all three, as every run with this seed begins."""
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {"torch": torch.get_rng_state()}
        if torch.cuda.is_available():
            tensors["cuda"] = torch.cuda.get_rng_state()
        # Arrays as lists, which JSON keeps.
        numbers = json.loads(json.dumps(np.random.get_state(), default=lambda array: array.tolist()))
        return tensors, {"python": random.getstate(), "numpy": numbers}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        torch.set_rng_state(tensors["torch"])
        if "cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["cuda"])
        version, numbers, gauss = plain["python"]
        random.setstate((version, tuple(numbers), gauss))
        np.random.set_state(plain["numpy"])


def stateful_parts(parts: Parts, learner: Learner) -> dict[str, Stateful]:
    """The parts that a checkpoint keeps beside the weights and the `Position`, by name."""
    return {
        "policy": parts.policy,
        "stream": parts.stream,
        "engine": parts.engine,
        "generators": Generators(),
        "learner": learner,
    }


def save(run: RunDir, parts: Parts, position: Position) -> Path:
    """Write a checkpoint, between two iterations or inside the one under way."""
    parts.stopwatch.phase("checkpoint")
    world, it = parts.policy.world, position.iteration
    tensors, plain = dict[str, Tensor](), dict[str, Any]()
    for name, part in stateful_parts(parts, position.learner).items():
        more, plain[name] = part.state()
        tensors |= {f"{name}/{key}": value for key, value in more.items()}
    if it is not None:
        more, plain["iteration"] = it.state(parts)
        if world.is_first:
            tensors |= {f"iteration/{key}": value for key, value in more.items()}
    state = {
        "step": position.step,
        "carried": dict(position.carried),
        "base": dict(position.base),
        "config": seen_from(run.path, run.config).model_dump(mode="json"),
        PATHS: run.config.digests,
        "inputs": parts.fingerprints,
        "ranks": world.size,
        "parts": plain,
        **run.written,
    }

    def write(folder: Path) -> None:
        folder = Path(world.from_first(lambda: str(folder), "the folder of the checkpoint"))
        parts.policy.save_model(folder, parts.tokenizer)
        if parts.policy.is_sharded and not world.is_first:
            refuse_non_finite(tensors)
            shard = _shard(folder.parent, world.rank)
            shard.parent.mkdir(exist_ok=True)
            checkpoint.write_tensors(shard, tensors)
        world.barrier("all shards of the checkpoint")

    if world.is_first:
        path = checkpoint.save(run, position.step, write, state, tensors, is_inside=it is not None)
    else:
        write(Path())
    path = Path(world.from_first(lambda: str(path), "the end of the checkpoint"))
    parts.stopwatch.phase(OTHER)
    return path


def _shard(folder: Path, rank: int) -> Path:
    return folder / RANKS / f"rank-{rank:05d}.safetensors"


def assemble(
    prepared: Prepared, *, weights: Path | None = None, world: World | None = None, stop: StopRequest | None = None
) -> Parts:
    """All parts of a run; ``weights`` is the model folder of a checkpoint that the run goes on from.

    The reference policy is always the model of the configuration, or that of `kl.reference`.

    Raises:
        UsageError: the model of `kl.reference` is of another architecture.
        MissingError: the machine has less memory than the optimiser takes there.
        DivergedError: the policy's head disagrees with the model's own logits.
    """
    config, world = prepared.config, world or World()
    host_notes(prepared, refuse=True)
    folder = embedded.resolve_model(config.model)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    # A model that was still to be made has its tokenizer beside it by now.
    tokenizer = prepared.tokenizer if prepared.is_there else load_tokenizer(folder)
    prompts, evaluation_prompts = prepared.prompts, prepared.evaluation_prompts
    for warning in prepared.warnings:
        logger.warning(warning)
    for note in prompts.notes:
        logger.info(note)
    kind: type[PolicyKind] = POLICIES[config.policy.kind]
    policy = kind.open(config, world, device=prepared.device, weights=weights)
    fingerprints = {"reference model": model_digest(folder), "prompts": digest_prompts(prompts.prompts)}
    if config.kl.reference is not None:
        fingerprints["model of kl.reference"] = model_digest(embedded.resolve_model(config.kl.reference))
    policy.check_head(prompts.prompts)
    return Parts(
        config=config,
        policy=policy,
        tokenizer=tokenizer,
        engine=make_training_engine(config, policy, tokenizer),
        stream=PromptStream(prompts.prompts, config.seed, config.data.shares),
        evaluation_prompts=evaluation_prompts,
        reward=prepared.reward,
        sampling=Sampling(
            temperature=config.rollout.temperature,
            top_p=config.rollout.top_p,
            top_k=config.rollout.top_k,
            max_new_tokens=config.rollout.max_new_tokens,
            stop=config.stop,
        ),
        fingerprints=fingerprints,
        stop=StopCheck(stop, world),
    )


def make_training_engine(config: Config, policy: Policy, tokenizer: Any) -> Engine:
    """The rollout engine of ``config.rollout.engine``, which samples from ``policy``.

    An engine with weights of its own (vLLM) first loads those of the configured model, or of an adapter's base; each
    `Engine.sync` then replaces them by the policy's.
    """
    rollout, context = config.rollout, policy.context
    longest = config.data.max_prompt_tokens + rollout.max_new_tokens
    recipe = Recipe(
        engine=rollout.engine,
        weights=base_of(embedded.resolve_model(config.model)),
        dtype=config.dtype,
        device=str(policy.device),
        max_tokens=longest if context is None else min(context, longest),
        rows_at_once=config.sizes.rows_at_once,
        cache_tokens=config.sizes.cache_tokens,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        replay_file=rollout.replay_file,
        needs_logp=config.needs_sampler is not None,
    )
    kind: type[EngineKind] = ENGINES[rollout.engine]
    return kind.open(recipe, tokenizer, policy)


def restore(
    config: Config, run: RunDir, world: World, stop: StopRequest | None = None, prepared: Prepared | None = None
) -> tuple[Parts, Position]:
    """The parts of a run at its newest checkpoint, or at the beginning; metrics and rollouts are cut back to it.

    Raises:
        DataError: the checkpoint is damaged or of an earlier version, files of the run were changed, or settings,
            model, data or ranks have changed. Metrics, rollouts and checkpoints stay as they were.
    """
    found = world.from_first(lambda: checkpoint.load_newest(run.path), "the verified checkpoint")
    if found is not None:  # refused now, and not after minutes of loading
        refuse_earlier_version(found)
        refuse_other_settings(run.path, config, found.state, found.path.name)
        if world.is_first:
            refuse_changed(run.path, found.state)
    prepared = prepared or prepare(config, launched() if world.size > 1 else None)
    close = prepared.close
    try:
        Generators.seed(config.seed)
        parts = assemble(prepared, weights=found.model if found else None, world=world, stop=stop)
        close = parts.close
        _record_environment(run, parts, prepared.prompts)
        position = Position(Learner(run.path))
        if found is not None:
            _load(found, parts, position)
        world.barrier("every rank to have loaded its part")  # from here on no rank can refuse to go on
        run.go_back(position.step, found.state if found else {})
        if world.is_first:
            tidy(run.path)
    except BaseException:
        close()
        raise
    return parts, position


def _record_environment(run: RunDir, parts: Parts, prompts: PromptSet) -> None:
    """Record what is known once the parts are built, and warn of what has changed since the run began."""
    config, reward = parts.config, parts.reward.environment()
    device = {"device": str(parts.policy.device), "threads": torch.get_num_threads(), "ranks": parts.policy.world.size}
    # An embedded model is taught on this machine, and another processor rounds otherwise: the name is not enough.
    model = {"model_digest": parts.fingerprints["reference model"]}
    counts = {"prompts": len(prompts.prompts), "prompts_left_out": prompts.skipped.total()}
    own = recorded(type(config.method).__module__)
    for name in (config.rollout.engine, config.policy.kind):
        if is_own(name):
            own |= recorded(name.partition(":")[0])
    for key, (before, after) in run.add_to_environment({**device, **model, **counts, **own, **reward}).items():
        if key.startswith(OWN_CODE):
            said = (
                "your module %s was changed since this run began (SHA-256 %.12s... then, %.12s... now): the run goes "
                "on with it as it is now, so its numbers may jump from here on"
            )
        else:
            said = "%s was %s when this run began and is %s now; results will not be the same bit by bit"
        logger.warning(said, key.removeprefix(OWN_CODE), before, after)


def _load(found: Checkpoint, parts: Parts, position: Position) -> None:
    """Bring ``parts`` and ``position`` to ``found``; DataError: other model, data or number of ranks."""
    state, policy, world = found.state, parts.policy, parts.policy.world
    refuse_other_inputs(parts, state, found.path.name)
    tensors = tensors_of(found, policy)
    for name, part in stateful_parts(parts, position.learner).items():
        part.load_state(below(tensors, f"{name}/"), state["parts"][name])
    position.step, position.carried, position.base = state["step"], state["carried"], state["base"]
    if "iteration" in state["parts"]:
        is_own = world.is_first or not policy.is_sharded
        saved = below(tensors if is_own else found.tensors(), "iteration/")  # they are with rank 0's tensors
        position.iteration = Iteration.from_state(saved, state["parts"]["iteration"], parts)
    logger.info("going on from %s%s", found.path.name, ", inside an iteration" if position.iteration else "")


def tensors_of(found: Checkpoint, policy: Policy) -> dict[str, Tensor]:
    """The tensors that this rank saved in ``found``, on the CPU; DataError if another number of ranks saved shards."""
    world, then = policy.world, int(found.state["ranks"])
    if policy.is_sharded and then != world.size:
        raise DataError(
            f"{found.path.name} holds the optimiser in shards of {then} rank{'s' if then > 1 else ''}, and now there "
            f"{'are' if world.size > 1 else 'is'} {world.size}; start {then} processes to go on with it. Its weights "
            f"are whole: `quatro export {found.path.parent.parent} -o FOLDER` writes them for a run of any size"
        )
    if not policy.is_sharded or world.is_first:
        return found.tensors()
    return load_file(_shard(found.path, world.rank))


def refuse_earlier_version(found: Checkpoint) -> None:
    """Raises DataError if `_load` does not read the form of ``found``."""
    parts = found.state.get("parts", {})
    is_known = "learner" in parts and {"base", "ranks"} <= found.state.keys()
    if not is_known or ("iteration" in parts and "rollouts" not in parts["iteration"]["learnt"]):
        raise DataError(
            f"{found.path.name} was written by an earlier version, which kept its state in another form; begin a new "
            f"run from its weights with -s model={found.model}"
        )


def refuse_other_inputs(parts: Parts, state: Mapping[str, Any], name: str) -> None:
    """Raises DataError if the model or the data are not those that the run began with."""
    found = parts.fingerprints.items()
    refuse_differing(
        name, [f"the {what} changed since the run began" for what, own in found if state["inputs"].get(what) != own]
    )
