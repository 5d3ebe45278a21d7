"""Tries a user's own method, reward and engine on what is made up, so that a wrong one is refused before a run."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

import torch

from evals.errors import UsageError
from evals.files.own_code import file_of, is_own, line_of_own
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

TRIED_TOKENS, TRIED_SEEDS = 8, ((1, 2, 3), (4, 5, 6))
# Nats a token between an engine's log-probabilities and the policy's in float32; rounding explains less.
LARGEST_GAP = 1e-3
MADE_UP = "a made-up batch of 5 rows in mixed groups of 3 and 2"


def try_method(method: Method) -> list[str]:
    """Compute advantages and loss of a made-up batch with a method of the user's own, and say so; others give no line.

    Raises:
        UsageError: it raises, or returns something else than the trainer needs; names the file.
    """
    if type(method).__module__.startswith("quatro.methods."):
        return []
    reward_B, group_B = torch.tensor([1.0, 0.0, 0.5, 0.5, 0.0], dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0])
    found: Any = _called(method, "advantages", reward_B, group_B)
    if not isinstance(found, Advantages):
        raise _wrong(method, f"advantages gave a {type(found).__name__}; expected quatro.types.Advantages(value_B)")
    _check_values(method, found.value_B, reward_B.shape)
    mask_BT = torch.arange(3) < torch.tensor([3, 2, 1, 3, 2])[:, None]
    old_BT = torch.full(mask_BT.shape, -1.0)
    batch = Batch(old_BT, mask_BT, found.value_B, group_B, torch.tensor([3, 2, 3, 2, 3]), 3, ref_logp_BT=old_BT)
    loss: Any = _called(method, "loss", torch.full(mask_BT.shape, -1.1, requires_grad=True), batch)
    if not isinstance(loss, Loss):
        raise _wrong(method, f"loss gave a {type(loss).__name__}; expected quatro.types.Loss(terms)")
    if not isinstance(loss.terms, list | tuple) or not all(isinstance(term, LossTerm) for term in loss.terms):
        raise _wrong(method, f"the terms of loss are {loss.terms!r:.80}; expected a list of quatro.types.LossTerm")
    for term in loss.terms:
        _check_term(method, term, mask_BT.shape)
    if not any(term.value.requires_grad for term in loss.terms):
        raise _wrong(method, "loss gave terms without a gradient; expected a term that depends on logp_BT")
    return [f"method {_spec(method)}, {file_of(_spec(method))}: tried on {MADE_UP}"]


def _check_values(method: Method, value_B: Any, expected: torch.Size) -> None:
    if not isinstance(value_B, torch.Tensor):
        raise _wrong(method, f"value_B of the advantages is a {type(value_B).__name__}; expected a tensor")
    if value_B.shape != expected:
        raise _wrong(method, f"value_B of the advantages has shape {tuple(value_B.shape)}; expected {tuple(expected)}")
    if not bool(value_B.isfinite().all()):
        raise _wrong(method, f"value_B of the advantages is {value_B.tolist()}; expected finite numbers")


def _check_term(method: Method, term: LossTerm, shape_BT: torch.Size) -> None:
    for name, tensor in (("value", term.value), ("weight", term.weight)):
        if not isinstance(tensor, torch.Tensor):
            raise _wrong(method, f"{name} of the loss term {term.name} is a {type(tensor).__name__}; expected a tensor")
    if term.value.shape != term.weight.shape or term.value.shape not in (shape_BT, shape_BT[:1]):
        found = f"value {tuple(term.value.shape)} and weight {tuple(term.weight.shape)}"
        expected = f"one shape, {tuple(shape_BT[:1])} or {tuple(shape_BT)}"
        raise _wrong(method, f"the loss term {term.name} has shapes {found}; expected {expected}")


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


def _called(method: Method, name: str, *arguments: Any) -> Any:
    function = getattr(method, name)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        found, expected = (
            f"{name}({', '.join(inspect.signature(one).parameters)})" for one in (function, getattr(Method, name))
        )
        raise _wrong(method, f"it has {found}; expected {expected.replace('(self, ', '(')}") from None
    try:
        return function(*arguments)
    except Exception as error:  # whatever a user's own code does
        trace = error.__traceback__ and error.__traceback__.tb_next
        raise UsageError(
            f"method {_spec(method)} raised {type(error).__name__} in {name}: {error}\n"
            f"  {line_of_own(error.with_traceback(trace), _spec(method))}\n"
            f"It was tried on {MADE_UP}; groups may have any size, and their rows any order"
        ) from error


def _spec(method: Method) -> str:
    return f"{type(method).__module__}:{type(method).__name__}"


def _wrong(method: Method, said: str) -> UsageError:
    return UsageError(f"method {_spec(method)}, tried on {MADE_UP}: {said}. Look at {file_of(_spec(method))}")
