"""From a configuration to the parts of a run: policy, engine, prompts, reward."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import torch

from quatro import warmstart
from quatro.config import Config
from quatro.data import PromptStream, digest_prompts
from quatro.parts import Parts
from quatro.policy import lora
from quatro.policy.adapters import base_of
from quatro.policy.base import Policy
from quatro.policy.digest import model_digest
from quatro.policy.loading import context_limit, load_model, load_tokenizer, stop_ids
from quatro.policy.local import LocalPolicy
from quatro.prepare import Prepared
from quatro.rollout.engine import Engine
from quatro.stop import StopCheck, StopRequest
from quatro.types import Sampling
from quatro.world import World

logger = logging.getLogger(__name__)


def assemble(
    prepared: Prepared, *, weights: Path | None = None, world: World | None = None, stop: StopRequest | None = None
) -> Parts:
    """All parts of a run; ``weights`` is a checkpoint's model folder, in place of the one the run began with.

    The reference policy is always the model of the configuration.

    Raises:
        MissingError: the device or a package is not on this machine.
        DataError: the prompts are empty, too long or cannot be judged.
        DivergedError: the policy's head disagrees with the model's own logits.
    """
    config, world = prepared.config, world or World()
    folder = warmstart.resolve_model(config.model)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    # A model that was still to be made has its tokenizer beside it by now.
    tokenizer = prepared.tokenizer if prepared.is_there else load_tokenizer(folder)
    prompts, evaluation_prompts = prepared.prompts, prepared.evaluation_prompts
    # Trained weights are kept in float32: an update of 1e-6 is lost in bfloat16's 8 bits. `dtype` is that of the
    # computation. What an adapter freezes is cast to it before it comes to the device.
    model = load_model(folder, torch.float32, "cpu" if config.policy.lora is not None else prepared.device)
    policy = make_policy(config, model, world, weights, device=prepared.device)
    policy.check_head(prompts.prompts)
    for warning in prompts.warnings:
        logger.warning(warning)
    return Parts(
        config=config,
        policy=policy,
        tokenizer=tokenizer,
        engine=make_engine(config, policy, tokenizer),
        stream=PromptStream(prompts.prompts, config.seed),
        evaluation_prompts=evaluation_prompts,
        reward=prepared.reward,
        sampling=Sampling(
            temperature=config.rollout.temperature,
            top_p=config.rollout.top_p,
            top_k=config.rollout.top_k,
            max_new_tokens=config.rollout.max_new_tokens,
        ),
        fingerprints={
            "reference model": model_digest(folder),
            "prompts": digest_prompts(prompts.prompts),
        },
        stop=StopCheck(stop, world),
    )


def make_policy(
    config: Config, model: Any, world: World, weights: Path | None, *, device: torch.device | None = None
) -> Policy:
    """The policy of ``config.policy.kind`` on ``device`` (default: the model's).

    ``weights`` take the place of ``model``'s once the reference is made.
    """
    is_local, adapter = config.policy.kind == "local", config.policy.lora
    if adapter is not None:
        # DeepSpeed brings all weights to the format of the computation by itself.
        is_cast = is_local and config.dtype == "bfloat16"
        lora.attach(model, adapter, seed=config.seed, frozen_dtype=torch.bfloat16 if is_cast else None)
    model = model if device is None else model.to(device)
    if is_local:
        policy = LocalPolicy(model, config, world=world)
        if weights is not None:
            _load_weights(model, weights, config)
        return policy
    from quatro.policy.deepspeed import DeepSpeedPolicy, require

    require(model.device)
    reference = copy.deepcopy(model) if config.kl.beta > 0 and adapter is None else None
    if weights is not None:
        _load_weights(model, weights, config)
    return DeepSpeedPolicy(model, config, world=world, reference=reference)


def _load_weights(model: Any, weights: Path, config: Config) -> None:
    if config.policy.lora is not None:
        lora.load(model, weights)
        return
    model.load_state_dict(load_model(str(weights), torch.float32, model.device).state_dict())


def make_engine(config: Config, policy: Policy, tokenizer: Any) -> Engine:
    """The rollout engine of ``config.rollout.engine``, sampling from ``policy``."""
    if config.rollout.engine == "replay":
        from quatro.rollout.replay import ReplayEngine

        return ReplayEngine(Path(config.rollout.replay_file or ""), tokenizer)
    eos_ids = stop_ids(tokenizer, policy.model)
    if config.rollout.engine == "vllm":
        return _vllm_engine(config, policy, tokenizer, eos_ids)
    from quatro.rollout.transformers import TransformersEngine

    sampled = policy.sampling_model
    if sampled is policy.model:
        return TransformersEngine(sampled, tokenizer, eos_ids=eos_ids, compute=policy.computing)
    from quatro.rollout.following import FollowingEngine

    return FollowingEngine(sampled, tokenizer, eos_ids=eos_ids, compute=policy.computing)


def _vllm_engine(config: Config, policy: Policy, tokenizer: Any, eos_ids: tuple[int, ...]) -> Engine:
    """Loaded from the model the run began with, or of an adapter its base: the first `sync` brings the policy's own
    weights."""
    from quatro.rollout.probe import make_probe, num_probe_tokens, policy_score, probe_vocabulary
    from quatro.rollout.vllm import VllmEngine

    context = context_limit(policy.model)
    longest = max(config.data.max_prompt_tokens + config.rollout.max_new_tokens, num_probe_tokens())
    num_embeddings = policy.model.get_input_embeddings().num_embeddings
    probe = make_probe(
        policy_score(policy),
        vocabulary=probe_vocabulary(tokenizer, num_embeddings),
        context=context,
        temperature=config.rollout.temperature,
        dtype=config.dtype,
    )
    return VllmEngine(
        base_of(warmstart.resolve_model(config.model)),
        tokenizer,
        shape=policy.model.config,
        eos_ids=eos_ids,
        dtype=config.dtype,
        max_model_len=longest if context is None else min(context, longest),
        gpu_memory_utilization=config.rollout.gpu_memory_utilization,
        temperature=config.rollout.temperature,
        probe=probe,
        shares_device=policy.device.type == "cuda",
        is_distributed=policy.world.size > 1,
    )
