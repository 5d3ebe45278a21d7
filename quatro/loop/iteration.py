"""What a stop saves of the iteration under way; the steps themselves are `iteration` in quatro/train.py.

It is filled as the loop proceeds and is consistent at every line, so a stop at any line saves it as it is. Advantages,
padding and reference log-probabilities follow from the rollouts; after a stop they are computed again.
"""

# Axes: B rows (rollouts).
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from evals.errors import DataError
from quatro.loop.draw import Drawn, Dropped, shaped_rewards
from quatro.loop.kl_budget import BudgetState
from quatro.loop.parts import Parts
from quatro.loop.progress import InnerProgress
from quatro.policy.base import below
from quatro.processes.world import World
from quatro.rewards import Grade, Scored
from quatro.types import Needs, Prompt, Rollout


@dataclass
class Iteration:
    """``learnt`` are the rollouts to learn from, ``drawn`` all rollouts; they differ if the method filters prompts.

    ``lr`` is the learning rate at the beginning, ``progress`` says how far learning has come on this rank (None: it
    has not begun), and ``budget`` belongs to `inner_updates: auto`. All but ``progress`` is the same on all ranks.
    """

    step: int
    learnt: Drawn
    drawn: Drawn
    lr: float
    progress: InnerProgress | None = None
    budget: BudgetState | None = None

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropy at pi_old must be computed, because the engine did not give it."""
        return self.learnt.groups[0][0].entropy is None

    def rewards(self, needs: Needs, max_new_tokens: int) -> tuple[Tensor, Tensor]:
        """``(reward_B, group_B)`` as `Method.advantages` gets them; rewards are float64."""
        rewards = shaped_rewards(self.learnt, needs, max_new_tokens)
        reward_B = torch.tensor([value for group in rewards for value in group], dtype=torch.float64)
        return reward_B, torch.arange(len(rewards)).repeat_interleave(torch.tensor([len(group) for group in rewards]))

    # --- saving -----------------------------------------------------------------------------------------------------

    def state(self, parts: Parts) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)`` of all ranks; a prompt is stored as its number among the prompts of the run."""
        number_of = {(prompt.benchmark, prompt.id): number for number, prompt in enumerate(parts.stream.prompts)}
        plain: dict[str, Any] = {"step": self.step, "lr": self.lr, "progress": []}
        tensors = dict[str, Tensor]()
        own = None if self.progress is None else self.progress.state()
        for rank, state in enumerate(parts.policy.world.gather_objects(own, "the position")):
            if state is not None:
                tensors |= {f"progress/{rank}/{name}": value for name, value in state[0].items()}
            plain["progress"].append(None if state is None else state[1])
        if self.budget is not None:
            more, plain["budget"] = self.budget.state()
            tensors |= {f"budget/{name}": value for name, value in more.items()}
        drawn = {"learnt": self.learnt} if self.drawn is self.learnt else {"learnt": self.learnt, "drawn": self.drawn}
        for name, part in drawn.items():
            more, plain[name] = _drawn_state(part, number_of)
            tensors |= {f"{name}/{key}": value for key, value in more.items()}
        return tensors, plain

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], parts: Parts) -> Iteration:
        """The iteration that `state` described, on this rank.

        Raises:
            DataError: another number of ranks saved it.
        """
        world, device, prompts = parts.policy.world, parts.policy.device, parts.stream.prompts
        _refuse_other_ranks(len(plain["progress"]), world)
        learnt = _drawn(below(tensors, "learnt/"), plain["learnt"], prompts)
        drawn = _drawn(below(tensors, "drawn/"), plain["drawn"], prompts) if "drawn" in plain else learnt
        it = cls(plain["step"], learnt, drawn, plain["lr"])
        progress = plain["progress"][world.rank]
        if progress is not None:
            it.progress = InnerProgress.from_state(below(tensors, f"progress/{world.rank}/"), progress, device)
        if "budget" in plain:
            it.budget = BudgetState.from_state(below(tensors, "budget/"), plain["budget"], device)
        return it


def _refuse_other_ranks(then: int, world: World) -> None:
    if then != world.size:
        raise DataError(
            f"the run was stopped inside an iteration of {then} process{'es' if then > 1 else ''}, and now there "
            f"{'are' if world.size > 1 else 'is'} {world.size}; start {then} to go on with it. Their number may change "
            "between two iterations only, and with policy.kind local"
        )


def _drawn_state(drawn: Drawn, number_of: Mapping[tuple[str, str], int]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    rollouts = [rollout for group in drawn.groups for rollout in group]
    tensors = {
        "length": torch.tensor([len(rollout.token_ids) for rollout in rollouts]),
        "ids": torch.tensor([token for rollout in rollouts for token in rollout.token_ids]),
    }
    for name in ("logp", "entropy"):
        if any(getattr(rollout, name) is not None for rollout in rollouts):
            numbers = [getattr(rollout, name) or [math.nan] * len(rollout.token_ids) for rollout in rollouts]
            tensors[name] = torch.tensor([number for some in numbers for number in some], dtype=torch.float64)
    scored = drawn.scored
    return tensors, {
        "prompts": [number_of[prompt.benchmark, prompt.id] for prompt in drawn.prompts],
        "group_sizes": [len(group) for group in drawn.groups],
        "texts": [rollout.text for rollout in rollouts],
        **({"thoughts": [one.thought for one in rollouts]} if any(one.thought for one in rollouts) else {}),
        "finish_reasons": [rollout.finish_reason for rollout in rollouts],
        "grades": [[_values(grade) for grade in group] for group in scored.grades],
        "dropped": [
            [
                [place, list(one.token_ids), one.text, one.finish_reason, _values(grade), *filter(None, [one.thought])]
                for place, one, grade in group
            ]
            for group in drawn.dropped
        ],
        "failures": [scored.num_errors, scored.num_timeouts],
    }


def _drawn(tensors: Mapping[str, Tensor], plain: Mapping[str, Any], prompts: Sequence[Prompt]) -> Drawn:
    lengths = tensors["length"].tolist()
    known = [_known(tensors.get(name), lengths) for name in ("logp", "entropy")]
    thoughts = plain.get("thoughts", [""] * len(lengths))
    columns = (_cut(tensors["ids"], lengths), plain["texts"], plain["finish_reasons"], *known, thoughts)
    rollouts = iter([Rollout(*values) for values in zip(*columns, strict=True)])
    return Drawn(
        [prompts[number] for number in plain["prompts"]],
        [[next(rollouts) for _ in range(size)] for size in plain["group_sizes"]],
        Scored([[Grade(*grade) for grade in group] for group in plain["grades"]], *plain["failures"]),
        [
            [
                Dropped(place, Rollout(tuple(ids), text, reason, None, None, *thought), Grade(*grade))
                for place, ids, text, reason, grade, *thought in group
            ]
            for group in plain.get("dropped", ())
        ],
    )


def _values(grade: Grade) -> list[Any]:
    return [getattr(grade, one.name) for one in fields(grade)]


def _known(values: Tensor | None, lengths: Sequence[int]) -> list[tuple[Any, ...] | None]:
    if values is None:
        return [None] * len(lengths)
    return [None if any(map(math.isnan, some)) else some for some in _cut(values, lengths)]


def _cut(values: Tensor, lengths: Sequence[int]) -> list[tuple[Any, ...]]:
    entries: Iterator[Any] = iter(values.tolist())
    return [tuple(next(entries) for _ in range(length)) for length in lengths]
