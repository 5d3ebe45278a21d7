"""From a configuration to the parts of a run: policy, engine, prompts, reward."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from evals.errors import MissingError
from quatro import warmstart
from quatro.config import Config
from quatro.data import PromptStream, check_answers, digest_prompts, evaluation_prompts, load_prompts
from quatro.parts import Parts
from quatro.policy import lora
from quatro.policy.adapters import base_of
from quatro.policy.base import Policy
from quatro.policy.digest import model_digest
from quatro.policy.loading import context_limit, load_config, load_model, load_tokenizer, stop_ids
from quatro.policy.local import LocalPolicy
from quatro.preflight import check_ranks, require_packages
from quatro.ranks import launched
from quatro.rewards import make_reward
from quatro.rollout.engine import Engine
from quatro.stop import StopCheck, StopRequest
from quatro.types import Prompt, Sampling
from quatro.world import World

logger = logging.getLogger(__name__)


def assemble(
    config: Config,
    *,
    weights: Path | None = None,
    progress: warmstart.Progress | None = None,
    world: World | None = None,
    stop: StopRequest | None = None,
) -> Parts:
    """All parts of a run; ``weights`` is a checkpoint's model folder, in place of the one the run began with.

    The reference policy is always the model of the configuration.

    Raises:
        MissingError: the model, the data, the device or a package is not on this machine.
        DataError: the prompts are empty, too long or unreadable.
        UsageError: the batch is too small for the ranks of ``world``.
        DivergedError: the policy's head disagrees with the model's own logits.
    """
    world = world or World()
    check_ranks(config, world.size)
    require_packages(config)
    folder = warmstart.resolve_model(config.model, progress=progress)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = find_device(config.device, launched().local_rank if world.size > 1 else None)
    tokenizer = load_tokenizer(folder)
    # Trained weights are kept in float32: an update of 1e-6 is lost in bfloat16's 8 bits. `dtype` is that of the
    # computation. What an adapter freezes is cast to it before it comes to the device.
    model = load_model(folder, torch.float32, "cpu" if config.policy.lora is not None else device)
    policy = make_policy(config, model, world, weights, device=device)
    limit = context_limit(model)
    prompts = load_prompts(config.data, tokenizer, context_limit=limit)
    check_parts(config, prompts.prompts, tokenizer, context_limit=limit)
    policy.check_head(prompts.prompts)
    for warning in prompts.warnings:
        logger.warning(warning)
    return Parts(
        config=config,
        policy=policy,
        tokenizer=tokenizer,
        engine=make_engine(config, policy, tokenizer),
        stream=PromptStream(prompts.prompts, config.seed),
        reward=make_reward(config.reward),
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


def check_parts(config: Config, prompts: Sequence[Prompt], tokenizer: Any, *, context_limit: int | None) -> None:
    """What beside the model a run could stumble over later, and `preflight.check_inputs` cannot know, is tried now.

    Raises:
        MissingError: DeepSpeed or vLLM cannot be used here.
        UsageError: vLLM does not take the model's heads.
        DataError: the reward or the evaluation's grader cannot judge a prompt.
    """
    if config.policy.kind == "deepspeed":
        from quatro.policy.deepspeed import require

        require(find_device(config.device))
    if config.rollout.engine == "vllm":
        from quatro.rollout.vllm import check_usable

        # An embedded model that is still to be made has heads that fit.
        is_there = warmstart.is_cached(config.model)
        check_usable(load_config(warmstart.resolve_model(config.model)) if is_there else None)
    check_answers(prompts, config.reward)
    if config.eval.every:
        evaluation_prompts(config, tokenizer, context_limit=context_limit)


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


def find_device(name: str, local_rank: int | None = None) -> torch.device:
    """`auto` is CUDA if there is a device; of several ranks on a machine each takes the one of its number.

    Raises:
        MissingError: `cuda` was asked for and there is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingError(
            "device is cuda, and PyTorch sees no CUDA device here; use -s device=cpu, or see `quatro doctor`"
        )
    if name == "cpu" or local_rank is None:
        return torch.device(name)
    if local_rank >= torch.cuda.device_count():
        raise MissingError(
            f"{local_rank + 1} processes or more were started on this machine, and PyTorch sees "
            f"{torch.cuda.device_count()} CUDA devices: start one for each device, or use -s device=cpu"
        )
    return torch.device(name, local_rank)
