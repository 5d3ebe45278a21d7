"""An iteration that was stopped once it had rollouts: they and how far it had come, for a checkpoint.

Advantages, padding and reference log-probabilities follow from the rollouts and are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evals.errors import DataError
from quatro.checkpoint import below
from quatro.draw import Drawn
from quatro.inner_progress import InnerProgress
from quatro.kl_budget import BudgetState
from quatro.rewards import Scored
from quatro.types import Prompt, Rollout
from quatro.world import World


@dataclass(frozen=True)
class Inflight:
    """``learnt`` are the rollouts learnt from, ``drawn`` all of the iteration (the same unless a method filters).

    ``lr`` is the learning rate when the iteration began, ``snapshot`` pi_old's weights where a fresh audit needs them,
    ``budget`` what `inner_updates: auto` knows. ``progress`` is that of this rank; all else is the same on all ranks.
    """

    learnt: Drawn
    drawn: Drawn
    progress: InnerProgress
    lr: float
    snapshot: list[Tensor] = field(default_factory=list)
    budget: BudgetState | None = None

    def state(self, prompts: Sequence[Prompt], world: World) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)`` of all ranks; a prompt is its number among all ``prompts`` of the run."""
        number_of = {(prompt.benchmark, prompt.id): number for number, prompt in enumerate(prompts)}
        tensors, progress = dict[str, Tensor](), list[Any]()
        for rank, (more, plain_progress) in enumerate(world.gather_objects(self.progress.state(), "the position")):
            tensors |= {f"progress/{rank}/{name}": value for name, value in more.items()}
            progress.append(plain_progress)
        tensors |= {f"snapshot/{number:06d}": value for number, value in enumerate(self.snapshot)}
        plain: dict[str, Any] = {"lr": self.lr, "progress": progress}
        if self.budget is not None:
            tensors |= {f"budget/{number:06d}": value for number, value in enumerate(self.budget.before)}
            _, kl_before, num_checks, kept_share, is_reached = self.budget
            plain["budget"] = [kl_before.hex(), num_checks, kept_share.hex(), is_reached]
        parts = {"learnt": self.learnt} if self.drawn is self.learnt else {"learnt": self.learnt, "drawn": self.drawn}
        for name, drawn in parts.items():
            more, plain[name] = _drawn_state(drawn, number_of)
            tensors |= {f"{name}/{key}": value for key, value in more.items()}
        return tensors, plain

    @classmethod
    def from_state(
        cls,
        tensors: Mapping[str, Tensor],
        plain: Mapping[str, Any],
        prompts: Sequence[Prompt],
        device: torch.device,
        world: World,
    ) -> Inflight:
        """What `state` returned, for this rank.

        Raises:
            DataError: it was saved by another number of ranks.
        """
        then = len(plain["progress"])
        if then != world.size:
            raise DataError(
                f"the run was stopped inside an iteration of {then} process{'es' if then > 1 else ''}, each with its "
                f"prompts, and there {'are' if world.size > 1 else 'is'} {world.size}: start {then} to go on with it. "
                "Between two iterations their number may change, with policy.kind local"
            )
        learnt = _drawn(below(tensors, "learnt/"), plain["learnt"], prompts)
        drawn = _drawn(below(tensors, "drawn/"), plain["drawn"], prompts) if "drawn" in plain else learnt
        own = below(tensors, f"progress/{world.rank}/")
        progress = InnerProgress.from_state(own, plain["progress"][world.rank], device)
        snapshot, before = (
            [value.to(device) for _, value in sorted(below(tensors, prefix).items())]
            for prefix in ("snapshot/", "budget/")
        )
        budget = None
        if "budget" in plain:
            kl_before, num_checks, kept_share, is_reached = plain["budget"]
            budget = BudgetState(before, float.fromhex(kl_before), num_checks, float.fromhex(kept_share), is_reached)
        return cls(learnt, drawn, progress, plain["lr"], snapshot, budget)


def _drawn_state(drawn: Drawn, number_of: Mapping[tuple[str, str], int]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    rollouts = [rollout for group in drawn.groups for rollout in group]
    tensors = {
        "length": torch.tensor([len(rollout.token_ids) for rollout in rollouts]),
        "ids": torch.tensor([token for rollout in rollouts for token in rollout.token_ids]),
    }
    for name in ("logp", "entropy"):
        known = [getattr(rollout, name) for rollout in rollouts]
        if None not in known:
            tensors[name] = torch.tensor([number for numbers in known for number in numbers], dtype=torch.float64)
    scored = drawn.scored
    return tensors, {
        "prompts": [number_of[prompt.benchmark, prompt.id] for prompt in drawn.prompts],
        "group_sizes": [len(group) for group in drawn.groups],
        "texts": [rollout.text for rollout in rollouts],
        "finish_reasons": [rollout.finish_reason for rollout in rollouts],
        "rewards": scored.reward,
        "correct": scored.correct,
        "failures": [scored.num_errors, scored.num_timeouts],
    }


def _drawn(tensors: Mapping[str, Tensor], plain: Mapping[str, Any], prompts: Sequence[Prompt]) -> Drawn:
    lengths = tensors["length"].tolist()
    known = [_cut(tensors[name], lengths) if name in tensors else [None] * len(lengths) for name in ("logp", "entropy")]
    fields = (_cut(tensors["ids"], lengths), plain["texts"], plain["finish_reasons"], *known)
    rollouts = iter([Rollout(*values) for values in zip(*fields, strict=True)])
    return Drawn(
        [prompts[number] for number in plain["prompts"]],
        [[next(rollouts) for _ in range(size)] for size in plain["group_sizes"]],
        Scored(plain["rewards"], plain["correct"], *plain["failures"]),
    )


def _cut(values: Tensor, lengths: Sequence[int]) -> list[tuple[Any, ...]]:
    entries: Iterator[Any] = iter(values.tolist())
    return [tuple(next(entries) for _ in range(length)) for length in lengths]
