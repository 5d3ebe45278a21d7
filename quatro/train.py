"""Algorithm 1 of the paper, for every method: sample, judge, solve the dual, K inner updates, again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

import torch

from quatro import trust_region
from quatro.collate import collate
from quatro.config import Config
from quatro.draw import draw, shaped_rewards
from quatro.evaluation import Evaluation
from quatro.health import Watch, startup_warnings
from quatro.inner_loop import InnerLoop
from quatro.rollout_metrics import rollout_metrics, rollout_records
from quatro.rundir import RunDir
from quatro.setup import Parts
from quatro.state import restore, save
from quatro.stop import StopRequest
from quatro.timing import PhaseTimer

logger = logging.getLogger(__name__)

Metrics = dict[str, float]
Observer = Callable[[Mapping[str, float]], None]


def train(
    config: Config, run: RunDir, *, observer: Observer | None = None, stop: StopRequest | None = None
) -> Mapping[str, float]:
    """Fine-tune ``config.model`` inside ``run``, from its newest checkpoint if it has one; returns the last metrics.

    Ends after ``config.steps`` iterations, or at the next iteration boundary once ``stop`` is requested: either way
    with a checkpoint. ``observer`` is shown the metrics of each iteration.

    Raises:
        DivergedError: a loss, gradient or reward is not finite (with `on_nonfinite: stop`).
    """
    parts, position = restore(config, run)
    metrics: Metrics = {}
    try:
        inner = InnerLoop(config, parts.policy, dump_folder=run.path, old_logp=position.old_logp)
        evaluation, watch, timer = Evaluation(parts), Watch(config), PhaseTimer()
        for warning in startup_warnings(config):
            logger.warning(warning)
        parts.engine.sync(parts.policy.named_weights)
        for step in range(position.step + 1, config.steps + 1):
            metrics = iteration(step, parts, inner, evaluation, run, timer)
            metrics |= timer.take(num_tokens=int(metrics["tokens"]), num_passes=config.inner_updates)
            metrics["perf/peak_memory_gib"] = parts.policy.peak_memory_bytes() / 2**30
            run.append_metrics(metrics)
            watch(metrics)
            if observer is not None:
                observer(metrics)
            is_last = step == config.steps or (stop is not None and stop.requested)
            if is_last or (config.checkpoint.every and step % config.checkpoint.every == 0):
                with timer("checkpoint"):
                    save(run, parts, step=step, old_logp=inner.old_logp)
            if is_last:
                break
    finally:
        parts.close()
    return metrics


def iteration(
    step: int, parts: Parts, inner: InnerLoop, evaluation: Evaluation, run: RunDir, timer: PhaseTimer
) -> Metrics:
    """pi_old <- pi_theta; o ~ pi_old; R; lam*, mu*, A; K passes of updates (paper, Alg. 1)."""
    config, policy, method = parts.config, parts.policy, parts.config.method

    drawn, everything = draw(step, parts, timer)
    prompts, groups = drawn.prompts, drawn.groups
    rewards = shaped_rewards(drawn, method.needs, parts.sampling.max_new_tokens)
    reward_B = torch.tensor([value for group in rewards for value in group], dtype=torch.float64)
    group_B = torch.arange(len(groups)).repeat_interleave(config.rollouts_per_prompt)
    with timer("dual"):
        advantages = method.advantages(reward_B, group_B)

    rows = collate(
        prompts, groups, advantages.value_B, max_new_tokens=parts.sampling.max_new_tokens, device=policy.device
    )
    engine_logp_BT = rows.batch.old_logp_BT
    with timer("old_logp"):
        rows = inner.with_old_logp(rows)
    if policy.reference is not None:
        with timer("ref_logp"):
            rows = rows.with_batch(ref_logp_BT=policy.score(rows, use_reference=True).logp_BT)

    metrics: Metrics = {"step": float(step), "lr": policy.lr}
    snapshot = policy.snapshot() if config.audit_rollouts else None
    with timer("update"):
        learnt = inner.run(step, rows, engine_logp_BT, need_entropy=groups[0][0].entropy is None)
    rows = rows.with_batch(old_logp_BT=learnt.old_logp_BT)

    metrics |= {**rollout_metrics(everything), **advantages.metrics, **learnt.metrics}
    if method.needs.dynamic_sampling:
        metrics["sampling/rounds"] = len(everything) / config.prompts_per_step
    if math.isnan(metrics["entropy/token_mean"]):
        metrics["entropy/token_mean"] = learnt.entropy
    with timer("sync"):
        metrics |= parts.engine.sync(policy.named_weights)
    with timer("audit"):
        if config.audit:
            metrics |= trust_region.audit(policy.score(rows).logp_BT, rows.batch, method.kl_radius)
        if snapshot is not None:
            metrics |= trust_region.audit_fresh(step, parts, prompts, snapshot)
    with timer("eval"):
        metrics |= evaluation.maybe(step)
    with timer("log"):
        if config.save_rollouts:
            run.write_rollouts(step, rollout_records(drawn, advantages.value_B))
    return metrics
