"""Tries a user's own method, reward and engine on what is made up, so that a wrong one is refused before a run."""

from __future__ import annotations

import inspect
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from evals.errors import UsageError
from evals.files.own_code import file_of, is_own
from evals.text import visible
from quatro.config import Config, load_config
from quatro.launch.prepare import Prepared
from quatro.methods.base import Method
from quatro.policy.embedded import WarmStart, make_model
from quatro.policy.local import LocalPolicy, save_folder
from quatro.registry import ENGINES
from quatro.rewards import Grade
from quatro.rollout.engine import Engine, Recipe
from quatro.rollout.probe import policy_score
from quatro.types import Advantages, Batch, Loss, LossTerm, Prompt, Rollout, Sampling

T = TypeVar("T")
TRIED_TOKENS, TRIED_SEEDS = 8, ((1, 2, 3), (4, 5, 6))
# Nats a token between an engine's log-probabilities and the policy's in float32; rounding explains less.
LARGEST_GAP = 1e-3


def try_method(method: Method) -> None:
    """Compute advantages and loss of four rows in two groups with a method of the user's own; others pass.

    Raises:
        UsageError: it raises, or returns something else than the trainer needs; names the file.
    """
    if type(method).__module__.startswith("quatro.methods."):
        return
    reward_B, group_B = torch.tensor([1.0, 0.0, 0.5, 0.5], dtype=torch.float64), torch.tensor([0, 0, 1, 1])
    found: Any = _called(method, "advantages", lambda: method.advantages(reward_B, group_B))
    if not isinstance(found, Advantages) or not isinstance(found.value_B, torch.Tensor):
        raise _wrong(method, "advantages", found, "quatro.types.Advantages(value_B)")
    if found.value_B.shape != reward_B.shape or not bool(found.value_B.isfinite().all()):
        raise _wrong(method, "advantages", found.value_B, "one finite advantage for each of the 4 rewards")
    mask_BT = torch.tensor([[True, True, True], [True, True, False], [True, False, False], [True, True, True]])
    old_BT = torch.full(mask_BT.shape, -1.0)
    batch = Batch(old_BT, mask_BT, found.value_B, group_B, torch.tensor([2, 2, 2, 2]), 3, ref_logp_BT=old_BT)
    logp_BT = torch.full(mask_BT.shape, -1.1, requires_grad=True)
    loss: Any = _called(method, "loss", lambda: method.loss(logp_BT, batch))
    if not isinstance(loss, Loss) or not all(isinstance(term, LossTerm) for term in loss.terms):
        raise _wrong(method, "loss", loss, "quatro.types.Loss(terms), a list of LossTerm")
    for term in loss.terms:
        if term.value.shape != term.weight.shape or term.value.shape not in (mask_BT.shape, mask_BT.shape[:1]):
            shapes = f"{term.name}: value {tuple(term.value.shape)}, weight {tuple(term.weight.shape)}"
            raise _wrong(method, "loss", shapes, "value and weight of one shape, (B,) or (B, T)")
    if not any(term.value.requires_grad for term in loss.terms):
        raise _wrong(method, "loss", "terms without a gradient", "a term that depends on logp_BT")


def try_reward(prepared: Prepared) -> list[str]:
    """What a reward with a user's own function gives two made-up responses, in a line; others give none.

    Raises:
        QuatroError: as `Reward.score`.
    """
    if not any(is_own(name) for name in prepared.config.reward.names):
        return []
    prompt = prepared.prompts.prompts[0]
    texts = [prompt.answer or "42", ""]
    groups = [[Rollout((0,) * max(1, len(text.split())), text, "stop") for text in texts]]
    (grades,) = prepared.reward.score([prompt], groups).grades
    shown = [f"{text[:40]!a} {_earned(grade)}" for text, grade in zip(texts, grades, strict=True)]
    return [f"the reward of two made-up responses to {prompt.id!a}: {', '.join(shown)}"]


def _earned(grade: Grade) -> str:
    """`earns 0.5 (words 12)`: the reward and what was logged, or why there is none."""
    more = [grade.error] if grade.error else [f"{name} {value:g}" for name, value in grade.logged.items()]
    said = f" ({', '.join(more)})" if more else ""
    return f"{'is dropped' if grade.is_dropped else f'earns {grade.reward:g}'}{visible(said)}"


def try_engine(config: Config) -> list[str]:
    """What an engine of the user's own does with an untrained toy model, in a line; others give none.

    Raises:
        UsageError: its log-probabilities are not the policy's.
        QuatroError: as `OwnEngine.generate`.
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


def _called(method: Method, name: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:  # whatever a user's own code does
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"method {type(method).__name__} raised {type(error).__name__} in {name} on a made-up batch, at "
            f"{last.filename}:{last.lineno}: {error}"
        ) from error


def _wrong(method: Method, name: str, found: Any, expected: str) -> UsageError:
    file = inspect.getsourcefile(type(method)) or "its module"
    said = f"{name} gave {found!r:.200}; expected {expected}"
    return UsageError(f"method {type(method).__name__}: {said}. Look at {file}")
