"""Tries a user's own reward and engine on what is made up: what a dry run says of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from evals.errors import UsageError
from evals.files.own_code import file_of, is_own
from evals.text import visible
from quatro.config import Config, load_config
from quatro.launch.prepare import Prepared
from quatro.policy.embedded import WarmStart, make_model
from quatro.policy.local import LocalPolicy, save_folder
from quatro.registry import ENGINES
from quatro.rewards import Grade
from quatro.rollout.engine import Engine, Recipe
from quatro.rollout.probe import policy_score
from quatro.types import Prompt, Rollout, Sampling

TRIED_TOKENS, TRIED_SEEDS = 8, ((1, 2, 3), (4, 5, 6))
# Nats a token between an engine's log-probabilities and the policy's in float32; rounding explains less.
LARGEST_GAP = 1e-3


def try_reward(prepared: Prepared) -> list[str]:
    """What a reward with a user's own function gives an answer and an empty response, in a line; others give none.

    Raises:
        QuatroError: as `Reward.score`.
    """
    if not any(is_own(name) for name in prepared.config.reward.names):
        return []
    prompt = prepared.prompts.prompts[0]
    texts = [prompt.answer or "42", ""]
    groups = [[Rollout((0,) * max(1, len(text.split())), text, "stop") for text in texts]]
    (grades,) = prepared.reward.score([prompt], groups).grades
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


def try_engine(config: Config) -> list[str]:
    """What an engine of the user's own does with an untrained toy model, in a line; others give none.

    Raises:
        UsageError: its log-probabilities are not the policy's.
    """
    if not is_own(spec := config.rollout.engine):
        return []
    with tempfile.TemporaryDirectory(prefix="quatro-toy-") as folder, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        toy = WarmStart()
        model, tokenizer = make_model(toy), toy.make_tokenizer()
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
