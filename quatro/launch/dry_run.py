"""Describes a run without starting it: the batch in words, the first prompt, the memory that it should need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quatro.config import Config, config_to_yaml
from quatro.launch.health import startup_warnings
from quatro.launch.prepare import Prepared
from quatro.policy.adapters import base_of
from quatro.policy.kinds import FLOAT32_BYTES, PolicyKind
from quatro.registry import ENGINES, POLICIES
from quatro.rollout.prompts import PromptSet
from quatro.types import Prompt

LOGIT_BYTES = 18  # per logit, measured over forward and backward: itself, its float32 copy, log-softmax, gradients
GIB = 1024**3
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

    @property
    def total(self) -> int:
        """What always stays, plus the larger of sampling and learning, which take turns."""
        always = self.weights + self.optimizer + self.reference + self.casts + self.snapshots
        return always + max(self.gradients + self.activations + self.logits, self.kv_cache)


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
    warnings: list[str]
    notes: list[str]

    @property
    def lines(self) -> list[str]:
        """The same as `document`, for a person."""
        prompt, memory = self.first_prompt, self.memory
        more = len(prompt.token_ids) - SHOWN_TOKENS
        ids = " ".join(map(str, prompt.token_ids[:SHOWN_TOKENS])) + (f" ... and {more} more" if more > 0 else "")
        skipped = f" ({self.num_skipped} left out as too long)" if self.num_skipped else ""
        parts = ", ".join(f"{name.replace('_', ' ')} {_size(value)}" for name, value in vars(memory).items())
        lines = ["# resolved configuration", self.config_yaml.rstrip(), ""]
        lines += ["# batch", *self.arithmetic, ""]
        lines += [f"# first of {self.num_prompts} prompts{skipped}: {prompt.id}, {len(prompt.token_ids)} tokens"]
        lines += [f"text: {prompt.text[:SHOWN_CHARACTERS]!r}", f"ids: {ids}", ""]
        lines += ["# model and predicted peak memory (an estimate)", self._parameters]
        lines += [f"{_size(memory.total)} at the peak: {parts}", ""]
        return [*lines, "# notes", *self.warnings, *self.notes]

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
            "notes": [*self.warnings, *self.notes],
        }


def describe(prepared: Prepared) -> DryRun:
    """All that a run checks and announces before its first iteration; loads no weights.

    Raises:
        MissingError: the device is not on this machine, or DeepSpeed or vLLM cannot be used on it.
        UsageError: vLLM does not support the model's attention heads.
        DataError: the prompts are empty, too long or cannot be graded.
    """
    config, device, num_ranks = prepared.config, prepared.device, prepared.launch.size
    prompts, model = prepared.prompts, prepared.shape
    _ = prepared.evaluation_prompts  # read here because they may be refused, too
    kind: type[PolicyKind] = POLICIES[config.policy.kind]
    kind.check_device(device)
    ENGINES[config.rollout.engine].check_model(model.config)
    if config.policy.lora is not None:
        from quatro.policy import lora

        lora.attach(model, config.policy.lora, seed=config.seed)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    num_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    notes = []
    if not prepared.is_there:
        notes.append(f"{config.model} is not in the cache yet: the run begins by making it, about a minute of one core")
    if (base := base_of(config.model)) != config.model:
        notes.append(f"{config.model} is an adapter: the run and its KL term begin with it merged into {base}")
    kept = "weights" if config.policy.lora is None else "the adapter's weights"
    masters = kind.masters.format(weights=kept)
    notes.append(f"device: {device.type}, computing in {config.dtype}, {masters}")
    return DryRun(
        config_yaml=config_to_yaml(config),
        arithmetic=batch_arithmetic(config, len(prompts.prompts), num_ranks),
        num_prompts=len(prompts.prompts),
        num_skipped=prompts.num_skipped,
        first_prompt=prompts.prompts[0],
        num_parameters=num_parameters,
        num_trained=num_trained,
        memory=predict_memory(config, model.config, num_parameters, prompts, num_ranks, num_trained=num_trained),
        warnings=startup_warnings(config),
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
        f"{config.microbatch_tokens} tokens",
        f"{config.steps} iterations = {config.steps * per_step * n} rollouts, {up_to}{config.steps * minibatches * k} "
        f"optimiser steps, {config.steps * per_step / num_prompts:.2f} passes over {num_prompts} prompts",
    ]
    if num_ranks > 1:
        fewest, most = config.minibatch_prompts // num_ranks, -(-config.minibatch_prompts // num_ranks)
        share = f"{most}" if fewest == most else f"{fewest} or {most}"
        lines.append(
            f"{num_ranks} ranks: each draws the responses to its share of the prompts and learns from {share} prompts "
            "of each minibatch; the gradients are those of one process"
        )
    if config.eval.every:
        lines.append(
            f"{config.eval.n} samples of each problem of {config.eval.benchmark} every {config.eval.every} iterations"
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
) -> Memory:
    """An estimate of the peak from first principles; fragmentation and the framework come on top.

    P parameters, D hidden, Q query and K key widths, M of the MLP, V vocabulary, L layers; tokens in a micro-batch.

        weights, gradients, reference   4 P each, AdamW 8 P; bfloat16: 2 P more of weights cast for the computation,
                                        and a reference of 2 P + 2 V D (its embedding stays in float32)
        snapshots                       4 P each for `inner_updates: auto` and `audit_rollouts`
        activations per token           L a + 8 D, a = 24 D + (2 Q + 2 K + 4 M) b with b bytes a number (4, or 2 and
                                        2 D more for the cast input); checkpointed: L 4 D + a + 8 D
        logits                          18 V for each response token of a chunk of the head, and its gradient, 4 V D
        kv_cache                        2 K b for each row, layer and token while sampling

    Each of several ranks holds its share of the rows, and under DeepSpeed its share of the optimiser (ZeRO-1), the
    gradients (2) and the weights (3). DeepSpeed keeps float32 masters beside weights in the format of the computation.

    With an adapter, only its ``num_trained`` parameters have gradients and moments, the others have the format of the
    computation, and the reference takes nothing.

    The coefficients of activations were measured on what autograd keeps for Qwen2; other families differ a little.
    """
    from quatro.policy.device import find_device
    from quatro.policy.head import chunk_rows
    from quatro.policy.loading import LOGIT_SCALES
    from quatro.rollout.transformers import MAX_BATCH_ROWS, MAX_BATCH_TOKENS

    number = FLOAT32_BYTES if config.dtype == "float32" else 2
    longest_prompt = max(len(prompt.token_ids) for prompt in prompts.prompts)
    longest = longest_prompt + config.rollout.max_new_tokens
    rows = -(-config.minibatch_prompts // num_ranks) * config.rollouts_per_prompt
    tokens = min(config.microbatch_tokens, rows * longest)
    layers, hidden, vocabulary = shape.num_hidden_layers, shape.hidden_size, shape.vocab_size
    mlp = getattr(shape, "intermediate_size", None) or 4 * hidden
    head_dim = getattr(shape, "head_dim", None) or hidden // shape.num_attention_heads
    queries = shape.num_attention_heads * head_dim
    keys = (getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads) * head_dim

    cast_input = 0 if number == FLOAT32_BYTES else number * hidden
    layer = 6 * FLOAT32_BYTES * hidden + cast_input + number * (2 * queries + 2 * keys + 4 * mlp)
    kept = FLOAT32_BYTES * hidden * layers + layer if config.policy.gradient_checkpointing else layer * layers
    activations = tokens * (kept + 2 * FLOAT32_BYTES * hidden)

    response_tokens = tokens * config.rollout.max_new_tokens // longest
    if not any(getattr(shape, name, None) for name in LOGIT_SCALES):
        response_tokens = min(response_tokens, chunk_rows(vocabulary, find_device(config.device)))
    head_gradient = FLOAT32_BYTES * vocabulary * hidden if config.policy.lora is None else 0
    logits = response_tokens * vocabulary * LOGIT_BYTES + head_gradient

    batch_rows = min(MAX_BATCH_ROWS, max(1, MAX_BATCH_TOKENS // longest))
    live_rows = min(batch_rows, -(-config.prompts_per_step // num_ranks) * config.rollouts_per_prompt)
    return Memory(
        **POLICIES[config.policy.kind].memory(
            config,
            num_parameters,
            num_trained or num_parameters,
            number,
            num_ranks=num_ranks,
            is_sampled=ENGINES[config.rollout.engine].shares_weights,
            num_embedded=vocabulary * hidden,
        ),
        activations=activations,
        logits=logits,
        kv_cache=live_rows * longest * layers * 2 * keys * number,
    )


def _size(num_bytes: int) -> str:
    if num_bytes >= GIB // 10:
        return f"{num_bytes / GIB:.1f} GiB"
    return f"{num_bytes / 1024**2:.1f} MiB"
