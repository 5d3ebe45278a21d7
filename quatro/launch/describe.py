"""Describes a run without starting it: the batch in words, the first prompt, the memory that it should need.

The memory is estimated from first principles, and what fits takes the place of `auto`: once, when a run is made, from
the memory that the device has in all, used or free. The run's config.yaml keeps the numbers, and a resumed run reads
them there, whatever the device then has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from evals.errors import MissingError
from evals.text import size_text
from quatro.config import Config, config_to_yaml, leaves
from quatro.config.blocks import CPU_SIZES, SIZE_KEYS, Sizes
from quatro.launch.begin import Prepared
from quatro.launch.health import startup_warnings
from quatro.policy import embedded
from quatro.policy.device import (
    USED_SHARE,
    cache_token_bytes,
    drawing_bytes,
    drawing_limits,
    footprint,
    free_bytes,
    machine_bytes,
    number_bytes,
    total_bytes,
)
from quatro.policy.kinds import ModelSize
from quatro.policy.model_files import base_of
from quatro.processes.world import World
from quatro.registry import ENGINES, POLICIES
from quatro.runs.directory import run_bytes
from quatro.types import Prompt

if TYPE_CHECKING:
    import torch

SHOWN_TOKENS = 64
SHOWN_CHARACTERS = 600
# Numbers of so many binary digits, and zeros, between these bounds: a little more or less memory changes nothing.
LEADING = Sizes(microbatch_tokens=1, rows_at_once=1, cache_tokens=6)
FEWEST = Sizes(microbatch_tokens=1 << 10, rows_at_once=1 << 6, cache_tokens=1 << 12)
MOST = Sizes(microbatch_tokens=1 << 15, rows_at_once=1 << 13, cache_tokens=1 << 22)


@dataclass(frozen=True)
class DryRun:
    """What `describe` found; ``document`` is for programs, ``lines`` say the same to a person."""

    prepared: Prepared
    memory: Memory
    fit: Fit | None
    notes: list[str]

    @property
    def disk_bytes(self) -> int:
        """Of the run in the end, if all its responses have the full length."""
        return run_bytes(self.prepared.config, self.prepared.num_trained)

    @property
    def lines(self) -> list[str]:
        prompts, memory = self.prepared.prompts, self.memory
        parts = ", ".join(f"{name.replace('_', ' ')} {size_text(value)}" for name, value in vars(memory).items())
        count, trained = self.prepared.num_parameters, self.prepared.num_trained
        share = f", {trained:,} of them trained ({trained / count:.2%})" if trained != count else ""
        return [
            *("# resolved configuration", config_to_yaml(self.prepared.config).rstrip(), ""),
            *("# batch", *batch_arithmetic(self.prepared), ""),
            *(line for name, own in prompts.by_source.items() for line in self._first(name, own)),
            *("# model and predicted peak memory (an estimate)", f"{count:,} parameters{share}"),
            f"{size_text(memory.total)} at the peak: {parts}",
            *([self.fit.line] if self.fit else []),
            *("", "# disk"),
            f"disk: about {size_text(self.disk_bytes)}: checkpoints that stay, and rollouts of full length",
            *("", "# notes", *self.notes),
        ]

    def _first(self, name: str, prompts: Sequence[Prompt]) -> list[str]:
        """The first prompt of a source."""
        prompt, share = prompts[0], self.prepared.config.data.shares[name]
        of = f" of {name}, which are {share:.3g} of a batch" if name else ""
        if num_skipped := self.prepared.prompts.skipped[name]:
            of += f" ({num_skipped} left out as too long)"
        more = len(prompt.token_ids) - SHOWN_TOKENS
        ids = " ".join(map(str, prompt.token_ids[:SHOWN_TOKENS])) + (f" ... and {more} more" if more > 0 else "")
        head = f"# first of {len(prompts)} prompts{of}: {prompt.id}, {len(prompt.token_ids)} tokens"
        return [head, f"text: {prompt.text[:SHOWN_CHARACTERS]!r}", f"ids: {ids}", ""]

    @property
    def document(self) -> dict[str, Any]:
        prepared, shares = self.prepared, self.prepared.config.data.shares
        sources = [
            {
                "name": name,
                "share": shares[name],
                "count": len(own),
                "skipped": prepared.prompts.skipped[name],
                "first_prompt": {"id": own[0].id, "text": own[0].text, "token_ids": list(own[0].token_ids)},
            }
            for name, own in prepared.prompts.by_source.items()
        ]
        return {
            "config": config_to_yaml(prepared.config),
            "arithmetic": batch_arithmetic(prepared),
            "prompts": {"count": len(prepared.prompts.prompts), "skipped": prepared.prompts.skipped.total()},
            "first_prompt": sources[0]["first_prompt"],
            "sources": sources if sources[0]["name"] else [],
            "parameters": prepared.num_parameters,
            "trained_parameters": prepared.num_trained,
            "memory_bytes": {**vars(self.memory), "total": self.memory.total},
            "fit": None if self.fit is None else vars(self.fit),
            "disk_bytes": self.disk_bytes,
            "notes": self.notes,
        }


def describe(prepared: Prepared) -> DryRun:
    """What a run would announce, and what it should need; loads no weights."""
    config, device = prepared.config, prepared.device
    estimate = Estimate.of(prepared)
    memory = estimate.memory(total_bytes(device), prepared.reward.device_bytes(device.type))
    free = free_bytes(device)
    fit = None if free is None else estimate.fit(memory, free)
    logged = [*startup_warnings(config), *prepared.warnings, *prepared.prompts.notes]  # by a run itself
    return DryRun(prepared, memory, fit, [*logged, *notes(prepared)])


def notes(prepared: Prepared) -> list[str]:
    """What is worth knowing of a run before it begins, but for what it logs itself."""
    config, device = prepared.config, prepared.device
    engine = ENGINES[config.rollout.engine]
    found = []
    if not prepared.is_there:
        found.append(f"{config.model} is not in the cache yet: {embedded.making_of(config.model)}")
    if (base := base_of(config.model)) != config.model:
        found.append(f"{config.model} is an adapter: the run and its KL term begin with it merged into {base}")
    found.append(f"device: {device.type}, computing in {config.dtype}")
    if prepared.sizes_note:
        found.append(prepared.sizes_note)
    found += host_notes(prepared)
    if prepared.reward.device_bytes(device.type) and not engine.shares_weights:
        found.append(
            f"engine {config.rollout.engine} takes its share of the device first (rollout.gpu_memory_utilization); the "
            "policy and the reward model must fit into the rest, or put the model elsewhere: device: cpu in its options"
        )
    return found


def host_notes(prepared: Prepared, *, refuse: bool = False) -> list[str]:
    """What the ranks of this machine keep in its own memory; with ``refuse`` MissingError where it has less."""
    there, local = machine_bytes() or 0, os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE")
    needed = Estimate.of(prepared).memory().offloaded * int(local or prepared.launch.size)
    said = f"policy.offload_optimizer keeps about {size_text(needed)} in the memory of this machine"
    if 0 < there < needed:
        said += f", which has {size_text(there)}: too little; set policy.lora.rank=16, or take more GPUs instead"
        if refuse:
            raise MissingError(said)
    return [said] if needed else []


def batch_arithmetic(prepared: Prepared) -> list[str]:
    """The batch settings in words."""
    config, num_ranks = prepared.config, prepared.launch.size
    n, per_step, k = config.rollouts_per_prompt, config.prompts_per_step, config.most_inner_updates
    minibatches = per_step // config.minibatch_prompts
    up_to = "up to " if config.inner_updates == "auto" else ""
    passes = [
        f"{config.steps * per_step * config.data.shares[name] / len(own):.2f} passes over {len(own)} prompts of {name}"
        for name, own in prepared.prompts.by_source.items()
    ]
    lines = [
        f"1 iteration = {per_step} prompts x {n} rollouts = {per_step * n} rollouts of at most "
        f"{config.rollout.max_new_tokens} tokens",
        f"{minibatches} minibatch{'es' if minibatches > 1 else ''} of {config.minibatch_prompts} prompts x "
        f"K={up_to}{k} = {up_to}{minibatches * k} optimiser step{'s' if minibatches * k > 1 else ''} an iteration, "
        f"each over {config.minibatch_prompts * n} rollouts in micro-batches of at most "
        f"{config.sizes.microbatch_tokens} tokens",
        f"{config.steps} iterations = {config.steps * per_step * n} rollouts, {up_to}{config.steps * minibatches * k} "
        f"optimiser steps, {', '.join(passes).removesuffix(' of ')}",
    ]
    if config.rollout.dynamic_sampling:
        lines.append(f"dynamic sampling draws an iteration's rollouts up to {config.rollout.max_sampling_rounds} times")
    if num_ranks > 1:
        lines.append(f"{num_ranks} ranks share the prompts; the gradients are those of one process")
    if config.eval.every:
        before = "before training and " if config.eval.at_start else ""
        drawn = [f"{n} samples of each problem of {benchmark}" for benchmark, n in config.evaluated.values()]
        lines.append(f"{', '.join(drawn)} {before}every {config.eval.every} iterations")
    return lines


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
    drawing: int = 0
    reward: int = 0
    kept_gradients: int = 0
    offloaded: int = 0  # in CPU memory, and in no sum here
    whole_copy: int = 0  # of weights in shards, while an engine draws

    @property
    def always(self) -> int:
        """What stays while the run samples and while it learns."""
        model = self.weights + self.optimizer + self.kept_gradients + self.reference
        return model + self.casts + self.snapshots + self.reward

    @property
    def sampling(self) -> int:
        return self.always + self.kv_cache + self.drawing + self.whole_copy

    @property
    def learning(self) -> int:
        return self.always + self.gradients + self.activations + self.logits

    @property
    def total(self) -> int:
        """The larger of sampling and learning, which take turns."""
        return max(self.sampling, self.learning)


@dataclass(frozen=True)
class Fit:
    """How the estimate compares with ``free_bytes``, the memory that a rank can take on its device."""

    free_bytes: int
    sampling_bytes: int
    learning_bytes: int

    @property
    def line(self) -> str:
        """For a person."""
        free = f"{size_text(self.free_bytes)} are free here:"
        if self.learning_bytes > self.free_bytes:
            return (
                f"{free} it does not fit, as learning takes {size_text(self.learning_bytes)}; try -s "
                "microbatch_tokens=1024, policy.gradient_checkpointing=true, policy.lora.rank=16, or "
                "policy.kind=deepspeed on several devices"
            )
        if self.sampling_bytes > self.free_bytes:
            return (
                f"{free} it does not fit, as drawing responses takes {size_text(self.sampling_bytes)}; lower "
                "rollout.gpu_memory_utilization (vllm) or rollout.max_new_tokens"
            )
        return f"{free} it fits"


@dataclass(frozen=True)
class Estimate:
    """What the memory of each rank depends on; ``shape`` is the configuration of the model.

    ``longest_prompt`` is in tokens. Fragmentation and the framework come on top of every number. The peak that a run
    on a CPU logs has both: 0.5 GiB that PyTorch and transformers take once imported, and pieces of freed memory.
    """

    config: Config
    shape: Any
    num_parameters: int
    num_trained: int
    longest_prompt: int
    device: torch.device
    num_ranks: int = 1

    @classmethod
    def of(cls, prepared: Prepared) -> Estimate:
        longest = max(len(prompt.token_ids) for prompt in prepared.prompts.prompts)
        numbers = (prepared.num_parameters, prepared.num_trained, longest)
        return cls(prepared.config, prepared.shape, *numbers, prepared.device, prepared.launch.size)

    @property
    def longest_row(self) -> int:
        """Tokens of a row with the longest prompt and a response that ends at the limit."""
        return self.longest_prompt + self.config.rollout.max_new_tokens

    def memory(self, device_bytes: int | None = None, reward_bytes: int = 0) -> Memory:
        """P parameters, D hidden, K key width, V vocabulary, L layers; `Footprint` adds what a micro-batch takes.

            weights, gradients, reference   4 P each, AdamW 8 P; bfloat16: 2 P more of weights cast for the
                                            computation, and a reference of 2 P + 2 V D (its embedding stays in float32)
            snapshots                       4 P for `inner_updates: auto`
            reward                          ``reward_bytes``, a reward model's weights
            kv_cache                        2 K b for each row, layer and token while sampling, b bytes a number; of an
                                            engine with its own weights its share of ``device_bytes``, where known
            drawing                         `drawing_bytes`; of an engine with its own weights part of its share

        Each of several ranks holds its share of the rows, and under DeepSpeed its share of the optimiser (ZeRO-1), the
        gradients (2), and the weights and the reference (3), of which an engine without weights of its own has a whole
        copy while it samples. It keeps float32 masters beside weights in the format of the computation. With an
        adapter, only its parameters have gradients and moments, the others have the format of the computation, and
        the reference takes nothing.
        """
        config, sizes, longest = self.config, self.config.sizes, self.longest_row
        rows = -(-config.minibatch_prompts // self.num_ranks) * config.rollouts_per_prompt
        tokens = min(sizes.microbatch_tokens, rows * longest)
        learning = footprint(config, self.shape, self.device)
        batch_rows = min(sizes.rows_at_once, max(1, sizes.cache_tokens // longest))
        live_rows = min(batch_rows, -(-config.prompts_per_step // self.num_ranks) * config.rollouts_per_prompt)
        kv_cache = live_rows * longest * cache_token_bytes(self.shape, number_bytes(config))
        engine = ENGINES[config.rollout.engine]
        if device_bytes is not None and not (engine.shares_weights or engine.is_recorded):
            kv_cache = int(config.rollout.gpu_memory_utilization * device_bytes)
        prompts = -(-live_rows // config.rollouts_per_prompt) * self.longest_prompt
        drawing = drawing_bytes(self.shape, number_bytes(config), live_rows, prompts, self.device.type)
        num_embedded = self.shape.vocab_size * self.shape.hidden_size
        numbers = (self.num_parameters, self.num_trained, self.num_ranks)
        return Memory(
            **POLICIES[config.policy.kind].memory(config, ModelSize(*numbers, engine.shares_weights, num_embedded)),
            activations=learning.activations(tokens),
            logits=learning.logits(tokens * config.rollout.max_new_tokens // longest),
            kv_cache=kv_cache,
            drawing=drawing if engine.shares_weights else 0,
            reward=reward_bytes,
        )

    def fit(self, memory: Memory, free_bytes: int) -> Fit:
        """Whether ``memory`` fits into ``free_bytes``, which all ranks of a CPU share."""
        free = free_bytes if self.device.type == "cuda" else free_bytes // self.num_ranks
        return Fit(free, memory.sampling, memory.learning)

    def sizes(self, device_bytes: int) -> Sizes:
        """What fits into ``device_bytes`` of a GPU: in powers of two, but the cache to within a 32nd."""
        config, memory = self.config, self.memory()
        room = int(USED_SHARE * device_bytes) - memory.always
        response_share = Fraction(config.rollout.max_new_tokens, self.longest_row)
        fitting = Sizes(
            footprint(config, self.shape, self.device).fitting_tokens(room - memory.gradients, response_share),
            *drawing_limits(device_bytes, room - memory.whole_copy, self.shape, number_bytes(config), self.longest_row),
        )
        if not ENGINES[config.rollout.engine].shares_weights:  # it has memory and limits of its own
            fitting = fitting._replace(rows_at_once=CPU_SIZES.rows_at_once, cache_tokens=CPU_SIZES.cache_tokens)
        shifts = (max(0, size.bit_length() - digits) for size, digits in zip(fitting, LEADING, strict=True))
        rounded = (size >> shift << shift for size, shift in zip(fitting, shifts, strict=True))
        return Sizes(*(max(fewest, min(most, size)) for size, fewest, most in zip(rounded, FEWEST, MOST, strict=True)))


def with_sizes(prepared: Prepared, world: World | None = None) -> Prepared:
    """``prepared`` with numbers in place of `auto`: rank 0's, for the smallest memory of any rank."""
    world, config = world or World(), prepared.config
    if config.with_sizes(CPU_SIZES) == config:
        return prepared
    smallest = -world.largest(-(total_bytes(prepared.device) or 0))
    machine = 0 if smallest else machine_bytes() or 0

    def fitting() -> Sizes:
        if smallest:
            return Estimate.of(prepared).sizes(smallest - prepared.reward.device_bytes(prepared.device.type))
        if not machine:
            return CPU_SIZES
        tokens = Estimate.of(prepared).sizes(machine // prepared.launch.size).microbatch_tokens
        return CPU_SIZES._replace(microbatch_tokens=min(CPU_SIZES.microbatch_tokens, tokens))

    sizes = world.from_first(fitting, "the sizes of the run")
    given = dict(leaves(config.model_dump()))
    chosen = ", ".join(f"{key}={size}" for key, size in zip(SIZE_KEYS, sizes, strict=True) if given[key] == "auto")
    memory = f"{size_text(smallest)} of GPU memory" if smallest else f"{size_text(machine)} of memory"
    origin = f"for {memory}" if smallest or machine else "as on every CPU"
    return replace(prepared, config=config.with_sizes(sizes), sizes_note=f"in place of auto, {origin}: {chosen}")
