"""Builds the parts of a run from its configuration: policy, engine, prompts, reward."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from quatro.config import Config
from quatro.launch.begin import Prepared
from quatro.launch.health import prompt_warnings
from quatro.loop.position import Parts
from quatro.policy import embedded
from quatro.policy.base import Policy
from quatro.policy.kinds import PolicyKind
from quatro.policy.loading import load_tokenizer
from quatro.policy.model_files import base_of, model_digest
from quatro.processes.stop import StopCheck, StopRequest
from quatro.processes.world import World
from quatro.registry import ENGINES, POLICIES
from quatro.rollout.engine import Engine, EngineKind, Recipe
from quatro.rollout.prompts import PromptStream, digest_prompts
from quatro.types import Sampling

logger = logging.getLogger(__name__)


def assemble(
    prepared: Prepared, *, weights: Path | None = None, world: World | None = None, stop: StopRequest | None = None
) -> Parts:
    """All parts of a run; ``weights`` is the model folder of a checkpoint that the run goes on from.

    The reference policy is always the model of the configuration, or that of `kl.reference`.

    Raises:
        UsageError: the model of `kl.reference` is of another architecture.
        DivergedError: the policy's head disagrees with the model's own logits.
    """
    config, world = prepared.config, world or World()
    folder = embedded.resolve_model(config.model)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    # A model that was still to be made has its tokenizer beside it by now.
    tokenizer = prepared.tokenizer if prepared.is_there else load_tokenizer(folder)
    prompts, evaluation_prompts = prepared.prompts, prepared.evaluation_prompts
    kind: type[PolicyKind] = POLICIES[config.policy.kind]
    policy = kind.open(config, world, device=prepared.device, weights=weights)
    fingerprints = {"reference model": model_digest(folder), "prompts": digest_prompts(prompts.prompts)}
    if config.kl.reference is not None:
        fingerprints["model of kl.reference"] = model_digest(embedded.resolve_model(config.kl.reference))
    policy.check_head(prompts.prompts)
    for warning in (*prompts.warnings, *prompt_warnings(config, len(prompts.prompts))):
        logger.warning(warning)
    for note in prompts.notes:
        logger.info(note)
    return Parts(
        config=config,
        policy=policy,
        tokenizer=tokenizer,
        engine=make_training_engine(config, policy, tokenizer),
        stream=PromptStream(prompts.prompts, config.seed),
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
    )
    kind: type[EngineKind] = ENGINES[rollout.engine]
    return kind.open(recipe, tokenizer, policy)
