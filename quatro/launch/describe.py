"""Describes a run without starting it: the batch in words, the first prompt, the memory that it should need.

A dry run also tries a reward and an engine of the user's own on what is made up.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evals.errors import UsageError
from evals.files.own_code import file_of, is_own
from evals.text import size_text, visible
from quatro.config import Config, config_to_yaml, load_config
from quatro.launch.begin import Prepared
from quatro.launch.health import prompt_warnings, startup_warnings
from quatro.launch.memory import Estimate, Fit, Memory
from quatro.policy.device import free_bytes, total_bytes
from quatro.policy.embedded import make_model, make_tokenizer
from quatro.policy.loading import save_folder
from quatro.policy.local import LocalPolicy
from quatro.policy.model_files import base_of
from quatro.registry import ENGINES, POLICIES
from quatro.rewards import Grade
from quatro.rollout.engine import Engine, Recipe
from quatro.rollout.probe import policy_score
from quatro.tasks.countdown import CountdownWarmStart
from quatro.types import Prompt, Rollout, Sampling

SHOWN_TOKENS = 64
SHOWN_CHARACTERS = 600
TRIED_TOKENS, TRIED_SEEDS = 8, ((1, 2, 3), (4, 5, 6))
# Nats a token between an engine's log-probabilities and the policy's in float32; rounding explains less.
LARGEST_GAP = 1e-3


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
        QuatroError: the user's own reward or engine does what a run would stumble over.
    """
    config, device = prepared.config, prepared.device
    warnings = [*startup_warnings(config), *prompt_warnings(config, len(prepared.prompts.prompts))]
    tried = [*_try_reward(prepared), *_try_engine(config)]
    estimate = Estimate.of(prepared)
    memory = estimate.memory(total_bytes(device), prepared.reward.device_bytes(device.type))
    free = free_bytes(device)
    fit = None if free is None else estimate.fit(memory, free)
    return DryRun(prepared, memory, fit, [*warnings, *notes(prepared, tried)])


def notes(prepared: Prepared, tried: list[str] | None = None) -> list[str]:
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
    found += tried or []
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


def _try_engine(config: Config) -> list[str]:
    """What an engine of the user's own does with an untrained toy model, in a line; others give none.

    Raises:
        UsageError: its log-probabilities are not the policy's.
    """
    if not is_own(spec := config.rollout.engine):
        return []
    with tempfile.TemporaryDirectory(prefix="quatro-toy-") as folder, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        toy = CountdownWarmStart()
        model, tokenizer = make_model(toy), make_tokenizer(toy.max_positions)
        save_folder(model, Path(folder), tokenizer)
        settings = load_config("quickstart", overrides=[f"rollout.temperature={config.rollout.temperature}"])
        policy = LocalPolicy(model, settings)
        recipe = Recipe(spec, folder, dtype="float32", device="cpu", max_tokens=toy.max_positions)
        engine: Engine = ENGINES[spec].open(recipe, tokenizer, policy)
        try:
            for parameter in model.parameters():
                parameter.data.mul_(3.0)  # an engine with weights of its own has others until it takes these over
            engine.sync(policy.named_weights)
            return [_tried(spec, engine, policy, tokenizer, config)]
        finally:
            engine.close()


def _tried(spec: str, engine: Engine, policy: LocalPolicy, tokenizer: Any, config: Config) -> str:
    rollout = config.rollout
    sampling = Sampling(rollout.temperature, rollout.top_p, rollout.top_k, TRIED_TOKENS, config.stop)
    texts = ("7 2 7 6 2 8 -> 67", "1 2 3 4 5 6 -> 21")
    prompts = [Prompt("toy", text, text, text, text, tuple(tokenizer.encode(text))) for text in texts]
    groups = engine.generate(prompts, TRIED_SEEDS, sampling)
    score, known = policy_score(policy), "it gives no log-probabilities, so the trainer computes them"
    pairs = [(prompt, one) for prompt, group in zip(prompts, groups, strict=True) for one in group if one.logp]
    gaps = [abs(a - b) for prompt, one in pairs for a, b in zip(one.logp or (), score(prompt, one), strict=True)]
    if gaps and max(gaps) > LARGEST_GAP:
        raise UsageError(
            f"engine {spec!r} gives log-probabilities that differ from the policy's by up to {max(gaps):.2g} nats a "
            f"token; expected those at temperature {rollout.temperature:g} before any truncation, under the weights "
            f"that sync brought, or None. Look at {file_of(spec)}"
        )
    if gaps:
        known = f"its log-probabilities are the policy's to {max(gaps):.0e} nats"
    alone = [
        engine.generate([prompt], [seeds[:1]], sampling) for prompt, seeds in zip(prompts, TRIED_SEEDS, strict=True)
    ]
    is_same = all(one[0][0].token_ids == group[0].token_ids for one, group in zip(alone, groups, strict=True))
    again = "" if is_same else "; drawn alone, a seed gives another response, so a resume will not be exact"
    return f"engine {spec} drew {sum(map(len, groups))} responses from a toy model: {known}{again}"
