"""What the training loop asks of a policy, wherever its weights are: in this process, in shards, on another machine.

`torch_policy.py` is the policy whose model is here. A policy of the user's own, `policy.kind: module:Class`, derives
from `Policy`; `examples/own_policy.py` keeps its weights in another process.
"""

# Axes: B rows (rollouts), T response tokens.
import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evals.errors import UsageError
from quatro import ops
from quatro.policy.rows import Rows
from quatro.processes.world import World, merge
from quatro.types import Batch, Loss, Metric, Prompt

Objective = Callable[[Tensor, Batch, Tensor | None], Loss]  # of logp_BT, batch, entropy_BT or None


@dataclass(frozen=True)
class Forward:
    """``logp_BT`` of response tokens at the rollout temperature (0 in padding), ``entropy_BT`` at temperature 1."""

    logp_BT: Tensor
    entropy_BT: Tensor | None


@dataclass(frozen=True)
class Update:
    """One optimiser step: metrics of the loss, the gradient's norm before clipping, whether the step was taken.

    A step is not taken if a loss or gradient is not finite, or if the gradient is exactly zero: momentum alone would
    move the policy without any evidence. ``forward`` is the pass BEFORE the step, rows in the order given.
    """

    metrics: dict[str, Metric]
    grad_norm: float
    is_finite: bool
    is_applied: bool
    forward: Forward


class Policy(ABC):
    """The policy that learns.

    The loop keeps its rows and log-probabilities on ``device``; of several ranks (``world``) all call every method
    together. ``temperature`` is that of the rollouts.
    """

    is_sharded = False  # whether the ranks hold different parts of weights or optimiser
    world: World
    device: torch.device
    temperature: float
    has_reference: bool  # whether `score` can use the reference of the KL penalty
    context: int | None  # the most tokens that prompt and response may have together
    # A policy may call it inside `score` and `update` with the rows that are done and their number.
    on_rows: Callable[[int, int], object] = staticmethod(lambda done, total: None)

    @property
    @abstractmethod
    def lr(self) -> float:
        """Learning rate of the next optimiser step."""

    @abstractmethod
    def score(self, rows: Rows, *, need_entropy: bool = False, use_reference: bool = False) -> Forward:
        """Log-probabilities without gradient, in the micro-batches in which `update` will see the same rows."""

    @abstractmethod
    def update(self, rows: Rows, objective: Objective, *, use_own_logp: bool, need_entropy: bool) -> Update:
        """One optimiser step on all of ``rows``, micro-batch by micro-batch.

        Every loss term is divided by its weight over the whole minibatch and all ranks, so the gradient depends on
        neither micro-batch size nor world size. ``use_own_logp``: take this pass's own detached log-probabilities as
        the old ones, which is right as long as the policy still is pi_old. The metric ``logp_max`` is the largest
        log-probability of a token.

        Raises:
            DivergedError: a log-probability is above 0.
            MissingError: memory ran out in a pass over a single row.
        """

    @abstractmethod
    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight under its Hugging Face name, an adapter merged in, for engines that hold a copy.

        All ranks must call it and take every weight: where the weights are sharded, each is gathered as it is taken.
        """

    @abstractmethod
    def save_model(self, folder: Path, tokenizer: Any) -> None:
        """A plain Hugging Face folder, or that of an adapter; called by all ranks, written by the first."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)`` beside the weights: what a resume needs of optimiser and schedule."""

    @abstractmethod
    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from what `state` returned."""

    def snapshot(self) -> list[Tensor]:
        """A copy of the trained weights, for `inner_updates: auto`; UsageError where no second set of them is kept."""
        raise UsageError(
            f"{type(self).__name__} keeps no second set of weights, which inner_updates: auto needs; set inner_updates "
            "to a number, or use policy.kind local"
        )

    def scale_move(self, before: Sequence[Tensor], factor: float) -> None:
        """weights <- before + factor (weights - before), ``before`` a `snapshot`; factor 0 gives exactly ``before``."""
        self.snapshot()

    def check_head(self, prompts: Sequence[Prompt]) -> float:
        """Compares log-probabilities of ``prompts`` with the model's own logits; the largest difference in nats."""
        return 0.0

    def microbatches(self, rows: Rows) -> Iterator[Tensor]:
        """Row indices of each micro-batch of ``rows``."""
        yield torch.arange(len(rows), device=self.device)

    def peak_memory_bytes(self) -> int:
        """Most memory held so far: on the device, or by this process where the device is the CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        # Bytes on macOS, kilobytes elsewhere.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    # --- for the `update` of a subclass -----------------------------------------------------------------------------

    @torch.no_grad()
    def weight_sums(self, rows: Rows, objective: Objective) -> dict[str, Tensor]:
        """The weight of each loss term, summed over ``rows`` of all ranks.

        Weights never depend on the policy, so any log-probabilities serve to ask for them.
        """
        zeros_BT = torch.zeros(rows.batch.mask_BT.shape, dtype=torch.float32, device=self.device)
        terms = objective(zeros_BT, rows.with_batch(old_logp_BT=zeros_BT).batch, zeros_BT).terms
        return self.world.sums({term.name: term.weight.sum() for term in terms})


def total_loss(
    objective: Objective, forward: Forward, batch: Batch, weight_sums: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Metric]]:
    """The loss of one micro-batch, each term divided by its ``weight_sums``, and its metrics.

    Each term's own average, before its coefficient, is the metric ``loss/NAME``.
    """
    loss = objective(forward.logp_BT, batch, forward.entropy_BT)
    terms = {f"loss/{term.name}": ops.mean_of(term.value, term.weight) for term in loss.terms}
    return ops.total_loss(loss.terms, weight_sums), merge(dict(loss.metrics), terms)


def below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
