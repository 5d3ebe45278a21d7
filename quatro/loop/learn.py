"""The K passes of updates over one batch of rollouts (paper, Alg. 1, line 9), and the loss of a minibatch.

The loop over the passes is `InnerProgress.steps_left` in progress.py; what ends it early is in trust_region.py.
"""

# Axes: B rows (rollouts), T response tokens.

import io
import logging

import torch
from torch import Tensor

from evals.errors import DivergedError
from evals.files.own_code import place_of
from evals.files.whole import write_bytes
from quatro import ops
from quatro.config import Config
from quatro.loop.correction import correction_metrics, importance_weights, with_gradient_times
from quatro.loop.position import Iteration, Learner, Parts
from quatro.loop.progress import FROM_ENGINE, mismatch
from quatro.loop.trust_region import KlBudget
from quatro.methods.base import Method
from quatro.policy.base import Objective, Update
from quatro.policy.rows import Rows
from quatro.processes.world import World
from quatro.types import Batch, Loss

logger = logging.getLogger(__name__)

MAX_SKIPPED_IN_A_ROW = 10


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
    # `progress.note` fills this very tensor while the first optimiser step is still to come.
    engine_logp_BT, rows = rows.batch.old_logp_BT, rows.with_batch(old_logp_BT=progress.old_logp_BT)
    if (correction := config.rollout.correction) is not None:
        rows = rows.with_batch(sampler_logp_BT=engine_logp_BT)
    objective = make_objective(config, method)
    budget = None
    if config.inner_updates == "auto":
        assert method.kl_radius is not None  # the configuration was refused otherwise
        budget = KlBudget(policy, method.kl_radius, it.budget)
        it.budget = budget.state

    def is_enough() -> bool:
        # After a pass that changed nothing, every further pass would change nothing.
        return budget is not None and (progress.num_applied == progress.num_applied_before or budget.is_spent(rows))

    minibatches = list(rows.minibatches(config.minibatch_prompts))
    for index in progress.steps_left(minibatches, config.most_inner_updates, is_enough):
        parts.stop.check()
        parts.stopwatch.count(
            passes=(progress.num_passes + 1, config.most_inner_updates if budget is None else 0),
            minibatches=(progress.num_minibatches + 1, len(minibatches)),
        )
        minibatch = rows.select(index)
        update = policy.update(
            minibatch,
            objective,
            use_own_logp=progress.num_applied == 0 and learner.source != "sampler",
            need_entropy=it.needs_entropy and progress.num_passes == 0,
        )
        progress.note(update, minibatch, index, engine_logp_BT, learner.source, policy.world)
        _refuse_non_finite(it, method, update, index, minibatch, learner, parts)

    metrics = progress.metrics(rows, policy.world)
    if correction is not None:
        known = (progress.old_logp_BT, engine_logp_BT, rows.batch.mask_BT)
        metrics |= correction_metrics(correction, *known, policy.world)
    if learner.source not in FROM_ENGINE:
        metrics |= mismatch(engine_logp_BT, progress.old_logp_BT, rows.batch.mask_BT, policy.world)
    if budget is not None:
        metrics |= budget.metrics
    if it.needs_entropy:
        metrics["entropy/token_mean"] = progress.entropy(rows.batch.mask_BT, policy.world)
    return metrics


def make_objective(config: Config, method: Method | None = None) -> Objective:
    """``objective(logp_BT, batch, entropy_BT)`` of one iteration (paper, Eq. exact_tr_update_kl).

    ``method`` is the method in force; the default is the configured one. `quatro/methods/` holds each method's loss,
    and `tests/quatro/methods/` holds the tests of the losses.
    """
    method, kl, correction = method or config.method, config.kl, config.rollout.correction

    def objective(logp_BT: Tensor, batch: Batch, entropy_BT: Tensor | None) -> Loss:
        learnt_BT = logp_BT
        if correction is not None and batch.sampler_logp_BT is not None:
            known = (batch.old_logp_BT, batch.sampler_logp_BT, batch.mask_BT)
            learnt_BT = with_gradient_times(importance_weights(correction, *known)[0], logp_BT)
        loss = method.loss(learnt_BT, batch)
        terms = list(loss.terms)
        if kl.beta > 0:
            terms.append(ops.kl_term(logp_BT, batch, beta=kl.beta, estimator=kl.estimator, how=kl.aggregate))
        if config.entropy_coefficient > 0 and entropy_BT is not None:
            terms.append(ops.entropy_term(entropy_BT, batch, coefficient=config.entropy_coefficient))
        if batch.has_loss_B is not None:
            terms = [ops.of_rows(term, batch.has_loss_B) for term in terms]
        return Loss(terms, loss.metrics)

    return objective


def _refuse_non_finite(
    it: Iteration, method: Method, update: Update, index: Tensor, minibatch: Rows, learner: Learner, parts: Parts
) -> None:
    if update.is_finite:
        learner.num_skipped = 0
        return
    learner.num_skipped += 1
    batch = _saved_batch(it, minibatch, learner, parts.policy.world)
    why = _why_not_finite(it, method, index, minibatch, update.forward.logp_BT)
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


def _why_not_finite(it: Iteration, method: Method, index: Tensor, minibatch: Rows, logp_BT: Tensor) -> str:
    """What was not finite of the rows ``index``, for a message; for a method of the user's own where to look.

    The loss is computed once more. "" if all of it is finite, as where only a gradient is not, or another rank's rows.
    """
    assert it.progress is not None
    batch = minibatch.with_batch(old_logp_BT=it.progress.old_logp_BT[index, : logp_BT.shape[1]]).batch
    given = [("advantages", "", batch.advantage_B)]
    if bool(batch.advantage_B.isfinite().all()):
        if not bool(logp_BT[batch.mask_BT].isfinite().all()):
            return ": the policy's own log-probabilities are not finite"
        with torch.no_grad():
            terms = method.loss(logp_BT.detach(), batch).terms
        given = [("loss", f" of the term {one.name!r}", (one.value * one.weight)[one.weight != 0]) for one in terms]
    for name, what, values in given:
        wrong = values[~values.isfinite()]
        if len(wrong):
            is_ours = type(method).__module__.startswith("quatro.")
            place = "" if is_ours else f". Look at {place_of(getattr(type(method), name))}"
            said = f"gave {float(wrong[0]):g} in {len(wrong)} of {len(values)} values{what}"
            return f": `{name}` of {type(method).__name__} {said}{place}"
    return ""
