"""Warnings about a run: what cannot work from the start, and what goes wrong on the way."""

import json
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from evals.benchmarks.catalogue import grader_of
from evals.benchmarks.problems import Problem, odd_references, shared_problems
from evals.benchmarks.prompts import THOUGHT
from evals.files.own_code import file_of, is_own
from evals.results.training_metrics import EVALUATED
from quatro.config import Config
from quatro.config.errors import closest
from quatro.registry import ENGINES
from quatro.rollout.prompts import Loaded, PromptSet
from quatro.runs.directory import step_name
from quatro.runs.metrics import read_metrics
from quatro.runs.views.rollouts import failures_text, num_drawn, num_failures

logger = logging.getLogger(__name__)

REPEAT_EVERY = 25  # iterations between two warnings of one kind
MAX_KL_OVER_DELTA = 3.0
MAX_TRUNCATED_SHARE = 0.5
MIN_ESS_SHARE = 0.1
MAX_NOISE = 0.1  # nats of a sequence log-ratio that should be 0
MAX_NOISE_SHARE = 0.5  # the same as a share of sqrt(2 delta), the size of advantages under a radius delta
# Nats a token, on the mean, between an own engine's log-probabilities and the trainer's; rounding explains less.
MAX_MISMATCH = {"float32": 1e-3, "bfloat16": 0.05}
MAX_FAILED_SHARE = 0.1
MAX_SHARE_WITHOUT_SUCCESS = 0.25
MAX_KL = 1.0  # nats of one iteration, for any method
FALL_STEPS = 5  # iterations over which a reward that falls is averaged
FALL_ERRORS = 4.0  # standard errors
MAX_FLAT_STEPS = 3  # iterations in a row in which nothing can be learnt
QUOTED_CHARACTERS = 300
# The paper's rate for all weights. The best rate for an adapter is about ten times the best one for all weights,
# whatever the model (Schulman et al. 2025, LoRA Without Regret).
LORA_LR = 1e-6


def startup_warnings(config: Config) -> list[str]:
    """Warnings about a configuration that makes something pointless or unsound."""
    found = []
    num_minibatches = config.prompts_per_step // config.minibatch_prompts
    if config.method.kl_radius is not None and config.most_inner_updates * num_minibatches == 1:
        found.append(
            "delta hardly acts: with inner_updates 1 and a single minibatch every optimiser step is strictly "
            "on-policy, the log-ratio is 0, and Adam ignores the scale of the advantages, whose shape depends on delta "
            "only a little; set inner_updates above 1 or minibatch_prompts below prompts_per_step"
        )
    if config.policy.lora is not None and config.optimizer.lr <= LORA_LR:
        found.append(
            f"optimizer.lr {config.optimizer.lr:g} suits all weights; an adapter (policy.lora) needs about ten times "
            f"that, such as -s optimizer.lr={10 * config.optimizer.lr:g}"
        )
    if config.rollout.top_p < 1 or config.rollout.top_k > 0:
        found.append(
            f"training rollouts are truncated (top_p {config.rollout.top_p}, top_k {config.rollout.top_k}) and the "
            "trainer's log-probabilities are not, so ratios are biased; train at top_p 1 and top_k 0"
        )
    if ENGINES[config.rollout.engine].is_recorded:
        found.append("replayed responses are treated as if the policy had drawn them, which it has not")
    return found


def prompt_warnings(
    config: Config, prompts: PromptSet, sources: Sequence[Loaded] = (), evaluated: Sequence[Sequence[Problem]] = ()
) -> list[str]:
    """Warnings about the ``prompts`` to train on, which fit, their ``sources``, and the benchmarks of evaluations."""
    found = [line for one in sources for line in odd_references(one.problems, config.rewards[one.source.name].names)]
    for some in evaluated:
        found += odd_references(some, [grader_of(some[0].benchmark)])
        shared = shared_problems(some, [problem for one in sources for problem in one.problems])
        for one, trained in shared[:1]:
            found.append(
                f"{len(shared)} of the {len(some)} problems of {one.benchmark} are trained on too, such as {one.id!a} "
                f"({trained.id!a} in data.prompts), so evaluations say little about new problems; take them out of "
                "data.prompts, or set eval.benchmark to another benchmark"
            )
    for name, own in prompts.by_source.items():
        wanted, there = config.prompts_per_step * config.data.shares[name], len(own)
        if there < wanted:
            of = f" of source {name}" if name else ""
            minibatch = min(there, config.minibatch_prompts)
            fewer = f"-s prompts_per_step={there - there % minibatch} -s minibatch_prompts={minibatch}"
            found.append(
                f"an iteration takes {wanted:.0f} prompts and there are {there}{of}, so some come more than once in "
                f"it; take more prompts, or {'lower the weight of this source' if name else fewer}"
            )
    return found


class Watch:
    """Looks at each iteration's metrics; a warning repeats at most every ``REPEAT_EVERY`` iterations, and says so.

    ``run`` has the responses of each iteration, of which a warning quotes one, and the metrics before a resume.
    """

    def __init__(self, config: Config, run: Path | None = None) -> None:
        self.config = config
        self._run = run
        self._rewards = deque[tuple[float, float]](maxlen=FALL_STEPS)
        self._best = (-math.inf, 0.0, 0.0)
        self._last: dict[str, float] = {}
        self._num_flat = 0  # iterations in a row

    def __call__(self, metrics: Mapping[str, float]) -> None:
        step = metrics["step"]
        self._num_flat = self._num_flat + 1 if metrics["groups/mixed_share"] == 0 else 0
        if self._run is not None and not self._rewards:  # the run goes on
            for row in read_metrics(self._run):
                if row["step"] < step:
                    self._fallen(row)
        found = problems(metrics, self.config) | self._fallen(metrics)
        if self._num_flat >= MAX_FLAT_STEPS or (self._num_flat and step == 1):
            found["flat"] = self._flat(metrics)
        for kind, message in found.items():
            if step - self._last.get(kind, -math.inf) < REPEAT_EVERY:
                continue
            self._last[kind] = step
            again = f"such a warning comes once in {REPEAT_EVERY} iterations"
            logger.warning("iteration %d: %s (%s)", int(step), message, again)

    def _fallen(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """A warning if the mean reward of the last iterations is far below the best one of as many."""
        found = (metrics.get(name) for name in ("reward/mean", "reward/std"))
        mean, spread = (math.nan if value is None else value for value in found)
        # The variance of the mean as if half of that of the rewards lay between prompts.
        share = (1 + self.config.rollouts_per_prompt) / 2 / metrics["rollouts"]
        self._rewards.append((mean, share * spread**2))
        if len(self._rewards) < FALL_STEPS:
            return {}
        mean, variance = (sum(values) / FALL_STEPS for values in zip(*self._rewards, strict=True))
        self._best = max(self._best, (mean, variance, metrics["step"]))
        best, best_variance, step = self._best
        if not best - mean > FALL_ERRORS * math.sqrt((variance + best_variance) / FALL_STEPS):  # or NaN
            return {}
        ratio = metrics.get("kl/ratio_to_delta")
        moved = f"{metrics.get('kl/new_old', math.nan):.2g} nats" if ratio is None else f"{ratio:.2g} x delta"
        said = (
            f"the reward fell to {mean:.3g} over {FALL_STEPS} iterations, more than {FALL_ERRORS:g} standard errors "
            f"below its best, {best:.3g} at iteration {step:.0f}. The learning rate is {metrics['lr']:.2g}, and the "
            f"policy moved {moved} in this iteration; begin anew with a lower one, such as -s optimizer.lr="
            f"{self.config.optimizer.lr / 3:.1g}, from a checkpoint before the fall with -s model=RUN@STEP"
        )
        return {"fall": said}

    def _flat(self, metrics: Mapping[str, float]) -> str:
        since = "" if self._num_flat == 1 else f" for {self._num_flat} iterations"
        low = metrics["reward/mean"] <= 0 or metrics.get("accuracy/mean") == 0
        causes = (
            "the reward does not find the answer in what the model writes (`quatro rollouts RUN` shows more), the "
            "prompts are too hard for it (take easier ones, or raise rollouts_per_prompt), or responses are cut short "
            "(rollout.max_new_tokens)"
            if low
            else "the prompts are too easy for the model (take harder ones), or the reward is the same for all"
        )
        return (
            f"no prompt had responses with different rewards{since}, so there was nothing to learn from (mean reward "
            f"{metrics['reward/mean']:.3g}). {self._quoted(int(metrics['step']))}Usual causes: {causes}"
        )

    def _quoted(self, step: int) -> str:
        """The first response of iteration ``step``, if it was saved."""
        if self._run is None:
            return ""
        try:
            with (self._run / "rollouts" / f"{step_name(step)}.jsonl").open(encoding="utf-8") as lines:
                row = json.loads(next(lines))
        except (OSError, StopIteration, ValueError):
            return ""
        text = row.get(THOUGHT, "") + row["completion"]
        cut = "..." if len(text) > QUOTED_CHARACTERS else ""
        return f"The first response, to {row['id']!a}: {text[:QUOTED_CHARACTERS]!a}{cut}. "


def problems(metrics: Mapping[str, float], config: Config) -> dict[str, str]:
    """Warnings about the metrics of an iteration, by kind."""
    found: dict[str, str] = {}
    ratio, moved = metrics.get("kl/ratio_to_delta", 0.0), metrics.get("kl/new_old", 0.0)
    # Of responses that the policy has stopped to draw, kl/new_old sees no more than 1 nat.
    direction, furthest = max(
        (("kl/new_old", moved), ("kl/old_new", metrics.get("kl/old_new", 0.0))), key=itemgetter(1)
    )
    fewer = ", make fewer inner_updates" if config.most_inner_updates > 1 else ""
    if furthest > MAX_KL:
        rate = config.optimizer.lr * min(0.5, math.sqrt(MAX_KL / furthest) / 2)
        found["kl"] = (
            f"the policy moved {furthest:.3g} nats in one iteration ({direction}), and what it learnt from is far "
            f"from what it is now; begin anew with -s optimizer.lr={rate:.1g}{fewer}, or raise prompts_per_step"
        )
    elif ratio > MAX_KL_OVER_DELTA:
        found["kl"] = (
            f"the policy moved {ratio:.1f} x delta in one iteration (kl/new_old {moved:.2g} nats, delta "
            f"{moved / ratio:.2g}); a delta below the optimiser's noise cannot be kept. Lower optimizer.lr, raise "
            f"prompts_per_step{fewer}, or set inner_updates to auto, which keeps it"
        )
    unsolved = metrics.get("dual/share_without_success", 0.0)
    if unsolved > MAX_SHARE_WITHOUT_SUCCESS:
        found["unsolved"] = (
            f"{unsolved:.0%} of the KL goes to prompts without a correct response, where only small differences "
            "between rewards count: the dual gives each prompt the same radius, whatever the scale of its rewards. "
            "If they do not matter to you, give all wrong responses the same reward, or try "
            "-s method.name=budgeted"
        )
    truncated = metrics["length/truncated_share"]
    if truncated > MAX_TRUNCATED_SHARE:
        found["truncated"] = (
            f"{truncated:.0%} of the responses were cut at {config.rollout.max_new_tokens} tokens; "
            "raise rollout.max_new_tokens"
        )
    if missing := metrics.get("sampling/missing_prompts"):
        found["sampling"] = (
            f"{config.rollout.max_sampling_rounds} rounds of dynamic sampling found too few prompts with different "
            f"rewards, and the run learns without the missing {missing:.0f} of {config.prompts_per_step}; raise "
            "rollout.max_sampling_rounds or rollouts_per_prompt, or choose prompts by data.pass_rate"
        )
    share = metrics["ratio/ess_share_min"]
    if share < MIN_ESS_SHARE:
        found["ess"] = (
            f"few rows dominate a minibatch (effective sample size {share:.1%} of the rows); "
            "lower optimizer.lr or inner_updates"
        )
    noise, radius = metrics["log_ratio/before_max"], config.method.min_kl_radius
    if noise > min(MAX_NOISE, math.inf if radius is None else MAX_NOISE_SHARE * math.sqrt(2.0 * radius)):
        found["noise"] = (
            f"before any update, sequence log-probabilities differ by up to {noise:.2g} nats from those of pi_old. "
            "This noise is as large as the advantages; use dtype float32 or shorter responses"
        )
    engine, gap = config.rollout.engine, metrics.get("mismatch/dlogp_abs_mean", 0.0)
    if is_own(engine) and gap > MAX_MISMATCH[config.dtype]:
        found["engine"] = (
            f"engine {engine!r} gives log-probabilities that differ from the policy's by {gap:.2g} nats a token; "
            f"expected those at temperature {config.rollout.temperature:g} before any truncation, under the weights "
            f"that sync brought, or None. Look at {file_of(engine)}"
        )
    is_evaluated = any(name.startswith(EVALUATED) for name in metrics)
    for key, name in config.watched.items():
        if name not in metrics and (is_evaluated or not name.startswith(EVALUATED)):
            hint = closest(name, metrics) or "; metrics.jsonl has the names"
            found[key] = f"{key} is {name}, and there is no such metric{hint}"
    failures, drawn = num_failures(metrics), num_drawn(metrics, config)
    if failures > MAX_FAILED_SHARE * drawn:
        found["reward"] = failures_text(failures, drawn)
    return found
