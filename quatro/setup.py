"""From a configuration to the parts of a run: policy, engine, prompts, reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evals.errors import MissingError, UsageError
from quatro import warmstart
from quatro.config import Config
from quatro.data import PromptStream, check_answers, digest_prompts, evaluation_prompts, load_prompts
from quatro.policy.loading import context_limit, load_model, load_tokenizer, stop_ids
from quatro.policy.local import LocalPolicy
from quatro.rewards import Reward, make_reward
from quatro.rollout.engine import Engine
from quatro.sample import fingerprint
from quatro.types import Prompt, Sampling


@dataclass
class Parts:
    """Everything the loop works with."""

    config: Config
    policy: LocalPolicy
    tokenizer: Any
    engine: Engine
    stream: PromptStream
    reward: Reward
    sampling: Sampling
    fingerprints: dict[str, str]

    def close(self) -> None:
        self.reward.close()


def assemble(config: Config, *, weights: Path | None = None, progress: warmstart.Progress | None = None) -> Parts:
    """All parts of a run; ``weights`` is a checkpoint's model folder, in place of the one the run began with.

    The reference policy is always the model of the configuration.

    Raises:
        MissingError: the model, the data, the device or a package is not on this machine.
        DataError: the prompts are empty, too long or unreadable.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = find_device(config.device)
    folder = warmstart.resolve_model(config.model, progress=progress)
    tokenizer = load_tokenizer(folder)
    # Weights are kept in float32: an update of 1e-6 is lost in bfloat16's 8 bits. `dtype` is that of the computation.
    model = load_model(folder, torch.float32, device)
    policy = LocalPolicy(model, config)
    if weights is not None:
        model.load_state_dict(load_model(str(weights), torch.float32, device).state_dict())
    limit = context_limit(model)
    prompts = load_prompts(config.data, tokenizer, context_limit=limit)
    check_parts(config, prompts.prompts, tokenizer, context_limit=limit)
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
            "reference model": fingerprint(Path(folder)) if Path(folder).is_dir() else folder,
            "prompts": digest_prompts(prompts.prompts),
        },
    )


def check_parts(config: Config, prompts: Sequence[Prompt], tokenizer: Any, *, context_limit: int | None) -> None:
    """Everything beside the model that a run could stumble over later is tried now.

    Raises:
        UsageError: an engine, policy or reward that this version does not have, or a reward that cannot be imported.
        DataError: the reward cannot judge a prompt, or a replay or evaluation file is unreadable.
    """
    if config.policy.kind == "deepspeed":
        raise UsageError("policy.kind deepspeed is not part of this version; use -s policy.kind=local")
    if config.rollout.engine == "vllm":
        raise UsageError("rollout.engine vllm is not part of this version; use -s rollout.engine=transformers")
    if config.rollout.engine == "replay":
        from quatro.rollout.replay import ReplayEngine

        ReplayEngine(Path(config.rollout.replay_file or ""), tokenizer)
    check_answers(prompts, config.reward)
    make_reward(config.reward).close()
    if config.eval.every:
        evaluation_prompts(config, tokenizer, context_limit=context_limit)


def make_engine(config: Config, policy: LocalPolicy, tokenizer: Any) -> Engine:
    """The rollout engine of ``config.rollout.engine``, sampling from ``policy``."""
    if config.rollout.engine == "replay":
        from quatro.rollout.replay import ReplayEngine

        return ReplayEngine(Path(config.rollout.replay_file or ""), tokenizer)
    from quatro.rollout.transformers import TransformersEngine

    return TransformersEngine(
        policy.model, tokenizer, eos_ids=stop_ids(tokenizer, policy.model), compute=policy.computing
    )


def find_device(name: str) -> torch.device:
    """`auto` is the first CUDA device if there is one.

    Raises:
        MissingError: `cuda` was asked for and there is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingError(
            "device is cuda, and PyTorch sees no CUDA device here; use -s device=cpu, or see `quatro doctor`"
        )
    return torch.device(name)
