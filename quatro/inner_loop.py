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
from quatro import ops
from quatro.collate import Rows
from quatro.config import Config
from quatro.objective import make_objective
from quatro.policy.local import LocalPolicy, Update
from quatro.trust_region import effective_sample_share, sequence_log_ratio, summarise
from quatro.types import Metric
from quatro.world import merge

logger = logging.getLogger(__name__)

MAX_SKIPPED_IN_A_ROW = 10


@dataclass(frozen=True)
class InnerResult:
    """``old_logp_BT`` is log pi_old of every token; ``entropy`` the token mean at pi_old (K = 1: while learning)."""

    old_logp_BT: Tensor
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

    def __init__(self, config: Config, policy: LocalPolicy, *, dump_folder: Path, old_logp: str | None = None) -> None:
        self.config = config
        self.policy = policy
        self.objective = make_objective(config)
        self.dump_folder = dump_folder
        self.old_logp = old_logp
        self._num_skipped_in_a_row = 0

    def with_old_logp(self, rows: Rows) -> Rows:
        """``rows`` with log pi_old; those given hold the engine's, NaN where it had none."""
        if self.old_logp is None:
            self.old_logp = self._choose(rows)
        if self.old_logp == "recompute":
            logp_BT = torch.zeros_like(rows.batch.old_logp_BT)
            # The first minibatch meets pi_old itself and needs none.
            for index in list(rows.minibatches(self.config.minibatch_prompts))[1:]:
                scored_BT = self.policy.score(rows.select(index)).logp_BT
                logp_BT[index, : scored_BT.shape[1]] = scored_BT
            return rows.with_batch(old_logp_BT=logp_BT)
        if self.old_logp == "own":
            return rows.with_batch(old_logp_BT=torch.zeros_like(rows.batch.old_logp_BT))
        return rows

    def _choose(self, rows: Rows) -> str:
        config, batch = self.config, rows.batch
        if config.prompts_per_step == config.minibatch_prompts:
            return "own"
        if config.dtype != "float32" or bool(batch.old_logp_BT[batch.mask_BT].isnan().any()):
            return "recompute"
        own_logp_BT = self.policy.score(rows).logp_BT
        gap = sequence_log_ratio(own_logp_BT, batch.old_logp_BT, batch.mask_BT).abs().max().item()
        allowed = 1e-3 * math.sqrt(2.0 * (config.method.kl_radius or 0.01))
        choice = "engine" if gap < allowed else "recompute"
        logger.info(
            "log pi_old from the %s: sampler and trainer differ by at most %.1e nats a sequence (allowed %.1e)",
            *("sampler" if choice == "engine" else "trainer", gap, allowed),
        )
        return choice

    def run(self, step: int, rows: Rows, engine_logp_BT: Tensor, *, need_entropy: bool) -> InnerResult:
        """Every optimiser step of iteration ``step``; ``need_entropy`` where the engine gave none.

        Raises:
            DivergedError: a loss or gradient is not finite and `on_nonfinite` is `stop`.
        """
        merged: dict[str, Metric] = {}
        before: dict[str, float] = {}
        grad_norms: list[float] = []
        ess_shares: list[float] = []
        num_applied = num_skipped = 0
        old_logp_BT = rows.batch.old_logp_BT.clone()
        rows = rows.with_batch(old_logp_BT=old_logp_BT)
        entropy_BT = torch.zeros_like(old_logp_BT)
        for epoch in range(self.config.inner_updates):
            for index in rows.minibatches(self.config.minibatch_prompts):
                minibatch = rows.select(index)
                is_old_policy = num_applied == 0
                update = self.policy.update(
                    minibatch, self.objective, use_own_logp=is_old_policy, need_entropy=need_entropy and epoch == 0
                )
                logp_BT, width = update.forward.logp_BT, update.forward.logp_BT.shape[1]
                if update.forward.entropy_BT is not None:
                    entropy_BT[index, :width] = update.forward.entropy_BT
                if not before:
                    # Anything but 0 between two sources of log pi_old is numerical noise: a measure of health.
                    given_BT = old_logp_BT[index, :width] if self.old_logp == "engine" else logp_BT
                    noise_B = sequence_log_ratio(logp_BT, given_BT, minibatch.batch.mask_BT)
                    before = summarise(noise_B, "log_ratio/before")
                    before |= mismatch(engine_logp_BT[index, :width], logp_BT, minibatch.batch.mask_BT)
                if is_old_policy:
                    old_logp_BT[index, :width] = logp_BT
                log_ratio_B = sequence_log_ratio(logp_BT, old_logp_BT[index, :width], minibatch.batch.mask_BT)
                ess_shares.append(effective_sample_share(log_ratio_B))
                grad_norms.append(update.grad_norm)
                num_applied += update.is_applied
                if self._is_finite(step, update, minibatch):
                    merged = merge(merged, update.metrics)
                else:
                    num_skipped += 1
        mask_BT = rows.batch.mask_BT
        num_tokens = max(1, int(mask_BT.sum()))
        finite_norms = [norm for norm in grad_norms if math.isfinite(norm)]
        metrics = self.policy.world.reduce(merged) | before
        metrics |= {
            "grad/norm": sum(finite_norms) / len(finite_norms) if finite_norms else math.nan,
            "grad/norm_max": max(grad_norms),
            "grad/skipped_steps": float(num_skipped),
            "grad/zero_steps": float(len(grad_norms) - num_skipped - num_applied),
            "optimizer_steps": float(num_applied),
            "staleness/steps_max": float(max(0, num_applied - 1)),
            "ratio/ess_share_min": min(ess_shares),
        }
        if rows.batch.ref_logp_BT is not None:
            difference_BT = torch.where(mask_BT, old_logp_BT - rows.batch.ref_logp_BT, 0.0)
            metrics["kl/reference"] = ops.masked_sum(ops.k3(difference_BT), mask_BT).sum().item() / num_tokens
        entropy = ops.masked_sum(entropy_BT, mask_BT).sum().item() / num_tokens
        return InnerResult(old_logp_BT, entropy, metrics)

    def _is_finite(self, step: int, update: Update, minibatch: Rows) -> bool:
        if update.is_finite:
            self._num_skipped_in_a_row = 0
            return True
        self._num_skipped_in_a_row += 1
        dump = self.dump_folder / f"nonfinite-step-{step:06d}.pt"
        torch.save({"ids": minibatch.ids_BL, **vars(minibatch.batch)}, dump)
        if self.config.on_nonfinite == "skip" and self._num_skipped_in_a_row < MAX_SKIPPED_IN_A_ROW:
            logger.warning("iteration %d: loss or gradient not finite; step skipped, its batch is in %s", step, dump)
            return False
        raise DivergedError(
            f"iteration {step}: loss or gradient is not finite (gradient norm {update.grad_norm}); the step was not "
            f"applied and its batch is in {dump}. Begin a new run with a lower optimizer.lr, or with "
            "-s on_nonfinite=skip"
        )


def mismatch(engine_logp_BT: Tensor, logp_BT: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's, per token; empty if the sampler gave none."""
    difference = (logp_BT - engine_logp_BT)[mask_BT].double()
    if difference.numel() == 0 or bool(difference.isnan().any()):
        return {}
    return {
        "mismatch/dlogp_abs_mean": difference.abs().mean().item(),
        "mismatch/dlogp_abs_max": difference.abs().max().item(),
        "mismatch/k3": (difference.exp() - difference - 1.0).mean().item(),
    }
