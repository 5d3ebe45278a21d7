"""Tries a user's own method and reward on a made-up batch, so that a wrong one is refused before a run begins."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from evals.errors import UsageError
from evals.files.own_code import is_own
from quatro.launch.prepare import Prepared
from quatro.methods.base import Method
from quatro.types import Advantages, Batch, Loss, LossTerm, Rollout

T = TypeVar("T")


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
    shown = [
        f"{text[:40]!a} {'is dropped' if grade.is_dropped else f'earns {grade.reward:g}'}"
        for text, grade in zip(texts, grades, strict=True)
    ]
    return [f"the reward of two made-up responses to {prompt.id!a}: {', '.join(shown)}"]


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
