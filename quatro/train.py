"""Algorithm 1 of the paper, for every method: sample, grade, solve the dual, make K inner updates, repeat."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from quatro.config import Config
from quatro.launch.prepare import Prepared
from quatro.launch.recording import recorded
from quatro.launch.saving import restore, save
from quatro.loop.audit import audits
from quatro.loop.draw import draw, own_rows
from quatro.loop.evaluation import Evaluation
from quatro.loop.iteration import Iteration
from quatro.loop.learn import learn
from quatro.loop.metrics import rollout_metrics, rollout_records, share_without_success
from quatro.loop.old_logp import old_logp
from quatro.loop.parts import Parts
from quatro.loop.position import Position
from quatro.loop.progress import InnerProgress
from quatro.methods.scheduled import carry, method_at
from quatro.processes.stop import Stopped, StopRequest
from quatro.processes.world import World
from quatro.runs.best import bests, ends_early, is_best
from quatro.runs.directory import RunDir
from quatro.types import Observer

Metrics = dict[str, float]


def train(
    config: Config,
    run: RunDir,
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    world: World | None = None,
    prepared: Prepared | None = None,
) -> Mapping[str, float]:
    """Fine-tune ``config.model`` in the run directory ``run`` and return the metrics of the last iteration.

    Training goes on from the newest checkpoint of ``run``, if there is one, until ``config.steps`` iterations are
    finished, `early_stop` ends the run, or a ``stop`` is requested of any rank; then it saves. If no iteration was
    finished, the metrics are ``step`` alone. ``observer`` is called with the metrics of each iteration. status.json
    and log.txt are those of `quatro train` (`launch/recording.py`), whoever calls this.

    Raises:
        DivergedError: a loss, gradient or reward is not finite (with `on_nonfinite: stop`).
    """
    stop = stop or StopRequest()  # it also says whether another rank was asked to stop
    with recorded(run, observer) as observer:
        metrics = _iterations(config, run, observer, stop, world or World(), prepared)
        step = int(metrics["step"])
        if step == config.steps or run.ended_early:
            run.set_status("done", step=step, reason=run.ended_early)
        else:
            run.set_status("interrupted", step=step, reason=stop.signal.name if stop.signal else "asked to stop")
    return metrics


def _iterations(
    config: Config, run: RunDir, observer: Observer | None, stop: StopRequest, world: World, prepared: Prepared | None
) -> Metrics:
    parts, position = restore(config, run, world, stop, prepared)
    metrics: Metrics = {"step": float(position.step)}
    with contextlib.closing(parts), contextlib.closing(Evaluation(parts)) as evaluation:
        parts.engine.sync(parts.policy.named_weights)
        while position.step < config.steps and not ends_early(config, position.carried):
            try:
                metrics = iteration(position, parts, evaluation, run)
                run.append_metrics(metrics)
                run.set_status("running", step=position.step)
                if observer is not None:
                    observer(metrics)
                parts.stop.check()
            except Stopped:
                save(run, parts, position)
                break
            is_last = position.step == config.steps or ends_early(config, position.carried)
            is_kept = config.checkpoint.is_due(position.step) or is_best(config, position.carried, position.step)
            if is_last or is_kept:
                save(run, parts, position)
        run.ended_early = ends_early(config, position.carried)
    return metrics


def iteration(position: Position, parts: Parts, evaluation: Evaluation, run: RunDir) -> Metrics:
    """pi_old <- pi_theta; o ~ pi_old; R; lam*, mu*, A; K passes of updates (paper, Alg. 1, lines 3 to 9).

    After a stop inside an iteration, what ``position.iteration`` holds is not done again.

    Raises:
        Stopped: a stop was requested; the caller saves ``position`` as it is.
    """
    config, policy, learner, phase = parts.config, parts.policy, position.learner, parts.stopwatch.phase
    step = position.step + 1
    method = method_at(config.method, position.carried)
    if step == 1 and position.iteration is None and not position.base:
        with parts.stopwatch.holding("eval"):
            position.base = evaluation.of_base()
    if position.iteration is None:  # o_i ~ pi_old(. | q), R(o_i | q)
        learnt, drawn = draw(step, parts)
        position.iteration = Iteration(step, learnt, drawn, policy.lr)
    it = position.iteration

    phase("dual")  # lam*, mu*, A_i
    advantages = method.advantages(*it.rewards(method.needs, parts.sampling.max_new_tokens))
    rows = own_rows(it.learnt, advantages.value_B, parts)
    phase("old_logp")  # log pi_old(o_i | q)
    if it.progress is None:
        learner.source, old_logp_BT = old_logp(rows, learner.source, config, policy)
        it.progress = InnerProgress.begin(old_logp_BT)
    phase("ref_logp")  # log pi_pre(o_i | q)
    if policy.has_reference:
        rows = rows.with_batch(ref_logp_BT=policy.score(rows, use_reference=True).logp_BT)
    metrics: Metrics = {"step": float(step), "lr": it.lr, **rollout_metrics(it.drawn, config), **advantages.metrics}
    if method.kl_radius is not None:
        metrics["dual/share_without_success"] = share_without_success(it.learnt, advantages.value_B)
    phase("update")  # theta, K passes over the minibatches
    metrics |= learn(it, method, rows, learner, parts)
    phase("sync")  # the engine's weights <- theta
    metrics |= parts.engine.sync(policy.named_weights)
    phase("audit")  # the realised KL(pi_theta || pi_old)
    metrics |= audits(it, rows, method, parts)
    with parts.stopwatch.holding("eval"):
        metrics |= evaluation.maybe(step)
    phase("reward")
    metrics |= position.base if step == 1 else {}
    phase("log")
    if config.save_rollouts:
        run.write_rollouts(step, rollout_records(it.learnt, advantages.value_B))
    position.finish({**carry(config.method, position.carried, metrics), **bests(config, position.carried, metrics)})
    return metrics | parts.perf(metrics)
