"""The source of log pi_old, and the loop of the K passes (`InnerProgress.steps_left`), which a stop can save."""

# Axes: B rows (rollouts), T response tokens.
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import torch
from torch import Tensor

from evals.errors import UsageError
from quatro import ops
from quatro.config import Config
from quatro.loop.trust_region import effective_sample_share, sequence_log_ratio, summarise
from quatro.policy.base import Policy, Update
from quatro.policy.rows import Rows
from quatro.processes.world import World, merge
from quatro.types import Metric

logger = logging.getLogger(__name__)

PLAIN = ("num_passes", "num_minibatches", "num_applied", "num_applied_before", "num_skipped", "is_done")
# Before an iteration's first optimiser step the policy IS pi_old. So the first minibatch takes log pi_old from its own
# detached forward pass: its log-ratios are exactly 0, and not noise that Adam would scale up to a full step. The
# minibatches after it need another source.
Source = Literal[
    "own",  # no other source: there is a single minibatch
    "engine",  # the sampler: in float32, if it agrees with the trainer to 1e-3 of the smallest advantage that matters
    "recompute",  # a forward pass of the trainer before the first optimiser step, in the micro-batches of the update
    "sampler",  # the sampler, of every minibatch, also where it disagrees with the trainer (`old_policy: sampler`)
]
FROM_ENGINE = ("engine", "sampler")


def old_logp(rows: Rows, source: Source | None, config: Config, policy: Policy) -> tuple[Source, Tensor]:
    """``(source, log pi_old of every token that it knows before the first optimiser step, NaN for the others)``.

    ``rows`` hold the engine's log-probabilities, NaN if it gave none. A ``source`` that is None is chosen, on the first
    batch and for the whole run.
    """
    batch, world = rows.batch, policy.world
    engine_logp_BT = batch.old_logp_BT
    lacks_any = bool(engine_logp_BT[batch.mask_BT].isnan().any())
    if config.needs_sampler and world.largest(lacks_any):
        raise UsageError(
            f"{config.needs_sampler} needs the log-probability of every token that was drawn, and engine "
            f"{config.rollout.engine!r} does not give them all; leave the key out, or take another engine"
        )
    if config.old_policy == "sampler":
        return "sampler", engine_logp_BT
    if source == "engine":
        return source, engine_logp_BT
    if source == "own" or (source is None and config.prompts_per_step == config.minibatch_prompts):
        return "own", torch.full_like(engine_logp_BT, torch.nan)
    logp_BT = _recomputed(rows, config, policy)
    if source is not None or config.dtype != "float32" or config.rollout.correction or world.largest(lacks_any):
        return "recompute", logp_BT
    is_known_BT = batch.mask_BT & logp_BT.isfinite()
    gap = world.gather(sequence_log_ratio(logp_BT, engine_logp_BT, is_known_BT)).abs().max().item()
    allowed = 1e-3 * math.sqrt(2.0 * (config.method.min_kl_radius or 0.01))
    is_close = gap < allowed
    logger.info(
        "log pi_old comes from the %s: sampler and trainer differ by at most %.1e nats per sequence (allowed: %.1e)",
        "sampler" if is_close else "trainer",
        gap,
        allowed,
    )
    return ("engine", engine_logp_BT) if is_close else ("recompute", logp_BT)


def _recomputed(rows: Rows, config: Config, policy: Policy) -> Tensor:
    """The trainer's log pi_old of every minibatch but the first, which needs none: it meets pi_old itself.

    Of the first there is one micro-batch, as the update will see it, in which `log_ratio/before` shows whether scoring
    and learning agree.
    """
    logp_BT = torch.full_like(rows.batch.old_logp_BT, torch.nan)
    first, *others = rows.minibatches(config.minibatch_prompts)
    micro = next(policy.microbatches(rows.select(first)))
    for index in (first[micro], *others):
        scored_BT = policy.score(rows.select(index)).logp_BT
        logp_BT[index, : scored_BT.shape[1]] = scored_BT
    return logp_BT


def mismatch(engine_logp_BT: Tensor, logp_BT: Tensor, mask_BT: Tensor, world: World | None = None) -> dict[str, float]:
    """Metrics of the difference per token between the sampler's and the trainer's log-probabilities.

    They are those of the rows that the sampler gave (the others are NaN there), and empty if it gave none.
    """
    known_BT = mask_BT & ~engine_logp_BT.isnan()
    difference = (world or World()).gather((logp_BT - engine_logp_BT)[known_BT].double())
    if difference.numel() == 0 or bool(difference.isnan().any()):
        return {}
    return {
        "mismatch/dlogp_abs_mean": difference.abs().mean().item(),
        "mismatch/dlogp_abs_max": difference.abs().max().item(),
        "mismatch/k3": (difference.exp() - difference - 1.0).mean().item(),
    }


@dataclass
class InnerProgress:
    """``num_passes`` passes and ``num_minibatches`` of the next one are done; other fields hold what they have shown.

    ``old_logp_BT`` is log pi_old of every token, ``entropy_BT`` the entropy at pi_old if the engine gave none; both
    are NaN where they are unknown. ``before`` holds metrics of the noise before the first optimiser step.
    """

    old_logp_BT: Tensor
    entropy_BT: Tensor
    num_passes: int = 0
    num_minibatches: int = 0
    num_applied: int = 0
    num_applied_before: int = 0  # before this pass
    num_skipped: int = 0
    is_done: bool = False  # no optimiser step is left
    merged: dict[str, Metric] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    grad_norms: list[float] = field(default_factory=list)
    ess_shares: list[float] = field(default_factory=list)

    @classmethod
    def begin(cls, old_logp_BT: Tensor) -> Self:
        """The progress before the first optimiser step; ``old_logp_BT`` is NaN where log pi_old is unknown."""
        is_known_BT = old_logp_BT.isfinite()
        return cls(old_logp_BT.where(is_known_BT, torch.nan), torch.full_like(old_logp_BT, torch.nan))

    def steps_left(
        self, minibatches: Sequence[Tensor], most_passes: int, is_enough: Callable[[], bool]
    ) -> Iterator[Tensor]:
        """The K passes: the rows of each minibatch that is still to be learnt from, pass after pass.

        A minibatch counts as done when the next one is asked for, so a minibatch that a stop interrupts is done again.
        After each pass ``is_enough()`` says whether it was the last; at most ``most_passes`` are made.
        """
        while not self.is_done:
            if self.num_minibatches == 0:
                self.num_applied_before = self.num_applied
            for index in minibatches[self.num_minibatches :]:
                yield index
                self.num_minibatches += 1
            self.num_passes, self.num_minibatches = self.num_passes + 1, 0
            self.is_done = is_enough() or self.num_passes == most_passes

    def note(
        self,
        update: Update,
        minibatch: Rows,
        index: Tensor,
        engine_logp_BT: Tensor,
        source: Source | None,
        world: World,
    ) -> None:
        """Keep what an optimiser step on the rows ``index`` has shown; log-probabilities of pi_old only if finite."""
        mask_BT, logp_BT, entropy_BT = minibatch.batch.mask_BT, update.forward.logp_BT, update.forward.entropy_BT
        width = logp_BT.shape[1]
        if not self.before:
            # Two sources of log pi_old should agree: what differs is numerical noise, a measure of health.
            given_BT = logp_BT if source == "own" else self.old_logp_BT[index, :width]
            noise_B = sequence_log_ratio(logp_BT, given_BT, mask_BT)
            # Of some rows the update's own is the only source.
            is_given_B = (given_BT.isfinite() | ~mask_BT).all(dim=-1)
            noise_B = noise_B[is_given_B] if bool(is_given_B.any()) else noise_B
            self.before = summarise(world.gather(noise_B), "log_ratio/before")
            if source in FROM_ENGINE:  # the trainer computes its own log pi_old of this minibatch only
                self.before |= mismatch(engine_logp_BT[index, :width], logp_BT, mask_BT, world)
        if self.num_applied == 0 and source != "sampler" and bool(logp_BT[mask_BT].isfinite().all()):
            self.old_logp_BT[index, :width] = logp_BT
        if entropy_BT is not None and bool(entropy_BT[mask_BT].isfinite().all()):
            self.entropy_BT[index, :width] = entropy_BT
        log_ratio_B = world.gather(sequence_log_ratio(logp_BT, self.old_logp_BT[index, :width], mask_BT))
        self.ess_shares.append(effective_sample_share(log_ratio_B))
        self.grad_norms.append(update.grad_norm)
        self.num_applied += int(update.is_applied)
        if update.is_finite:
            self.merged = merge(self.merged, update.metrics)
        else:
            self.num_skipped += 1

    def metrics(self, rows: Rows, world: World) -> dict[str, float]:
        """The metrics of all K passes, averaged over their optimiser steps."""
        finite_norms = [norm for norm in self.grad_norms if math.isfinite(norm)]
        metrics = world.reduce(self.merged) | self.before
        metrics |= {
            "grad/norm": sum(finite_norms) / len(finite_norms) if finite_norms else math.nan,
            "grad/norm_max": max(finite_norms, default=math.nan),
            "grad/skipped_steps": float(self.num_skipped),
            "grad/zero_steps": float(len(self.grad_norms) - self.num_skipped - self.num_applied),
            "optimizer_steps": float(self.num_applied),
            "inner/passes": float(self.num_passes),
            "staleness/steps_max": float(max(0, self.num_applied - 1)),
            "ratio/ess_share_min": min(filter(math.isfinite, self.ess_shares), default=math.nan),
        }
        if rows.batch.ref_logp_BT is not None:
            mask_BT = rows.batch.mask_BT
            difference_BT = torch.where(mask_BT, self.old_logp_BT - rows.batch.ref_logp_BT, 0.0)
            metrics["kl/reference"] = _token_mean(ops.k3(difference_BT), mask_BT, world)
        return metrics

    def entropy(self, mask_BT: Tensor, world: World) -> float:
        return _token_mean(self.entropy_BT, mask_BT, world)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)``; numbers are hexadecimal text, which keeps every bit, infinities and NaN.

        No tensor of a checkpoint holds NaN: a second tensor says where the first one is known.
        """
        tensors = dict[str, Tensor]()
        for name, value_BT in (("old_logp", self.old_logp_BT), ("entropy", self.entropy_BT)):
            tensors[name] = value_BT.nan_to_num(nan=0.0).cpu()
            tensors[f"{name}_is_known"] = value_BT.isfinite().cpu()
        return tensors, {
            **{name: getattr(self, name) for name in PLAIN},
            "merged": {name: [m.kind, _hex(m.value), _hex(m.count)] for name, m in self.merged.items()},
            "before": {name: _hex(value) for name, value in self.before.items()},
            "grad_norms": [_hex(value) for value in self.grad_norms],
            "ess_shares": [_hex(value) for value in self.ess_shares],
        }

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], device: torch.device) -> Self:
        def floats(values: list[str]) -> list[float]:
            return [float.fromhex(value) for value in values]

        def known(name: str) -> Tensor:
            return tensors[name].where(tensors[f"{name}_is_known"], torch.nan).to(device)

        return cls(
            old_logp_BT=known("old_logp"),
            entropy_BT=known("entropy"),
            merged={name: Metric(kind, *floats(values)) for name, (kind, *values) in plain["merged"].items()},
            before={name: float.fromhex(value) for name, value in plain["before"].items()},
            grad_norms=floats(plain["grad_norms"]),
            ess_shares=floats(plain["ess_shares"]),
            **{name: plain[name] for name in PLAIN},
        )


def _token_mean(value_BT: Tensor, mask_BT: Tensor, world: World) -> float:
    totals = world.sums({"value": ops.masked_sum(value_BT, mask_BT).sum(), "count": mask_BT.sum()})
    return totals["value"].item() / max(1, int(totals["count"]))


def _hex(value: float | Tensor) -> str:
    return float(value).hex()
