"""Algorithm 1 of the paper, for every method: sample, judge, solve the dual, K inner updates, again."""

from __future__ import annotations

import contextlib
import logging
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from quatro import trust_region
from quatro.config import Config
from quatro.draw import draw, own_rows, shaped_rewards
from quatro.evaluation import Evaluation
from quatro.health import Watch, startup_warnings
from quatro.inflight import Inflight
from quatro.inner_loop import InnerLoop, StoppedInside
from quatro.methods.base import Method
from quatro.ranks import agree_to_stop
from quatro.rollout_metrics import rollout_metrics, rollout_records
from quatro.rundir import RunDir
from quatro.setup import Parts
from quatro.state import Position, restore, save
from quatro.stop import Interrupted, StopRequest
from quatro.timing import PhaseTimer
from quatro.world import World

logger = logging.getLogger(__name__)

Metrics = dict[str, float]
Observer = Callable[[Mapping[str, float]], None]


def train(
    config: Config,
    run: RunDir,
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    world: World | None = None,
) -> Mapping[str, float]:
    """Fine-tune ``config.model`` inside ``run``, from its newest checkpoint if it has one; returns the last metrics,
    or only their ``step`` where no iteration was finished here.

    Ends after ``config.steps`` iterations, or once ``stop`` is requested of any rank: after the optimiser step under
    way, or among responses being drawn (an evaluation's too), which a resume draws again. Either way with a
    checkpoint. ``observer`` is shown the metrics of each iteration.

    Raises:
        DivergedError: a loss, gradient or reward is not finite (with `on_nonfinite: stop`).
    """
    world, stop = world or World(), stop or StopRequest()  # which notes what another rank was asked
    _seed_global_generators(config.seed)
    parts, position = restore(config, run, world)
    run.set_status("running", step=position.step)
    metrics: Metrics = {"step": float(position.step)}
    carried = position.carried
    with contextlib.closing(parts), contextlib.closing(Evaluation(parts)) as evaluation:
        inner = InnerLoop(
            config,
            parts.policy,
            dump_folder=run.path,
            old_logp=position.old_logp,
            num_skipped_in_a_row=position.num_skipped_in_a_row,
        )
        watch, timer = Watch(config), PhaseTimer()

        def keep(step: int, inflight: Inflight | None = None) -> None:
            with timer("checkpoint"):
                save(run, parts, Position(step, inner.old_logp, inner.num_skipped_in_a_row, carried, inflight))

        if world.is_first:
            for warning in startup_warnings(config):
                logger.warning(warning)
        parts.engine.sync(parts.policy.named_weights)
        for step in range(position.step + 1, config.steps + 1):
            method = config.method.at(step, num_steps=config.steps, carried=carried)
            resumed = position.inflight if step == position.step + 1 else None
            try:
                metrics = iteration(step, method, parts, inner, evaluation, run, timer, resumed=resumed, stop=stop)
            except Interrupted as interrupted:
                keep(step - 1, interrupted.inflight)
                break
            carried = config.method.carry(carried, metrics)
            metrics |= timer.take(num_tokens=int(metrics["tokens"]), num_passes=int(metrics["inner/passes"]))
            metrics["perf/peak_memory_gib"] = world.largest(parts.policy.peak_memory_bytes()) / 2**30
            run.append_metrics(metrics)
            run.set_status("running", step=step)
            if world.is_first:
                watch(metrics)
            if observer is not None:
                observer(metrics)
            is_last = agree_to_stop(stop, world) or step == config.steps
            if is_last or (config.checkpoint.every and step % config.checkpoint.every == 0):
                keep(step)
            if is_last:
                break
    return metrics


def _seed_global_generators(seed: int) -> None:
    """For whatever draws without a generator of its own: a checkpoint holds their states, so they must be the run's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def iteration(
    step: int,
    method: Method,
    parts: Parts,
    inner: InnerLoop,
    evaluation: Evaluation,
    run: RunDir,
    timer: PhaseTimer,
    *,
    resumed: Inflight | None = None,
    stop: StopRequest | None = None,
) -> Metrics:
    """pi_old <- pi_theta; o ~ pi_old; R; lam*, mu*, A; K passes of updates (paper, Alg. 1).

    ``method`` is the one in force; ``resumed`` are the rollouts that a stop found inside the inner loop.

    Raises:
        Interrupted: ``stop`` was requested among the responses, before the last optimiser step or in the evaluation.
    """
    config, policy = parts.config, parts.policy

    learnt_from, everything = (resumed.learnt, resumed.drawn) if resumed else draw(step, parts, timer, stop)
    prompts, groups = learnt_from.prompts, learnt_from.groups
    rewards = shaped_rewards(learnt_from, method.needs, parts.sampling.max_new_tokens)
    reward_B = torch.tensor([value for group in rewards for value in group], dtype=torch.float64)
    group_B = torch.arange(len(groups)).repeat_interleave(config.rollouts_per_prompt)
    with timer("dual"):
        advantages = method.advantages(reward_B, group_B)

    limit = parts.sampling.max_new_tokens
    rows = own_rows(learnt_from, advantages.value_B, policy.world, max_new_tokens=limit, device=policy.device)
    engine_logp_BT = rows.batch.old_logp_BT
    with timer("old_logp"):
        rows = rows.with_batch(old_logp_BT=resumed.progress.old_logp_BT) if resumed else inner.with_old_logp(rows)
    if policy.has_reference:
        with timer("ref_logp"):
            rows = rows.with_batch(ref_logp_BT=policy.score(rows, use_reference=True).logp_BT)

    lr = resumed.lr if resumed else policy.lr
    snapshot = (resumed.snapshot if resumed else policy.snapshot()) if config.audit_rollouts else []
    with timer("update"):
        need_entropy = groups[0][0].entropy is None
        progress, spent = (resumed.progress, resumed.budget) if resumed else (None, None)
        options: dict[str, Any] = {"need_entropy": need_entropy, "progress": progress, "spent": spent, "stop": stop}
        try:
            learnt = inner.run(step, method, rows, engine_logp_BT, **options)
        except StoppedInside as at:
            raise Interrupted(Inflight(learnt_from, everything, at.progress, lr, snapshot, at.budget)) from None
    rows = rows.with_batch(old_logp_BT=learnt.progress.old_logp_BT)

    metrics: Metrics = {"step": float(step), "lr": lr}
    metrics |= {**rollout_metrics(everything), **advantages.metrics, **learnt.metrics}
    if method.needs.dynamic_sampling:
        metrics["sampling/rounds"] = len(everything) / config.prompts_per_step
    if math.isnan(metrics["entropy/token_mean"]):
        metrics["entropy/token_mean"] = learnt.entropy
    with timer("sync"):
        metrics |= parts.engine.sync(policy.named_weights)
    with timer("audit"):
        if config.audit:
            metrics |= trust_region.audit(policy.score(rows).logp_BT, rows.batch, method.kl_radius, policy.world)
        if snapshot:
            metrics |= trust_region.audit_fresh(step, parts, prompts, snapshot)
    with timer("eval"):
        try:
            metrics |= evaluation.maybe(step, stop)
        except Interrupted:
            at_end = Inflight(learnt_from, everything, learnt.progress, lr, snapshot, learnt.budget)
            raise Interrupted(at_end) from None
    with timer("log"):
        if config.save_rollouts:
            run.write_rollouts(step, rollout_records(learnt_from, advantages.value_B))
    return metrics
