"""The K passes of updates over one batch of rollouts (paper, Alg. 1, line 9).

The loop over the passes is `InnerProgress.steps_left` in progress.py; what ends it early is in kl_budget.py.
"""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

import io
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evals.errors import DivergedError
from evals.files.whole import write_bytes
from quatro.loop.iteration import Iteration
from quatro.loop.kl_budget import KlBudget
from quatro.loop.nonfinite import why_not_finite
from quatro.loop.objective import make_objective
from quatro.loop.old_logp import Source, mismatch
from quatro.loop.parts import Parts
from quatro.loop.progress import InnerProgress
from quatro.loop.trust_region import effective_sample_share, sequence_log_ratio, summarise
from quatro.methods.base import Method
from quatro.policy.base import Update
from quatro.policy.rows import Rows
from quatro.processes.world import World, merge

logger = logging.getLogger(__name__)

MAX_SKIPPED_IN_A_ROW = 10


@dataclass
class Learner:
    """What learning keeps from one iteration to the next.

    ``source`` is the source of log pi_old (None until it is chosen). The last ``num_skipped`` optimiser steps were not
    finite; the batch of such a step is written into ``dump_folder``.
    """

    dump_folder: Path
    source: Source | None = None
    num_skipped: int = 0

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"source": self.source, "num_skipped": self.num_skipped}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        self.source, self.num_skipped = plain["source"], plain["num_skipped"]


def learn(it: Iteration, method: Method, rows: Rows, learner: Learner, parts: Parts) -> dict[str, float]:
    """Take every optimiser step of the iteration that is still to be taken, with the ``method`` in force.

    Returns the metrics of all its optimiser steps. ``rows`` hold the engine's log-probabilities; those of pi_old are
    in ``it.progress``, whose `steps_left` yields the minibatches of the K passes.

    Raises:
        DivergedError: a loss or gradient is not finite and `on_nonfinite` is `stop`.
        Stopped: a stop was requested before the last optimiser step.
    """
    config, policy, progress = parts.config, parts.policy, it.progress
    assert progress is not None
    engine_logp_BT, rows = rows.batch.old_logp_BT, rows.with_batch(old_logp_BT=progress.old_logp_BT)
    objective = make_objective(config, method)
    budget = _budget(it, method, parts)

    def is_enough() -> bool:
        # After a pass that changed nothing, every further pass would change nothing.
        return budget is not None and (progress.num_applied == progress.num_applied_before or budget.is_spent(rows))

    minibatches = list(rows.minibatches(config.minibatch_prompts))
    for index in progress.steps_left(minibatches, config.most_inner_updates, is_enough):
        parts.stop.check()
        minibatch = rows.select(index)
        update = policy.update(
            minibatch,
            objective,
            use_own_logp=progress.num_applied == 0,
            need_entropy=it.needs_entropy and progress.num_passes == 0,
        )
        _note(progress, update, minibatch, index, engine_logp_BT, learner.source, policy.world)
        _refuse_non_finite(it, method, update, index, minibatch, learner, parts)

    metrics = progress.metrics(rows, policy.world)
    if learner.source != "engine":
        metrics |= mismatch(engine_logp_BT, progress.old_logp_BT, rows.batch.mask_BT, policy.world)
    if budget is not None:
        metrics |= budget.metrics
    if it.needs_entropy:
        metrics["entropy/token_mean"] = progress.entropy(rows.batch.mask_BT, policy.world)
    return metrics


def _budget(it: Iteration, method: Method, parts: Parts) -> KlBudget | None:
    if parts.config.inner_updates != "auto":
        return None
    assert method.kl_radius is not None  # the configuration was refused otherwise
    budget = KlBudget(parts.policy, method.kl_radius, it.budget)
    it.budget = budget.state
    return budget


def _note(
    progress: InnerProgress,
    update: Update,
    minibatch: Rows,
    index: Tensor,
    engine_logp_BT: Tensor,
    source: Source | None,
    world: World,
) -> None:
    """Record in ``progress`` what one optimiser step on the rows ``index`` has shown."""
    mask_BT, logp_BT = minibatch.batch.mask_BT, update.forward.logp_BT
    width = logp_BT.shape[1]
    if not progress.before:
        # Two sources of log pi_old should agree: what differs is numerical noise, a measure of health.
        given_BT = logp_BT if source == "own" else progress.old_logp_BT[index, :width]
        noise_B = sequence_log_ratio(logp_BT, given_BT, mask_BT)
        is_given_B = (given_BT.isfinite() | ~mask_BT).all(dim=-1)  # of some rows the update's own is the only source
        noise_B = noise_B[is_given_B] if bool(is_given_B.any()) else noise_B
        progress.before = summarise(world.gather(noise_B), "log_ratio/before")
        if source == "engine":  # the trainer computes its own log pi_old of this minibatch only
            progress.before |= mismatch(engine_logp_BT[index, :width], logp_BT, mask_BT, world)
    progress.record(index, update.forward, mask_BT, is_old_policy=progress.num_applied == 0)
    log_ratio_B = world.gather(sequence_log_ratio(logp_BT, progress.old_logp_BT[index, :width], mask_BT))
    progress.ess_shares.append(effective_sample_share(log_ratio_B))
    progress.grad_norms.append(update.grad_norm)
    progress.num_applied += int(update.is_applied)
    if update.is_finite:
        progress.merged = merge(progress.merged, update.metrics)
    else:
        progress.num_skipped += 1


def _refuse_non_finite(
    it: Iteration, method: Method, update: Update, index: Tensor, minibatch: Rows, learner: Learner, parts: Parts
) -> None:
    if update.is_finite:
        learner.num_skipped = 0
        return
    learner.num_skipped += 1
    batch = _saved_batch(it, minibatch, learner, parts.policy.world)
    why = why_not_finite(it, method, index, minibatch, update.forward.logp_BT)
    said = f"iteration {it.step}: the loss or gradient is not finite{why}"
    if parts.config.on_nonfinite == "skip" and learner.num_skipped < MAX_SKIPPED_IN_A_ROW:
        logger.warning("%s; this optimiser step is skipped, and %s", said, batch)
        return
    if parts.config.on_nonfinite == "skip":
        said, advice = f"{said}, as in each of the last {learner.num_skipped} optimiser steps", ""
    else:
        advice = ", or with -s on_nonfinite=skip"
    raise DivergedError(
        f"{said}. The optimiser step was not taken (gradient norm {update.grad_norm}), and {batch}; "
        f"begin a new run with a lower optimizer.lr{advice}"
    )


def _saved_batch(it: Iteration, minibatch: Rows, learner: Learner, world: World) -> str:
    """Saves a batch that gave no finite step; says where it is, or why it is nowhere: that must not hide the step."""
    rank = "" if world.is_first else f"-rank-{world.rank}"
    path = learner.dump_folder / f"nonfinite-step-{it.step:06d}{rank}.pt"
    content = io.BytesIO()
    torch.save({"ids": minibatch.ids_BL, **vars(minibatch.batch)}, content)
    try:
        write_bytes(path, [content.getvalue()])
    except OSError as error:
        return f"its batch could not be saved ({error})"
    return f"its batch is in {path}"
