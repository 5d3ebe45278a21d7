"""What a run would do, without doing it: the batch in words, the first prompt, the memory it should need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quatro import warmstart
from quatro.config import Config, config_to_yaml
from quatro.data import PromptSet, load_prompts
from quatro.health import startup_warnings
from quatro.types import Prompt

FLOAT32_BYTES = 4
LOGIT_BYTES = 18  # measured, forward and backward: the logit, its float32 copy, log-softmax and gradients
GIB = 1024**3
SHOWN_TOKENS = 64
SHOWN_CHARACTERS = 600


@dataclass(frozen=True)
class Memory:
    """Bytes by purpose, as estimated from the architecture and the batch settings; ``total`` is the peak."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    logits: int
    kv_cache: int

    @property
    def total(self) -> int:
        """Sampling and learning take turns: the larger of the two stands beside what always stays."""
        always = self.weights + self.optimizer + self.reference
        return always + max(self.gradients + self.activations + self.logits, self.kv_cache)


@dataclass(frozen=True)
class DryRun:
    config_yaml: str
    arithmetic: list[str]
    num_prompts: int
    num_skipped: int
    first_prompt: Prompt
    num_parameters: int
    memory: Memory
    notes: list[str]

    @property
    def lines(self) -> list[str]:
        """The same as `document`, for a person."""
        prompt, memory = self.first_prompt, self.memory
        more = len(prompt.token_ids) - SHOWN_TOKENS
        ids = " ".join(map(str, prompt.token_ids[:SHOWN_TOKENS])) + (f" ... and {more} more" if more > 0 else "")
        skipped = f" ({self.num_skipped} left out as too long)" if self.num_skipped else ""
        parts = ", ".join(f"{name.replace('_', ' ')} {_size(value)}" for name, value in vars(memory).items())
        return [
            *("# resolved configuration", self.config_yaml.rstrip(), ""),
            *("# batch", *self.arithmetic, ""),
            f"# first of {self.num_prompts} prompts{skipped}: {prompt.id}, {len(prompt.token_ids)} tokens",
            f"text: {prompt.text[:SHOWN_CHARACTERS]!r}",
            *(f"ids: {ids}", ""),
            *("# model and predicted peak memory (an estimate)", f"{self.num_parameters:,} parameters"),
            *(f"{_size(memory.total)} at the peak: {parts}", ""),
            *("# notes", *self.notes),
        ]

    @property
    def document(self) -> dict[str, Any]:
        prompt = self.first_prompt
        return {
            "config": self.config_yaml,
            "arithmetic": self.arithmetic,
            "prompts": {"count": self.num_prompts, "skipped": self.num_skipped},
            "first_prompt": {"id": prompt.id, "text": prompt.text, "token_ids": list(prompt.token_ids)},
            "parameters": self.num_parameters,
            "memory_bytes": {**vars(self.memory), "total": self.memory.total},
            "notes": self.notes,
        }


def describe(config: Config) -> DryRun:
    """Everything a run checks and announces before its first step; loads the tokenizer and the data, no weights.

    Raises:
        MissingError: model, tokenizer or data are not on this machine.
        DataError: the prompts are empty, too long or unreadable.
    """
    from quatro.policy.loading import context_limit
    from quatro.setup import check_parts, find_device

    device = find_device(config.device)
    tokenizer, model = _tokenizer_and_shape(config)
    limit = context_limit(model)
    prompts = load_prompts(config.data, tokenizer, context_limit=limit)
    check_parts(config, prompts.prompts, tokenizer, context_limit=limit)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    notes = startup_warnings(config)
    if not warmstart.is_cached(config.model):
        notes.append(
            f"{config.model} is not in the cache yet: the run begins with its warm start, about a minute of one core"
        )
    notes.append(f"device: {device}, computing in {config.dtype}, weights kept in float32")
    return DryRun(
        config_yaml=config_to_yaml(config),
        arithmetic=batch_arithmetic(config, len(prompts.prompts)),
        num_prompts=len(prompts.prompts),
        num_skipped=prompts.num_skipped,
        first_prompt=prompts.prompts[0],
        num_parameters=num_parameters,
        memory=predict_memory(config, model.config, num_parameters, prompts),
        notes=notes,
    )


def batch_arithmetic(config: Config, num_prompts: int) -> list[str]:
    """The batch settings in words."""
    n, per_step, k = config.rollouts_per_prompt, config.prompts_per_step, config.inner_updates
    minibatches = per_step // config.minibatch_prompts
    lines = [
        f"1 iteration = {per_step} prompts x {n} rollouts = {per_step * n} rollouts of at most "
        f"{config.rollout.max_new_tokens} tokens",
        f"{minibatches} minibatch{'es' if minibatches > 1 else ''} of {config.minibatch_prompts} prompts x K={k} = "
        f"{minibatches * k} optimiser step{'s' if minibatches * k > 1 else ''} an iteration, each over "
        f"{config.minibatch_prompts * n} rollouts in micro-batches of at most {config.microbatch_tokens} tokens",
        f"{config.steps} iterations = {config.steps * per_step * n} rollouts, {config.steps * minibatches * k} "
        f"optimiser steps, {config.steps * per_step / num_prompts:.2f} passes over {num_prompts} prompts",
    ]
    if config.eval.every:
        lines.append(
            f"{config.eval.n} samples a problem of {config.eval.benchmark} every {config.eval.every} iterations"
        )
    return lines


def predict_memory(config: Config, shape: Any, num_parameters: int, prompts: PromptSet) -> Memory:
    """An estimate of the peak from first principles; fragmentation and the framework come on top."""
    from quatro.rollout.transformers import MAX_BATCH_ROWS, MAX_BATCH_TOKENS

    number = FLOAT32_BYTES if config.dtype == "float32" else 2
    weights = num_parameters * FLOAT32_BYTES
    longest_prompt = max(len(prompt.token_ids) for prompt in prompts.prompts)
    longest = longest_prompt + config.rollout.max_new_tokens
    rows = config.minibatch_prompts * config.rollouts_per_prompt
    tokens = min(config.microbatch_tokens, rows * longest)
    layers, hidden = shape.num_hidden_layers, shape.hidden_size
    mlp = getattr(shape, "intermediate_size", 4 * hidden)
    # Kept for the backward pass per token and layer: two norms, attention's four projections, the MLP's three.
    activations = tokens * layers * (10 * hidden + 4 * mlp) * number
    response_tokens = tokens * config.rollout.max_new_tokens // longest
    logits = response_tokens * shape.vocab_size * LOGIT_BYTES
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    head_dim = getattr(shape, "head_dim", None) or hidden // shape.num_attention_heads
    batch_rows = min(MAX_BATCH_ROWS, max(1, MAX_BATCH_TOKENS // longest))
    live_rows = min(batch_rows, config.prompts_per_step * config.rollouts_per_prompt)
    kv_cache = live_rows * longest * layers * 2 * heads * head_dim * number
    return Memory(
        weights=weights,
        gradients=weights,
        optimizer=2 * weights,
        reference=weights if config.kl.beta > 0 else 0,
        activations=activations,
        logits=logits,
        kv_cache=kv_cache,
    )


def _tokenizer_and_shape(config: Config) -> tuple[Any, Any]:
    """The tokenizer and the model without memory behind its weights."""
    import torch

    from quatro.policy.loading import load_shape, load_tokenizer

    if not warmstart.is_cached(config.model):
        recipe = warmstart.EMBEDDED[config.model]
        with torch.device("meta"):
            return warmstart.make_tokenizer(recipe.max_positions), warmstart.make_model(recipe)
    folder = warmstart.resolve_model(config.model)
    return load_tokenizer(folder), load_shape(folder)


def _size(num_bytes: int) -> str:
    if num_bytes >= GIB // 10:
        return f"{num_bytes / GIB:.1f} GiB"
    return f"{num_bytes / 1024**2:.1f} MiB"
