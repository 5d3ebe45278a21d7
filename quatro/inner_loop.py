"""The K passes of updates over one batch of rollouts, and where log pi_old comes from."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from evals.errors import DivergedError
from quatro.collate import Rows
from quatro.config import Config
from quatro.inner_progress import InnerProgress
from quatro.kl_budget import BudgetState, KlBudget
from quatro.methods.base import Method
from quatro.objective import make_objective
from quatro.policy.base import Objective, Policy, Update
from quatro.ranks import agree_to_stop
from quatro.stop import StopRequest
from quatro.trust_region import effective_sample_share, sequence_log_ratio, summarise
from quatro.world import World, merge

logger = logging.getLogger(__name__)

MAX_SKIPPED_IN_A_ROW = 10


class StoppedInside(Exception):
    """A stop was asked for between two optimiser steps; ``progress`` and ``budget`` are where the iteration stands."""

    def __init__(self, progress: InnerProgress, budget: BudgetState | None) -> None:
        super().__init__("stopped inside the inner loop")
        self.progress = progress
        self.budget = budget


@dataclass(frozen=True)
class InnerResult:
    """``entropy`` is the token mean at pi_old (K = 1: while learning); ``progress`` and ``budget`` how it came to that.

    `progress.old_logp_BT` is log pi_old of every token.
    """

    progress: InnerProgress
    budget: BudgetState | None
    entropy: float
    metrics: dict[str, float]


class InnerLoop:
    """``old_logp`` is where log pi_old comes from, decided on the first batch.

    Until an iteration's first optimiser step the policy IS pi_old, and a minibatch's own detached forward pass gives
    log pi_old exactly, in the very micro-batches of the update: log-ratios are 0, not noise that Adam would blow up to
    a full step. With a single minibatch that is all (`own`). The minibatches after it take the decoder's (`engine`),
    in float32 and if it agreed with the trainer's forward pass to 1e-3 of the smallest advantage that matters, else a
    forward pass of the trainer in the same micro-batches (`recompute`).
    """

    def __init__(
        self,
        config: Config,
        policy: Policy,
        *,
        dump_folder: Path,
        old_logp: str | None = None,
        num_skipped_in_a_row: int = 0,
    ) -> None:
        self.config = config
        self.policy = policy
        self.dump_folder = dump_folder
        self.old_logp = old_logp
        self.num_skipped_in_a_row = num_skipped_in_a_row

    def with_old_logp(self, rows: Rows) -> Rows:
        """``rows`` with log pi_old; those given hold the engine's, NaN where it had none."""
        if self.old_logp is None:
            self.old_logp = self._choose(rows)
        if self.old_logp == "recompute":
            logp_BT = torch.zeros_like(rows.batch.old_logp_BT)
            # The first minibatch meets pi_old itself and needs none: its difference is what `log_ratio/before` shows.
            for index in rows.minibatches(self.config.minibatch_prompts):
                scored_BT = self.policy.score(rows.select(index)).logp_BT
                logp_BT[index, : scored_BT.shape[1]] = scored_BT
            return rows.with_batch(old_logp_BT=logp_BT)
        if self.old_logp == "own":
            return rows.with_batch(old_logp_BT=torch.full_like(rows.batch.old_logp_BT, torch.nan))
        return rows

    def _choose(self, rows: Rows) -> str:
        config, batch = self.config, rows.batch
        if config.prompts_per_step == config.minibatch_prompts:
            return "own"
        world = self.policy.world
        if config.dtype != "float32" or world.any(bool(batch.old_logp_BT[batch.mask_BT].isnan().any())):
            return "recompute"
        own_logp_BT = self.policy.score(rows).logp_BT
        gap = world.gather(sequence_log_ratio(own_logp_BT, batch.old_logp_BT, batch.mask_BT)).abs().max().item()
        allowed = 1e-3 * math.sqrt(2.0 * (config.method.min_kl_radius or 0.01))
        choice = "engine" if gap < allowed else "recompute"
        logger.info(
            "log pi_old from the %s: sampler and trainer differ by at most %.1e nats a sequence (allowed %.1e)",
            *("sampler" if choice == "engine" else "trainer", gap, allowed),
        )
        return choice

    def run(
        self,
        step: int,
        method: Method,
        rows: Rows,
        engine_logp_BT: Tensor,
        *,
        need_entropy: bool,
        progress: InnerProgress | None = None,
        spent: BudgetState | None = None,
        stop: StopRequest | None = None,
    ) -> InnerResult:
        """Every optimiser step of iteration ``step``, with the ``method`` in force.

        ``need_entropy`` where the engine gave none. ``progress`` and ``spent``: go on from there. A ``stop`` of any
        rank ends it between two steps.

        Raises:
            DivergedError: a loss or gradient is not finite and `on_nonfinite` is `stop`.
            StoppedInside: ``stop`` was requested before the last step.
        """
        objective = make_objective(self.config, method)
        budget = self._budget(method, spent)
        progress = InnerProgress.begin(rows) if progress is None else progress
        rows = rows.with_batch(old_logp_BT=progress.old_logp_BT)
        minibatches = list(rows.minibatches(self.config.minibatch_prompts))
        for epoch in range(progress.epoch, 0 if progress.is_done else self.config.most_inner_updates):
            if progress.num_minibatches == 0:
                progress.num_applied_before = progress.num_applied
            for index in minibatches[progress.num_minibatches :]:
                # Before the first step there is nothing to save that the next start would not draw again.
                if stop is not None and progress.grad_norms and agree_to_stop(stop, self.policy.world):
                    raise StoppedInside(progress, None if budget is None else budget.state)
                self._take_step(step, rows.select(index), index, engine_logp_BT, objective, progress, need_entropy)
            progress.epoch, progress.num_minibatches = epoch + 1, 0
            # A pass without a step would be followed by more of its kind.
            if budget is not None and (progress.num_applied == progress.num_applied_before or budget.is_spent(rows)):
                break
        progress.is_done = 1
        metrics = progress.metrics(rows, self.policy.world)
        if self.old_logp != "engine":
            metrics |= mismatch(engine_logp_BT, progress.old_logp_BT, rows.batch.mask_BT, self.policy.world)
        if budget is not None:
            metrics |= budget.metrics
        entropy = progress.entropy(rows.batch.mask_BT, self.policy.world)
        return InnerResult(progress, None if budget is None else budget.state, entropy, metrics)

    def _take_step(
        self,
        step: int,
        minibatch: Rows,
        index: Tensor,
        engine_logp_BT: Tensor,
        objective: Objective,
        progress: InnerProgress,
        need_entropy: bool,
    ) -> None:
        """One optimiser step on the rows ``index``; what it shows goes into ``progress``."""
        mask_BT, world = minibatch.batch.mask_BT, self.policy.world
        is_old_policy = progress.num_applied == 0
        update = self.policy.update(
            minibatch, objective, use_own_logp=is_old_policy, need_entropy=need_entropy and progress.epoch == 0
        )
        logp_BT, width = update.forward.logp_BT, update.forward.logp_BT.shape[1]
        if not progress.before:
            # Anything but 0 between two sources of log pi_old is numerical noise: a measure of health.
            given_BT = logp_BT if self.old_logp == "own" else progress.old_logp_BT[index, :width]
            noise_B = world.gather(sequence_log_ratio(logp_BT, given_BT, mask_BT))
            progress.before = summarise(noise_B, "log_ratio/before")
            if self.old_logp == "engine":  # of the other minibatches the trainer never knows its own log pi_old
                progress.before |= mismatch(engine_logp_BT[index, :width], logp_BT, mask_BT, world)
        progress.record(index, update.forward, mask_BT, is_old_policy=is_old_policy)
        log_ratio_B = world.gather(sequence_log_ratio(logp_BT, progress.old_logp_BT[index, :width], mask_BT))
        progress.ess_shares.append(effective_sample_share(log_ratio_B))
        progress.grad_norms.append(update.grad_norm)
        progress.num_applied += update.is_applied
        progress.num_minibatches += 1
        if self._is_finite(step, update, minibatch):
            progress.merged = merge(progress.merged, update.metrics)
        else:
            progress.num_skipped += 1

    def _budget(self, method: Method, spent: BudgetState | None) -> KlBudget | None:
        if self.config.inner_updates != "auto":
            return None
        assert method.kl_radius is not None  # the configuration was refused otherwise
        return KlBudget(self.policy, method.kl_radius, spent)

    def _is_finite(self, step: int, update: Update, minibatch: Rows) -> bool:
        if update.is_finite:
            self.num_skipped_in_a_row = 0
            return True
        self.num_skipped_in_a_row += 1
        rank = "" if self.policy.world.is_first else f"-rank-{self.policy.world.rank}"
        dump = self.dump_folder / f"nonfinite-step-{step:06d}{rank}.pt"
        torch.save({"ids": minibatch.ids_BL, **vars(minibatch.batch)}, dump)
        if self.config.on_nonfinite == "skip" and self.num_skipped_in_a_row < MAX_SKIPPED_IN_A_ROW:
            logger.warning("iteration %d: loss or gradient not finite; step skipped, its batch is in %s", step, dump)
            return False
        raise DivergedError(
            f"iteration {step}: loss or gradient is not finite (gradient norm {update.grad_norm}); the step was not "
            f"applied and its batch is in {dump}. Begin a new run with a lower optimizer.lr, or with "
            "-s on_nonfinite=skip"
        )


def mismatch(engine_logp_BT: Tensor, logp_BT: Tensor, mask_BT: Tensor, world: World | None = None) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's, per token; empty if the sampler gave none."""
    difference = (world or World()).gather((logp_BT - engine_logp_BT)[mask_BT].double())
    if difference.numel() == 0 or bool(difference.isnan().any()):
        return {}
    return {
        "mismatch/dlogp_abs_mean": difference.abs().mean().item(),
        "mismatch/dlogp_abs_max": difference.abs().max().item(),
        "mismatch/k3": (difference.exp() - difference - 1.0).mean().item(),
    }
