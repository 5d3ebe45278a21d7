"""An engine of your own: it draws with min-p, a truncation that the engines of quatro do not have.

    quatro train quickstart -s rollout.engine=examples.own_engine:MinP -o runs/min-p
    quatro sample embedded:countdown -b countdown -n 16 --engine examples.own_engine:MinP -o samples/min-p

Min-p keeps the tokens that are at least MIN_P times as likely as the most likely one. Responses are drawn one at a
time, so that none depends on the others. That is simple, but slow for a large model.
"""

# Axes: V vocabulary.
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from evals.errors import UsageError
from quatro.policy.facts import context_limit, stop_ids
from quatro.policy.loading import load_model
from quatro.rollout.engine import Engine, EngineKind, Recipe, RolloutProgress, Seeds
from quatro.rollout.stops import ResponseTexts, response_limits
from quatro.types import Prompt, Rollout, Sampling

MIN_P = 0.05


class MinP(EngineKind):
    """The class that `rollout.engine` and `--engine` name: it checks settings and opens the engine."""

    shares_weights = True  # it draws from the policy's own tensors

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Any = None) -> Engine:
        if policy is not None:  # training: the weights are the policy's, and change with it
            return MinPEngine(policy.sampling_model, tokenizer, policy.computing)
        return MinPEngine(load_model(recipe.weights, getattr(torch, recipe.dtype), recipe.device), tokenizer)


class MinPEngine(Engine):
    """Draws from ``model``; ``computing`` is the context manager in which the policy computes."""

    def __init__(
        self, model: Any, tokenizer: Any, computing: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> None:
        self.model, self.tokenizer, self.computing = model, tokenizer, computing
        self.stop_ids = stop_ids(tokenizer, model)

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Nothing to do: the tensors are the policy's. An engine with weights of its own copies them here."""
        return {}

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        if sampling.top_p < 1 or sampling.top_k:
            raise UsageError("min-p takes the place of top_p and top_k; leave them at 1 and 0")
        limits = response_limits(prompts, sampling.max_new_tokens, context=context_limit(self.model))
        texts = ResponseTexts(self.tokenizer, sampling.stop)
        groups: list[list[Rollout]] = []
        num_drawn = num_tokens = 0
        for prompt, limit, prompt_seeds in zip(prompts, limits, seeds, strict=True):
            groups.append([])
            for seed in prompt_seeds:
                rollout = self._draw(prompt, limit, seed, sampling, texts)
                groups[-1].append(rollout)
                num_drawn, num_tokens = num_drawn + 1, num_tokens + len(rollout.token_ids)
                if progress is not None:
                    progress(num_drawn, num_tokens)  # a Ctrl-C takes effect here
        return groups

    @torch.no_grad()
    def _draw(self, prompt: Prompt, limit: int, seed: int, sampling: Sampling, texts: ResponseTexts) -> Rollout:
        generator = torch.Generator(self.model.device).manual_seed(seed)
        ids, logp, cache = list[int](), list[float](), None
        while len(ids) < limit:
            read = torch.tensor([ids[-1:] or prompt.token_ids], device=self.model.device)
            with self.computing():
                found = self.model(input_ids=read, past_key_values=cache, use_cache=True)
            cache = found.past_key_values
            logp_V = (found.logits[0, -1].float() / sampling.temperature).log_softmax(dim=-1)
            is_kept_V = logp_V >= logp_V.max() + math.log(MIN_P)
            drawn = int(torch.multinomial(logp_V.exp() * is_kept_V, 1, generator=generator))
            ids.append(drawn)
            logp.append(float(logp_V[drawn]))  # at the sampling temperature, before the truncation: the contract
            if drawn in self.stop_ids or (sampling.stop and texts.meets_stop(ids)):
                return Rollout(tuple(ids), texts.text(tuple(ids)), "stop", tuple(logp))
        return Rollout(tuple(ids), texts.text(tuple(ids)), "length", tuple(logp))
