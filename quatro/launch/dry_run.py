"""Describes a run without starting it: the batch in words, the first prompt, the memory that it should need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from evals.text import size_text
from quatro.config import Config, config_to_yaml
from quatro.launch.health import prompt_warnings, startup_warnings
from quatro.launch.own_code import try_engine, try_reward
from quatro.launch.prepare import Prepared
from quatro.policy.adapters import base_of
from quatro.policy.footprint import cache_token_bytes, footprint, with_checkpointing
from quatro.policy.kinds import ModelSize, PolicyKind
from quatro.registry import ENGINES, POLICIES
from quatro.rollout.prompts import PromptSet
from quatro.types import Prompt

if TYPE_CHECKING:
    import torch


SHOWN_TOKENS = 64
SHOWN_CHARACTERS = 600


@dataclass(frozen=True)
class Memory:
    """Bytes by purpose, estimated from the architecture and the batch settings; ``total`` is the peak."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    casts: int
    snapshots: int
    activations: int
    logits: int
    kv_cache: int
    reward: int = 0

    @property
    def always(self) -> int:
        """What stays while the run samples and while it learns."""
        return self.weights + self.optimizer + self.reference + self.casts + self.snapshots + self.reward

    @property
    def sampling(self) -> int:
        return self.always + self.kv_cache

    @property
    def learning(self) -> int:
        return self.always + self.gradients + self.activations + self.logits

    @property
    def total(self) -> int:
        """The larger of sampling and learning, which take turns."""
        return max(self.sampling, self.learning)


@dataclass(frozen=True)
class Fit:
    """How the estimate compares with ``free_bytes``, the memory that a rank can take on its device.

    ``tokens`` is the largest `microbatch_tokens` with which learning fits, ``checkpointed_tokens`` that with gradient
    checkpointing; 0 where none does. The others are the estimate as configured.
    """

    free_bytes: int
    sampling_bytes: int
    learning_bytes: int
    tokens: int
    checkpointed_tokens: int

    @property
    def line(self) -> str:
        """For a person."""
        free = f"{size_text(self.free_bytes)} are free here:"
        if self.sampling_bytes > self.free_bytes:
            return (
                f"{free} it does not fit, as drawing responses takes {size_text(self.sampling_bytes)}; lower "
                "rollout.gpu_memory_utilization (vllm) or rollout.max_new_tokens"
            )
        if not self.checkpointed_tokens:
            return (
                f"{free} it does not fit, and no microbatch_tokens would; try -s policy.lora.rank=16, or "
                "policy.kind=deepspeed on several devices"
            )
        return (
            f"{free} it {'fits' if self.learning_bytes <= self.free_bytes else 'does not fit'}; microbatch_tokens up "
            f"to {self.tokens:,} would, and up to {self.checkpointed_tokens:,} with policy.gradient_checkpointing=true"
        )


@dataclass(frozen=True)
class DryRun:
    """What `describe` found; ``document`` is for programs, ``lines`` say the same to a person."""

    config_yaml: str
    arithmetic: list[str]
    num_prompts: int
    num_skipped: int
    first_prompt: Prompt
    num_parameters: int
    num_trained: int
    memory: Memory
    fit: Fit | None
    warnings: list[str]
    notes: list[str]

    @property
    def lines(self) -> list[str]:
        """The same as `document`, for a person."""
        prompt, memory = self.first_prompt, self.memory
        more = len(prompt.token_ids) - SHOWN_TOKENS
        ids = " ".join(map(str, prompt.token_ids[:SHOWN_TOKENS])) + (f" ... and {more} more" if more > 0 else "")
        skipped = f" ({self.num_skipped} left out as too long)" if self.num_skipped else ""
        parts = ", ".join(f"{name.replace('_', ' ')} {size_text(value)}" for name, value in vars(memory).items())
        lines = ["# resolved configuration", self.config_yaml.rstrip(), ""]
        lines += ["# batch", *self.arithmetic, ""]
        lines += [f"# first of {self.num_prompts} prompts{skipped}: {prompt.id}, {len(prompt.token_ids)} tokens"]
        lines += [f"text: {prompt.text[:SHOWN_CHARACTERS]!r}", f"ids: {ids}", ""]
        lines += ["# model and predicted peak memory (an estimate)", self._parameters]
        lines += [f"{size_text(memory.total)} at the peak: {parts}"]
        lines += [self.fit.line] if self.fit else []
        return [*lines, "", "# notes", *self.warnings, *self.notes]

    @property
    def _parameters(self) -> str:
        if self.num_trained == self.num_parameters:
            return f"{self.num_parameters:,} parameters"
        share = self.num_trained / self.num_parameters
        return f"{self.num_parameters:,} parameters, {self.num_trained:,} of them trained ({share:.2%})"

    @property
    def document(self) -> dict[str, Any]:
        prompt = self.first_prompt
        return {
            "config": self.config_yaml,
            "arithmetic": self.arithmetic,
            "prompts": {"count": self.num_prompts, "skipped": self.num_skipped},
            "first_prompt": {"id": prompt.id, "text": prompt.text, "token_ids": list(prompt.token_ids)},
            "parameters": self.num_parameters,
            "trained_parameters": self.num_trained,
            "memory_bytes": {**vars(self.memory), "total": self.memory.total},
            "fit": None if self.fit is None else vars(self.fit),
            "notes": [*self.warnings, *self.notes],
        }


def describe(prepared: Prepared, *, tries: bool = False) -> DryRun:
    """All that a run checks and announces before its first iteration; loads no weights.

    With ``tries`` it also calls a reward and an engine of the user's own.

    Raises:
        MissingError: the device is not on this machine, or DeepSpeed or vLLM cannot be used on it.
        UsageError: vLLM does not support the model's attention heads.
        DataError: the prompts are empty, too long or cannot be graded.
    """
    from quatro.policy.device import total_bytes

    config, device, num_ranks = prepared.config, prepared.device, prepared.launch.size
    prompts, model = prepared.prompts, prepared.shape
    _ = prepared.evaluation_prompts  # read here because they may be refused, too
    kind: type[PolicyKind] = POLICIES[config.policy.kind]
    kind.check_device(device)
    ENGINES[config.rollout.engine].check_model(model.config)
    num_parameters, num_trained = prepared.num_parameters
    notes = []
    if not prepared.is_there:
        notes.append(f"{config.model} is not in the cache yet: the run begins by making it, about a minute of one core")
    if (base := base_of(config.model)) != config.model:
        notes.append(f"{config.model} is an adapter: the run and its KL term begin with it merged into {base}")
    kept = "weights" if config.policy.lora is None else "the adapter's weights"
    masters = kind.masters.format(weights=kept)
    notes.append(f"device: {device.type}, computing in {config.dtype}, {masters}")
    notes += prompts.notes
    if prepared.sizes_note:
        notes.append(prepared.sizes_note)
    if tries:
        notes += [*try_reward(prepared), *try_engine(config)]
    memory = predict_memory(
        config,
        model.config,
        num_parameters,
        prompts,
        num_ranks,
        num_trained=num_trained,
        device=device,
        device_bytes=total_bytes(device),
    )
    memory = replace(memory, reward=prepared.reward.device_bytes(device.type))
    if memory.reward and not ENGINES[config.rollout.engine].shares_weights:
        notes.append(
            f"engine {config.rollout.engine} takes its share of the device first (rollout.gpu_memory_utilization); the "
            "policy and the reward model must fit into the rest, or put the model elsewhere: device: cpu in its options"
        )
    return DryRun(
        config_yaml=config_to_yaml(config),
        arithmetic=batch_arithmetic(config, len(prompts.prompts), num_ranks),
        num_prompts=len(prompts.prompts),
        num_skipped=prompts.num_skipped,
        first_prompt=prompts.prompts[0],
        num_parameters=num_parameters,
        num_trained=num_trained,
        memory=memory,
        fit=what_fits(config, model.config, memory, prompts, device, num_ranks),
        warnings=[*startup_warnings(config), *prompt_warnings(config, len(prompts.prompts))],
        notes=notes,
    )


def batch_arithmetic(config: Config, num_prompts: int, num_ranks: int = 1) -> list[str]:
    """The batch settings in words."""
    n, per_step, k = config.rollouts_per_prompt, config.prompts_per_step, config.most_inner_updates
    minibatches = per_step // config.minibatch_prompts
    up_to = "up to " if config.inner_updates == "auto" else ""
    lines = [
        f"1 iteration = {per_step} prompts x {n} rollouts = {per_step * n} rollouts of at most "
        f"{config.rollout.max_new_tokens} tokens",
        f"{minibatches} minibatch{'es' if minibatches > 1 else ''} of {config.minibatch_prompts} prompts x "
        f"K={up_to}{k} = {up_to}{minibatches * k} optimiser step{'s' if minibatches * k > 1 else ''} an iteration, "
        f"each over {config.minibatch_prompts * n} rollouts in micro-batches of at most "
        f"{config.sizes.microbatch_tokens} tokens",
        f"{config.steps} iterations = {config.steps * per_step * n} rollouts, {up_to}{config.steps * minibatches * k} "
        f"optimiser steps, {config.steps * per_step / num_prompts:.2f} passes over {num_prompts} prompts",
    ]
    if warmup := config.optimizer.warmup_steps:
        iterations = warmup / (minibatches * k)
        lines.append(
            f"warm-up: {warmup} optimiser step{'s' if warmup > 1 else ''} = {'at least ' if up_to else ''}"
            f"{iterations:.3g} iteration{'' if iterations == 1 else 's'}"
        )
    if num_ranks > 1:
        fewest, most = config.minibatch_prompts // num_ranks, -(-config.minibatch_prompts // num_ranks)
        share = f"{most}" if fewest == most else f"{fewest} or {most}"
        lines.append(
            f"{num_ranks} ranks: each draws the responses to its share of the prompts and learns from {share} prompts "
            "of each minibatch; the gradients are those of one process"
        )
    if config.eval.every:
        before = "before training and " if config.eval.at_start else ""
        lines.append(
            f"{config.eval.n} samples of each problem of {config.eval.benchmark} {before}every {config.eval.every} "
            "iterations"
        )
    return lines


def predict_memory(
    config: Config,
    shape: Any,
    num_parameters: int,
    prompts: PromptSet,
    num_ranks: int = 1,
    *,
    num_trained: int | None = None,
    device: torch.device | None = None,
    device_bytes: int | None = None,
) -> Memory:
    """An estimate of the peak from first principles; fragmentation and the framework come on top.

    P parameters, D hidden, K key width, V vocabulary, L layers; `Footprint` adds what a micro-batch takes.

        weights, gradients, reference   4 P each, AdamW 8 P; bfloat16: 2 P more of weights cast for the computation,
                                        and a reference of 2 P + 2 V D (its embedding stays in float32)
        snapshots                       4 P for `inner_updates: auto`
        reward                          a reward model's weights (`Reward.device_bytes`; not part of this function)
        kv_cache                        2 K b for each row, layer and token while sampling, b bytes a number; of an
                                        engine with weights of its own its share of ``device_bytes``, where known

    Each of several ranks holds its share of the rows, and under DeepSpeed its share of the optimiser (ZeRO-1), the
    gradients (2) and the weights (3). DeepSpeed keeps float32 masters beside weights in the format of the computation.

    With an adapter, only its ``num_trained`` parameters have gradients and moments, the others have the format of the
    computation, and the reference takes nothing.
    """
    from quatro.policy.device import find_device

    sizes, longest = config.sizes, longest_row(config, prompts)
    rows = -(-config.minibatch_prompts // num_ranks) * config.rollouts_per_prompt
    tokens = min(sizes.microbatch_tokens, rows * longest)
    learning = footprint(config, shape, device or find_device(config.device))
    batch_rows = min(sizes.rows_at_once, max(1, sizes.cache_tokens // longest))
    live_rows = min(batch_rows, -(-config.prompts_per_step // num_ranks) * config.rollouts_per_prompt)
    kv_cache = live_rows * longest * cache_token_bytes(config, shape)
    engine = ENGINES[config.rollout.engine]
    if device_bytes is not None and not (engine.shares_weights or engine.is_recorded):
        kv_cache = int(config.rollout.gpu_memory_utilization * device_bytes)
    num_embedded = shape.vocab_size * shape.hidden_size
    size = ModelSize(num_parameters, num_trained or num_parameters, num_ranks, engine.shares_weights, num_embedded)
    return Memory(
        **POLICIES[config.policy.kind].memory(config, size),
        activations=learning.activations(tokens),
        logits=learning.logits(tokens * config.rollout.max_new_tokens // longest),
        kv_cache=kv_cache,
    )


def longest_row(config: Config, prompts: PromptSet) -> int:
    """Tokens of a row with the longest prompt and a response that ends at the limit."""
    return max(len(prompt.token_ids) for prompt in prompts.prompts) + config.rollout.max_new_tokens


def what_fits(
    config: Config, shape: Any, memory: Memory, prompts: PromptSet, device: torch.device, num_ranks: int = 1
) -> Fit | None:
    """What would fit into the memory that is free on ``device``; None where nothing tells how much that is."""
    from quatro.policy.device import free_bytes

    free = free_bytes(device)
    if free is None:
        return None
    free = free if device.type == "cuda" else free // num_ranks  # ranks on CPUs share the machine's
    room = free - memory.always - memory.gradients
    response_share = Fraction(config.rollout.max_new_tokens, longest_row(config, prompts))
    sizes = [
        footprint(with_checkpointing(config, is_on), shape, device).fitting_tokens(room, response_share)
        for is_on in (config.policy.gradient_checkpointing, True)
    ]
    return Fit(free, memory.sampling, memory.learning, *sizes)
