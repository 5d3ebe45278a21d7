"""The source of log pi_old, the old log-probabilities of an iteration's tokens."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

import logging
import math
from typing import Literal

import torch
from torch import Tensor

from quatro.config import Config
from quatro.loop.trust_region import sequence_log_ratio
from quatro.policy.base import Policy
from quatro.policy.rows import Rows
from quatro.processes.world import World

logger = logging.getLogger(__name__)

# Before an iteration's first optimiser step the policy IS pi_old. So the first minibatch takes log pi_old from its own
# detached forward pass: its log-ratios are exactly 0, and not noise that Adam would scale up to a full step. The
# minibatches after it need another source.
Source = Literal[
    "own",  # no other source: there is a single minibatch
    "engine",  # the sampler: in float32, if it agrees with the trainer to 1e-3 of the smallest advantage that matters
    "recompute",  # a forward pass of the trainer before the first optimiser step, in the micro-batches of the update
]


def old_logp(rows: Rows, source: Source | None, config: Config, policy: Policy) -> tuple[Source, Tensor]:
    """``(source, log pi_old of every token that it knows before the first optimiser step, NaN for the others)``.

    ``rows`` hold the engine's log-probabilities, NaN if it gave none. A ``source`` that is None is chosen, on the first
    batch and for the whole run.
    """
    batch, world = rows.batch, policy.world
    engine_logp_BT = batch.old_logp_BT
    if source == "engine":
        return source, engine_logp_BT
    if source == "own" or (source is None and config.prompts_per_step == config.minibatch_prompts):
        return "own", torch.full_like(engine_logp_BT, torch.nan)
    logp_BT = _recomputed(rows, config, policy)
    if source is not None or config.dtype != "float32":
        return "recompute", logp_BT
    if world.any(bool(engine_logp_BT[batch.mask_BT].isnan().any())):
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
