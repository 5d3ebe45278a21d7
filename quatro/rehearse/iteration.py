"""`quatro train --rehearse CARD`: one iteration of a configuration on a card that is not there, and what it takes.

Weights and activations have no memory behind them, so a model of any size takes a minute. What repeats itself is run
once or twice and multiplied: a decoding step at the first and at the last token, a pass over a micro-batch, an
optimiser step over one and over two of them. All responses have one length, and all prompts.
"""

# Axes: S slots of the KV cache.
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from evals.errors import QuatroError
from quatro.config import Config
from quatro.config.blocks import SIZE_KEYS
from quatro.launch.describe import Estimate
from quatro.loop.learn import make_objective
from quatro.policy import lora
from quatro.policy.device import PREFILL_TOKENS, USED_SHARE, find_device
from quatro.policy.facts import context_limit
from quatro.policy.kinds import make_policy
from quatro.policy.loading import shape_of, tokenizer_of
from quatro.policy.rows import Rows, collate
from quatro.policy.torch_policy import TorchPolicy
from quatro.processes.world import World
from quatro.registry import ENGINES
from quatro.rehearse.device import Card, Device, Phase
from quatro.rehearse.pretended import pretended_gpu
from quatro.rollout.decoding import SlotModel
from quatro.rollout.kv_cache import PreallocatedCache
from quatro.rollout.prompts import load_sources, tokenize_problems
from quatro.rollout.sampling import draw_rows
from quatro.types import Prompt, Rollout, Sampling


class Part(NamedTuple):
    """What a phase of an iteration takes: ``seconds``, those of its host, of moving and of multiplying, and memory."""

    name: str
    seconds: float
    calling_s: float
    moving_s: float
    multiplying_s: float
    peak: int

    @classmethod
    def of(cls, name: str, card: Card, *measured: tuple[Phase, float]) -> Self:
        """The sum of phases, each of which happens so many times."""
        found = cls(name, 0.0, 0.0, 0.0, 0.0, max(phase.peak for phase, _ in measured))
        for phase, times in measured:
            calling_s = phase.kernels * card.call_s + phase.waits.total() * card.wait_s
            found = found._replace(
                seconds=found.seconds + times * phase.seconds,
                calling_s=found.calling_s + times * calling_s,
                moving_s=found.moving_s + times * phase.moving_s,
                multiplying_s=found.multiplying_s + times * phase.multiplying_s,
            )
        return found

    @property
    def limit(self) -> str:
        """What its time is, for a person."""
        if self.calling_s > self.moving_s + self.multiplying_s:
            return "the host, which calls more slowly than the card computes"
        share = self.moving_s / (self.moving_s + self.multiplying_s)
        return f"moving numbers {share:.0%}, products {1 - share:.0%}"


@dataclass(frozen=True)
class Rehearsal:
    """The ``parts`` of an iteration on ``card``, and in ``lines`` whether it fits, and what it was and hangs on."""

    card: Card
    parts: list[Part]
    lines: list[str]

    @property
    def title(self) -> str:
        return f"one iteration on {self.card.name}, by estimate"

    @property
    def rows(self) -> list[tuple[str, float, float, str]]:
        """For a table: phase, seconds, GiB, and what the time is; the last row is the iteration."""
        found = [(one.name, one.seconds, one.peak / 2**30, one.limit) for one in self.parts]
        return [*found, ("in all", sum(row[1] for row in found), max(row[2] for row in found), "")]

    @property
    def document(self) -> dict[str, Any]:
        """For `--json`; seconds and bytes."""
        parts = {one.name: {**one._asdict(), "limit": one.limit} for one in self.parts}
        return {"schema": 1, "card": vars(self.card), "phases": parts, "notes": self.lines}


def rehearse(config: Config, card: Card, lengths: Mapping[str, int]) -> Rehearsal:
    """One iteration of ``config`` on ``card``.

    ``lengths`` are those of a prompt and of a response in tokens; by default the data's mean prompt, and responses that
    end at the limit.

    Raises MissingError or DataError if the model's configuration is not there, or cannot be read.
    """
    model = shape_of(config.model)
    prompt, longest, notes = _prompt_tokens(config, model, lengths)
    response = min(lengths.get("response", config.rollout.max_new_tokens), config.rollout.max_new_tokens)
    if config.policy.lora is not None:
        lora.attach(model, config.policy.lora, seed=config.seed)
    counts = model.num_parameters(), model.num_parameters(only_trainable=True)
    num_ranks = config.processes or 1
    estimate = Estimate(config, model.config, *counts, longest, torch.device("cuda"), num_ranks)
    estimate = replace(estimate, config=config.with_sizes(estimate.sizes(card.memory)))
    memory = estimate.memory(card.memory)
    fit = estimate.fit(memory, int(USED_SHARE * card.memory))
    config, engine, kind = estimate.config, config.rollout.engine, config.policy.kind
    if kind != "local":
        notes.append(
            f"policy.kind {kind} is not rehearsed: seconds are those of a whole policy on each rank, without exchange "
            "between ranks, and peaks are the dry run's"
        )
        local = config.policy.model_copy(update={"kind": "local", "offload_optimizer": False})
        config = config.model_copy(update={"policy": local})
    gpu = Device(card, hollow=True)
    with pretended_gpu(gpu):
        policy = make_policy(config, shape_of(config.model).float(), World(), None, device=find_device("cuda"))
        stage = Stage(gpu, config, policy, num_ranks, prompt, response)
        parts = list(stage.learning())
        if ENGINES[engine].shares_weights:
            parts.insert(0, stage.generating())
        else:
            notes.append(f"rollout.engine {engine} is not rehearsed: the seconds are those of learning alone")
    if kind != "local":
        parts = [one._replace(peak=memory.sampling if one.name == "generate" else memory.learning) for one in parts]
    sizes = ", ".join(f"{key}={size}" for key, size in zip(SIZE_KEYS, config.sizes, strict=True))
    batch = (
        f"{-(-config.prompts_per_step // num_ranks)} prompts of {prompt} tokens with {config.rollouts_per_prompt} "
        f"responses of {response} each, {sizes}; rewards, dual and evaluation are left out"
    )
    return Rehearsal(card, parts, [f"{card.name}: {fit.line}", batch, *notes, card.line])


def _prompt_tokens(config: Config, model: Any, lengths: Mapping[str, int]) -> tuple[int, int, list[str]]:
    """Tokens of the prompts that are rehearsed and of the longest one, and what to say of them."""
    if "prompt" in lengths:
        return lengths["prompt"], lengths["prompt"], []
    try:
        tokenizer = tokenizer_of(config.model)
        limit = context_limit(model)
        found = tokenize_problems(load_sources(config.data), config.data, tokenizer, context_limit=limit).prompts
    except QuatroError as error:
        most = config.data.max_prompt_tokens
        return most, most, [f"prompts as long as may be stand in for the data ({error})"]
    tokens = [len(one.token_ids) for one in found]
    return round(sum(tokens) / len(tokens)), max(tokens), []


@dataclass(frozen=True)
class Stage:
    """The hollow ``policy`` of ``config`` on ``gpu``, and the share of an iteration that one of ``num_ranks`` has."""

    gpu: Device
    config: Config
    policy: TorchPolicy
    num_ranks: int
    prompt_tokens: int
    response_tokens: int

    @property
    def row_tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens

    def rows(self, num_rows: int) -> Rows:
        """That many rollouts, whose old and reference log-probabilities are known."""
        prompt = Prompt("rehearsal", "0", "", None, "", (2,) * self.prompt_tokens)
        group = [Rollout((2,) * self.response_tokens, "", "stop")] * num_rows
        rows = collate(
            [prompt], [group], torch.ones(num_rows), max_new_tokens=self.response_tokens, device=self.policy.device
        )
        known_BT = torch.zeros_like(rows.batch.old_logp_BT)
        return rows.with_batch(old_logp_BT=known_BT, ref_logp_BT=known_BT)

    def measured(self, name: str, work: Callable[..., object], *args: Any, **options: Any) -> Phase:
        """What ``work`` takes, from the moment that the device has nothing to do."""
        self.gpu.begin(name)
        work(*args, **options)
        return self.gpu.now

    def learning(self) -> Iterator[Part]:
        """Scoring, and the optimiser steps over minibatches of as many micro-batches as the configuration makes."""
        config, policy, card = self.config, self.policy, self.gpu.card
        of_minibatch = -(-config.minibatch_prompts // self.num_ranks) * config.rollouts_per_prompt
        fitting = min(of_minibatch, max(1, config.sizes.microbatch_tokens // self.row_tokens))
        num_minibatches = config.prompts_per_step // config.minibatch_prompts
        num_passes = -(-of_minibatch // fitting)  # over micro-batches, for each minibatch
        one, two = self.rows(fitting), self.rows(2 * fitting)
        objective = make_objective(config)

        def update(rows: Rows) -> None:
            policy.update(rows, objective, use_own_logp=True, need_entropy=False)

        self.measured("the first step", update, one)  # which makes the optimiser's moments
        step_of_one = self.measured("a step", update, one)
        step_of_two = self.measured("a step over two", update, two) if num_passes > 1 else step_of_one
        scored = self.measured("score", policy.score, one)
        again, is_float32, sampler = 0, config.dtype == "float32", config.needs_sampler
        if num_minibatches > 1 and sampler != "old_policy" and not (is_float32 and sampler is None):
            again = (num_minibatches - 1) * num_passes + 1  # `loop.progress.old_logp`
        knows_all = is_float32 or sampler is not None or ENGINES[config.rollout.engine].shares_weights
        if config.method.needs.old_logp and not knows_all:
            again += num_minibatches * num_passes  # `loop.draw.asked_of`
        if again:
            yield Part.of("old_logp", card, (scored, again))
        if policy.has_reference:
            referred = self.measured("ref_logp", policy.score, one, use_reference=True)
            yield Part.of("ref_logp", card, (referred, num_minibatches * num_passes))
        steps = num_minibatches * config.most_inner_updates
        yield Part.of("update", card, (step_of_two, steps * (num_passes - 1)), (step_of_one, steps * (2 - num_passes)))
        if audited := config.audit.prompts:
            share = 1.0 if audited == "all" else min(1.0, audited / config.prompts_per_step)
            yield Part.of("audit", card, (scored, share * num_minibatches * num_passes))

    def generating(self) -> Part:
        """All responses: as many rows as fit side by side, in whose places others follow, at their mean length."""
        sizes, group = self.config.sizes, self.config.rollouts_per_prompt
        num_rows = -(-self.config.prompts_per_step // self.num_ranks) * group
        at_once = min(num_rows, sizes.rows_at_once, max(1, sizes.cache_tokens // self.row_tokens))
        model = self.policy.sampling_model
        cache = PreallocatedCache(model.config.get_text_config().num_hidden_layers, at_once, self.row_tokens)
        together = min(-(-at_once // group), max(1, PREFILL_TOKENS["cuda"] // self.prompt_tokens))
        with torch.inference_mode(), self.policy.computing():
            slots = SlotModel(model, self.policy.device)
            prompts = [[2] * self.prompt_tokens] * together
            prefill = self.measured("prefill", slots.prefill, prompts, 0, cache)
            first = self.measured("first token", _token, slots, at_once, self.prompt_tokens, cache)
            last = self.measured("last token", _token, slots, at_once, self.row_tokens - 1, cache)
        times = num_rows / at_once * self.response_tokens / 2
        return Part.of("generate", self.gpu.card, (prefill, num_rows / group / together), (first, times), (last, times))


def _token(slots: SlotModel, num_slots: int, column: int, cache: PreallocatedCache) -> None:
    every = np.arange(num_slots)
    logits_SV = slots.append(np.full(num_slots, 2), np.full(num_slots, column), every, num_slots, cache)
    draw_rows(logits_SV, every, np.full(num_slots, 0.5), Sampling(), with_entropy=True)
