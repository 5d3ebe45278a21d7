"""Describes a run without starting it: the batch in words, the first prompt, the memory that it should need.

A dry run also tries a reward of the user's own on what is made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evals.files.own_code import is_own
from evals.text import size_text, visible
from quatro.config import config_to_yaml
from quatro.launch.begin import Prepared
from quatro.launch.health import prompt_warnings, startup_warnings
from quatro.launch.memory import Estimate, Fit, Memory
from quatro.policy.device import free_bytes, total_bytes
from quatro.policy.model_files import base_of
from quatro.registry import ENGINES, POLICIES
from quatro.rewards import Grade
from quatro.types import Prompt, Rollout

SHOWN_TOKENS = 64
SHOWN_CHARACTERS = 600


@dataclass(frozen=True)
class DryRun:
    """What `describe` found; ``document`` is for programs, ``lines`` say the same to a person."""

    prepared: Prepared
    memory: Memory
    fit: Fit | None
    notes: list[str]

    @property
    def first_prompt(self) -> Prompt:
        return self.prepared.prompts.prompts[0]

    @property
    def lines(self) -> list[str]:
        prompts, prompt, memory = self.prepared.prompts, self.first_prompt, self.memory
        more = len(prompt.token_ids) - SHOWN_TOKENS
        ids = " ".join(map(str, prompt.token_ids[:SHOWN_TOKENS])) + (f" ... and {more} more" if more > 0 else "")
        skipped = f" ({prompts.num_skipped} left out as too long)" if prompts.num_skipped else ""
        parts = ", ".join(f"{name.replace('_', ' ')} {size_text(value)}" for name, value in vars(memory).items())
        count, trained = self.prepared.num_parameters, self.prepared.num_trained
        share = f", {trained:,} of them trained ({trained / count:.2%})" if trained != count else ""
        return [
            *("# resolved configuration", config_to_yaml(self.prepared.config).rstrip(), ""),
            *("# batch", *batch_arithmetic(self.prepared), ""),
            f"# first of {len(prompts.prompts)} prompts{skipped}: {prompt.id}, {len(prompt.token_ids)} tokens",
            *(f"text: {prompt.text[:SHOWN_CHARACTERS]!r}", f"ids: {ids}", ""),
            *("# model and predicted peak memory (an estimate)", f"{count:,} parameters{share}"),
            f"{size_text(memory.total)} at the peak: {parts}",
            *([self.fit.line] if self.fit else []),
            *("", "# notes", *self.notes),
        ]

    @property
    def document(self) -> dict[str, Any]:
        prepared, prompt = self.prepared, self.first_prompt
        return {
            "config": config_to_yaml(prepared.config),
            "arithmetic": batch_arithmetic(prepared),
            "prompts": {"count": len(prepared.prompts.prompts), "skipped": prepared.prompts.num_skipped},
            "first_prompt": {"id": prompt.id, "text": prompt.text, "token_ids": list(prompt.token_ids)},
            "parameters": prepared.num_parameters,
            "trained_parameters": prepared.num_trained,
            "memory_bytes": {**vars(self.memory), "total": self.memory.total},
            "fit": None if self.fit is None else vars(self.fit),
            "notes": self.notes,
        }


def describe(prepared: Prepared) -> DryRun:
    """What a run would announce, and the memory that it should need; loads no weights.

    Raises:
        QuatroError: the user's own reward does what a run would stumble over.
    """
    config, device = prepared.config, prepared.device
    warnings = [*startup_warnings(config), *prompt_warnings(config, len(prepared.prompts.prompts))]
    estimate = Estimate.of(prepared)
    memory = estimate.memory(total_bytes(device), prepared.reward.device_bytes(device.type))
    free = free_bytes(device)
    fit = None if free is None else estimate.fit(memory, free)
    return DryRun(prepared, memory, fit, [*warnings, *notes(prepared), *_try_reward(prepared)])


def notes(prepared: Prepared) -> list[str]:
    """What is worth knowing of a run before it begins."""
    config, device = prepared.config, prepared.device
    engine = ENGINES[config.rollout.engine]
    found = []
    if not prepared.is_there:
        found.append(f"{config.model} is not in the cache yet: the run begins by making it, about a minute of one core")
    if (base := base_of(config.model)) != config.model:
        found.append(f"{config.model} is an adapter: the run and its KL term begin with it merged into {base}")
    kept = "weights" if config.policy.lora is None else "the adapter's weights"
    masters = POLICIES[config.policy.kind].masters.format(weights=kept)
    found.append(f"device: {device.type}, computing in {config.dtype}, {masters}")
    found += prepared.prompts.notes
    if prepared.sizes_note:
        found.append(prepared.sizes_note)
    if prepared.reward.device_bytes(device.type) and not engine.shares_weights:
        found.append(
            f"engine {config.rollout.engine} takes its share of the device first (rollout.gpu_memory_utilization); the "
            "policy and the reward model must fit into the rest, or put the model elsewhere: device: cpu in its options"
        )
    return found


def batch_arithmetic(prepared: Prepared) -> list[str]:
    """The batch settings in words."""
    config, num_prompts, num_ranks = prepared.config, len(prepared.prompts.prompts), prepared.launch.size
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


def _try_reward(prepared: Prepared) -> list[str]:
    """What a reward with a user's own function gives an answer and an empty response, in a line; others give none.

    Raises:
        QuatroError: as `Reward.score`.
    """
    if not any(is_own(name) for name in prepared.config.reward.names):
        return []
    prompt = prepared.prompts.prompts[0]
    texts = [prompt.answer or "42", ""]
    groups = [[Rollout((0,) * max(1, len(text.split())), text, "stop") for text in texts]]
    (grades,) = prepared.reward.score([prompt], groups)
    first = f"the row's answer, {texts[0][:40]!a}," if prompt.answer else f"{texts[0]!a}"
    return [
        f"the reward was tried on two responses to {prompt.id!a} that no model wrote: {first} {_earned(grades[0])}, "
        f"and an empty one {_earned(grades[1])}"
    ]


def _earned(grade: Grade) -> str:
    """`earns 0.5 (correct, words 12)`: the reward, the verdict and what was logged, or why there is none."""
    verdict = [] if grade.correct is None else ["correct" if grade.correct else "not correct"]
    logged = [f"{name} {value:g}" for name, value in grade.logged.items()]
    more = [grade.error] if grade.error else [*verdict, *logged]
    said = f" ({', '.join(more)})" if more else ""
    return f"{'is dropped' if grade.is_dropped else f'earns {grade.reward:g}'}{visible(said)}"
