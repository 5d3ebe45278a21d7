"""An iteration that was stopped inside its inner loop: its rollouts and how far it had come, for a checkpoint.

Advantages, padding and reference log-probabilities follow from the rollouts and are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quatro.checkpoint import below
from quatro.draw import Drawn, draw
from quatro.inner_progress import InnerProgress
from quatro.rewards import Scored
from quatro.setup import Parts
from quatro.stop import StopRequest
from quatro.timing import PhaseTimer
from quatro.types import Prompt, Rollout


class Interrupted(Exception):
    """A stop ended an iteration before its last optimiser step; without ``inflight`` nothing of it is to be kept."""

    def __init__(self, inflight: Inflight | None = None) -> None:
        super().__init__("the iteration was stopped")
        self.inflight = inflight


@dataclass(frozen=True)
class Inflight:
    """``learnt`` are the rollouts learnt from, ``drawn`` all of the iteration (the same unless a method filters).

    ``lr`` is the learning rate when the iteration began, ``snapshot`` pi_old's weights where a fresh audit needs them.
    """

    learnt: Drawn
    drawn: Drawn
    progress: InnerProgress
    lr: float
    snapshot: list[Tensor] = field(default_factory=list)

    def state(self, prompts: Sequence[Prompt]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)``; a prompt is its number among all ``prompts`` of the run."""
        number_of = {(prompt.benchmark, prompt.id): number for number, prompt in enumerate(prompts)}
        tensors, progress = self.progress.state()
        tensors = {f"progress/{name}": value for name, value in tensors.items()}
        tensors |= {f"snapshot/{number:06d}": value for number, value in enumerate(self.snapshot)}
        plain: dict[str, Any] = {"lr": self.lr, "progress": progress}
        parts = {"learnt": self.learnt} if self.drawn is self.learnt else {"learnt": self.learnt, "drawn": self.drawn}
        for name, drawn in parts.items():
            more, plain[name] = _drawn_state(drawn, number_of)
            tensors |= {f"{name}/{key}": value for key, value in more.items()}
        return tensors, plain

    @classmethod
    def from_state(
        cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], prompts: Sequence[Prompt], device: torch.device
    ) -> Inflight:
        learnt = _drawn(below(tensors, "learnt/"), plain["learnt"], prompts)
        drawn = _drawn(below(tensors, "drawn/"), plain["drawn"], prompts) if "drawn" in plain else learnt
        progress = InnerProgress.from_state(below(tensors, "progress/"), plain["progress"], device)
        snapshot = [value.to(device) for _, value in sorted(below(tensors, "snapshot/").items())]
        return cls(learnt, drawn, progress, plain["lr"], snapshot)


def draw_or_stop(step: int, parts: Parts, timer: PhaseTimer, stop: StopRequest | None) -> tuple[Drawn, Drawn]:
    """As `draw`; a stop among the responses leaves prompts and engine as they were, so they are drawn again.

    Raises:
        Interrupted: ``stop`` was requested while responses were drawn.
    """
    if stop is None:
        return draw(step, parts, timer)
    position, engine = parts.stream.position, parts.engine.state()

    def check(num_rollouts: int, num_tokens: int) -> None:
        if stop.requested:
            raise Interrupted

    try:
        return draw(step, parts, timer, check)
    except Interrupted:
        parts.stream.position = position
        parts.engine.load_state(engine)
        raise


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
