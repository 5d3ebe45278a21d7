"""Algorithm 1 of the paper, for every method: sample, grade, solve the dual, make K inner updates, repeat."""

from collections.abc import Mapping
from contextlib import closing

from quatro.config import Config
from quatro.launch.begin import Prepared
from quatro.launch.recording import recorded
from quatro.launch.saving import restore, save
from quatro.loop.audit import audits
from quatro.loop.draw import Evaluation, asked_of, draw, own_rows, rewards_of
from quatro.loop.learn import learn
from quatro.loop.metrics import iteration_metrics, rollout_records
from quatro.loop.position import Iteration, Parts, Position
from quatro.loop.progress import InnerProgress, old_logp
from quatro.policy.device import in_fixed_order
from quatro.processes.stop import Stopped, StopRequest
from quatro.processes.world import World
from quatro.runs.directory import RunDir
from quatro.types import Observer


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
    finished, the metrics are ``step`` alone. ``observer`` is called with the metrics of each iteration, and its method
    `doing`, if it has one, with each `Stage`. status.json and log.txt are those of `quatro train`
    (`launch/recording.py`), whoever calls this.

    Raises DivergedError if a loss, gradient or reward is not finite (with `on_nonfinite: stop`).
    """
    stop = stop or StopRequest()  # it also says whether another rank was asked to stop
    with recorded(run, observer, stop) as recorder, in_fixed_order(config):
        parts, position = restore(config, run, world or World(), stop, prepared)
        with closing(parts), closing(Evaluation(parts)) as evaluation:
            recorder.begins(position, parts)
            parts.engine.sync(parts.policy.named_weights)
            try:
                evaluation.of_base(position)
                while not position.is_over(config):
                    recorder.finished(iteration(position, parts, evaluation, run))
                    parts.stop.check()
                    if position.is_kept(config):
                        save(run, parts, position)
            except Stopped:
                save(run, parts, position)
    return recorder.metrics


def iteration(position: Position, parts: Parts, evaluation: Evaluation, run: RunDir) -> dict[str, float]:
    """pi_old <- pi_theta; o ~ pi_old; R; lam*, mu*, A; K passes of updates (paper, Alg. 1, lines 3 to 9).

    What ``position.iteration`` holds after a stop is not done again. At a stop raises Stopped; the caller saves it.
    """
    config, policy, learner, phase = parts.config, parts.policy, position.learner, parts.stopwatch.phase
    step, method = position.step + 1, config.method.at(position.carried)
    if position.iteration is None:  # o_i ~ pi_old(. | q), R(o_i | q)
        learnt, drawn = draw(step, parts)
        position.iteration = Iteration(step, learnt, drawn, policy.lr)
    it = position.iteration
    parts.engine.rest()  # also where a resume drew nothing
    it.asked = it.asked or asked_of(it.learnt, method.needs, parts)

    phase("dual")  # lam*, mu*, A_i
    advantages = method.advantages(*rewards_of(it.learnt, method.needs, parts.sampling.max_new_tokens), **it.asked)
    rows = own_rows(it.learnt, advantages.value_B, parts)
    phase("old_logp")  # log pi_old(o_i | q)
    if it.progress is None:
        learner.source, old_logp_BT = old_logp(rows, learner.source, config, policy)
        it.progress = InnerProgress.begin(old_logp_BT)
    phase("ref_logp")  # log pi_pre(o_i | q)
    if policy.has_reference:
        rows = rows.with_batch(ref_logp_BT=policy.score(rows, use_reference=True).logp_BT)
    metrics = iteration_metrics(it, advantages, method, config)
    phase("update")  # theta, K passes over the minibatches
    metrics |= learn(it, method, rows, learner, parts)
    phase("audit")  # the realised KL(pi_theta || pi_old)
    metrics |= audits(it, rows, method, parts)
    phase("sync")  # the engine's weights <- theta
    metrics |= parts.engine.sync(policy.named_weights)
    metrics |= evaluation.metrics(position)
    phase("log")
    if config.save_rollouts:
        run.write_rollouts(step, rollout_records(it.learnt, advantages.value_B))
    position.finish(metrics, config)
    return metrics | parts.perf(metrics)
