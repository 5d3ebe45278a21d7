"""The one table of training metrics: what each number of metrics.jsonl means, and where a reader meets it.

Figures, the report, the live view, a sweep's summary, model cards and docs/metrics.md read it. A new metric is
computed in `quatro/loop` (those of the rollouts in metrics.py there) and described here in one entry; then
`python docs/generate.py` writes docs/metrics.md, in the order of the entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

# What evaluations measure is named so: during training, and before it (`eval.at_start`, in the first row alone).
EVALUATED, BASE = "eval/", "base/"


class View(NamedTuple):
    """A metric's part of a row of the live view; ``text`` holds `{}` for its number.

    If a step lacks the metric, an optional one is left out, and any other is shown as a dash.
    """

    row: str
    text: str = "{}"
    is_optional: bool = False


@dataclass(frozen=True)
class Metric:
    """One metric, or several that docs/metrics.md explains together: ``name`` and ``also``.

    ``title`` and ``unit`` head its panel, which has a logarithmic axis (``is_log``), or one that begins at 0
    (``is_share``; as text a share is a percentage). ``lines`` are dashed lines across the panel: at the delta of each
    run, or at 1. The other fields say where the metric is shown: ``panel`` is its place among the report's panels, of
    which `quatro plot training` draws those with ``is_in_figure``; ``is_in_summary`` makes it a column of a sweep's
    summary.csv, ``column`` is its title in the report's table of runs, ``card`` its words in a model card. 0, "" and
    None mean that the metric is not shown there.

    Raises:
        ValueError: ``is_in_figure`` without a ``panel``.
    """

    name: str
    meaning: str
    also: tuple[str, ...] = ()
    title: str = ""
    unit: str = ""
    is_log: bool = False
    is_share: bool = False
    lines: Literal["", "delta", "one"] = ""
    panel: int = 0
    is_in_figure: bool = False
    is_in_summary: bool = False
    column: str = ""
    card: str = ""
    view: View | None = None

    def __post_init__(self) -> None:
        if self.is_in_figure and not self.panel:
            raise ValueError(f"{self.name}: is_in_figure needs a panel")


TRAINING_METRICS = (
    Metric("step", "number of the iteration, from 1"),
    Metric("rollouts", "responses of the iteration and their tokens, stop tokens included", also=("tokens",)),
    Metric(
        "reward/mean",
        "mean over the rollouts; one on which the reward failed counts as 0 (`on_error: zero`) or not at all (`drop`)",
        title="Reward",
        unit="mean of the iteration",
        panel=1,
        is_in_figure=True,
        is_in_summary=True,
        column="reward",
        card="reward",
        view=View("reward"),
    ),
    Metric("reward/std", "standard deviation over the same rollouts", view=View("reward", "± {}")),
    Metric(
        "reward/errors",
        "rollouts whose reward raised or was killed at its deadline, of all that were drawn; by `reward.on_error` they "
        "count as 0 or are left out of their groups. In a list each failure of a reward counts",
        also=("reward/timeouts",),
    ),
    Metric(
        "reward/parts/NAME",
        "mean of each reward of a list, before its weight, and of each number that a reward logs: what a function "
        "returns beside `reward` (behind the reward's name in a list), of a reward model `cut`. Each is a mean over "
        "the rollouts that have it: one on which a function failed has none of its numbers, and, if it counts as 0, "
        "a 0 for the reward of the list",
    ),
    Metric(
        "reward/math_verify_disagreement",
        "with `reward: math`: share of different pairs of answer and reference on which math-verify and the reward "
        "disagree, and how many were asked: up to 64 an iteration, chosen by the seed. A share that grows says that "
        "the policy may be learning to please a grader",
        also=("reward/math_verify_pairs",),
    ),
    Metric(
        "accuracy/mean",
        "share of correct rollouts among those with a verdict; null where the reward has no notion of correct. A "
        "function of your own gives one by `correct`",
        is_in_summary=True,
        card="accuracy of the training rollouts",
        view=View("accuracy"),
    ),
    Metric(
        "groups/mixed_share",
        "share of prompts whose rollouts did not all earn the same: the only ones with a signal",
        is_share=True,
        card="share of prompts with a signal",
        view=View("accuracy", "  mixed groups {}"),
    ),
    Metric(
        "groups/all_right_share",
        "share of prompts whose rollouts are all correct, or none; null unless every rollout has a verdict",
        also=("groups/all_wrong_share",),
    ),
    Metric("sampling/rounds", "with dynamic sampling: batches of prompts drawn to fill one"),
    Metric(
        "entropy/token_mean",
        "exact entropy of the next-token distribution at temperature 1, over the rollouts' tokens, at pi_old",
        title="Entropy",
        unit="nats per token",
        panel=2,
        is_in_figure=True,
        is_in_summary=True,
        column="entropy",
        card="entropy, nats per token",
        view=View("entropy", "{} nats per token"),
    ),
    Metric(
        "dual/lam_mean",
        "lam* over the prompts that have one",
        also=("dual/lam_p10", "dual/lam_median", "dual/lam_p90", "dual/lam_min", "dual/lam_max"),
        title="Dual variable λ",
        unit="mean over prompts",
        panel=6,
        is_in_figure=True,
        is_in_summary=True,
        column="λ",
        card="lambda",
        view=View("lambda", is_optional=True),
    ),
    Metric("dual/mu_mean", "mu* over the same prompts"),
    Metric(
        "dual/interior_share",
        "status of the prompts' duals: KL equals delta; delta lowered to `boundary_cap` x log(N/m); no interior "
        "optimum; all rewards equal",
        also=("dual/capped_share", "dual/boundary_share", "dual/degenerate_share"),
    ),
    Metric("dual/floored_rows", "rollouts whose advantage was raised to `advantage_floor`"),
    Metric("dual/delta", "the KL radius in force: `method.delta`, or what its schedule made of it"),
    Metric(
        "advantage/min",
        "over the rollouts; GPG's batch-wide factor",
        also=("advantage/mean", "advantage/max", "advantage/alpha"),
    ),
    Metric(
        "kl/new_old",
        "audit after the last update: KL(pi_new || pi_old), the constraint's direction, and its standard error over "
        "the audited prompts (`audit.prompts`, or all of the iteration if it has no more)",
        also=("kl/new_old_se",),
        title="Realised KL(new ‖ old)",
        unit="nats per iteration",
        is_log=True,
        lines="delta",
        panel=3,
        is_in_figure=True,
        is_in_summary=True,
        column="KL new‖old",
        card="KL(new, old) of an iteration, nats",
        view=View("KL new‖old", is_optional=True),
    ),
    Metric(
        "kl/old_new",
        "the same in the other direction",
        also=("kl/old_new_se",),
        is_in_summary=True,
        card="KL(old, new) of an iteration, nats",
        view=View("KL old‖new", is_optional=True),
    ),
    Metric(
        "kl/ratio_to_delta",
        "`kl/new_old` over the delta in force; above 3 there is a warning",
        title="Realised KL over δ",
        unit="kl/new_old divided by delta",
        is_log=True,
        lines="one",
        panel=4,
        is_in_summary=True,
        column="KL / δ",
        card="KL(new, old) over delta",
    ),
    Metric(
        "kl/prompt_p10",
        "`kl/new_old` of each audited prompt; with 8 rollouts a prompt this is noisy",
        also=("kl/prompt_median", "kl/prompt_p90"),
    ),
    Metric("kl/prompt_above_3delta_share", "share of prompts above three times delta"),
    Metric("kl/capped_share", "share of rollouts whose log-ratio was capped at 20 in the audit"),
    Metric(
        "kl/new_old_fresh",
        "with `audit_rollouts`: the same KL from fresh responses of the new policy",
        also=("kl/new_old_fresh_se",),
    ),
    Metric(
        "kl/reference",
        "k3 estimate of the KL to the model the run began with, token mean, at pi_old",
        card="KL to the base model, nats per token",
    ),
    Metric("target/gap_mean", "mean |A - l|: how far audited rows still are from pi* (the fixed point is l = A)"),
    Metric("target/above_share", "share of audited rows that are now more likely than pi* would have them"),
    Metric(
        "log_ratio/before_mean",
        "sequence log-ratio between two sources of log pi_old before any update: over the first minibatch where the "
        "sampler is the second, over its first micro-batch where a forward pass is. It is numerical noise and should "
        "be about 0. Above 0.1 nats, or half of sqrt(2 delta) if that is less, there is a warning. With one minibatch "
        "an iteration there is one source only, and it is 0",
        also=("log_ratio/before_std", "log_ratio/before_max"),
    ),
    Metric(
        "log_ratio/after_mean",
        "sequence log-ratio of the audited rollouts after the last update",
        also=("log_ratio/after_std", "log_ratio/after_max"),
    ),
    Metric(
        "mismatch/dlogp_abs_mean",
        "sampler against trainer, per token: over all responses (of vLLM's in bfloat16 one in eight); where log pi_old "
        "is the sampler's, over the first minibatch",
        also=("mismatch/dlogp_abs_max", "mismatch/k3"),
    ),
    Metric(
        "sync/probe_dlogp_mean",
        "engine vllm: engine against policy on a fixed sequence after the weights were sent, per token; above 1e-4 in "
        "float32 (largest) or 0.12 in bfloat16 (mean) the run stops",
        also=("sync/probe_dlogp_max",),
    ),
    Metric(
        "logp_max",
        "largest log-probability of a token, never above 0: a head or kernel that computes something else "
        "stops the run",
    ),
    Metric(
        "ratio/ess_share_min",
        "smallest effective sample size of a minibatch, (sum s)^2 / (n sum s^2); below 0.1 there is a warning",
    ),
    Metric("ratio/capped_share", "share of rows whose log-ratio exceeded `max_log_ratio`"),
    Metric(
        "loss",
        "summed loss of the iteration's steps; its terms before their coefficients",
        also=("loss/policy", "loss/kl", "loss/entropy"),
    ),
    Metric("approx_kl", "token mean of log pi_old - log pi_theta while learning"),
    Metric(
        "clip_fraction",
        "share of tokens where the clipped branch, or the dual clip, was in force",
        also=("clip_fraction_lower",),
        title="Clipped",
        unit="share of rows or tokens",
        is_share=True,
        panel=7,
        is_in_figure=True,
        card="share of clipped tokens",
        view=View("clipped", is_optional=True),
    ),
    Metric(
        "clip_fraction_samples",
        "GSPO: share of samples whose sequence ratio is clipped, as the paper counts; `clip_fraction` weighs a sample "
        "by its tokens",
        title="Clipped",
        unit="share of samples",
        is_share=True,
    ),
    Metric(
        "grad/norm",
        "gradient norm before clipping, mean and largest over the steps where it was finite",
        also=("grad/norm_max",),
        title="Gradient norm",
        unit="before clipping",
        is_log=True,
        panel=5,
        column="grad norm",
        card="gradient norm",
        view=View("gradient"),
    ),
    Metric("lr", "learning rate of the iteration's first optimiser step", view=View("gradient", "  lr {}")),
    Metric(
        "grad/skipped_steps",
        "steps not taken because something was not finite, or because there was no gradient; steps taken",
        also=("grad/zero_steps", "optimizer_steps"),
    ),
    Metric(
        "length/mean",
        "tokens of a response, mean and largest",
        also=("length/max",),
        title="Response length",
        unit="tokens",
        panel=8,
        is_in_figure=True,
        card="response length, tokens",
        view=View("length", "{} tokens"),
    ),
    Metric(
        "length/truncated_share",
        "share of responses that were cut at `max_new_tokens`",
        is_share=True,
        card="share of truncated responses",
        view=View("length", "  truncated {}"),
    ),
    Metric(
        "length/unfinished_thoughts",
        "with `rollout.thinking`: share of responses whose thought did not end, so that they have no answer",
        is_share=True,
    ),
    Metric(
        "length/padded_over_real",
        "tokens of a rectangle around all rows over real tokens: what a naive batch would waste",
    ),
    Metric(
        "inner/passes",
        "passes over the rollouts that were made: K, or with `inner_updates: auto` as many as it took",
    ),
    Metric(
        "inner/budget_reached",
        "with `auto`: 1 where the realised KL came to 0.8 of delta or more, 0 where the passes ended before",
    ),
    Metric(
        "inner/backtrack", "with `auto`: share of the last pass's move that was kept; 1 where nothing was taken back"
    ),
    Metric("inner/kl_checks", "with `auto`: forward passes spent on measuring the realised KL"),
    Metric("staleness/steps_max", "optimiser steps between the rollouts and the last update that used them"),
    Metric(
        "eval/pass@1",
        "evaluation during training (`eval.every`), with the standard error over problems; distinct: identical texts "
        "count once",
        also=(
            "eval/pass@1_se",
            "eval/pass@N",
            "eval/pass@N_se",
            "eval/distinct_correct",
            "eval/problems",
            "eval/n",
        ),
        title="Evaluation",
        unit="Pass@1",
        is_share=True,
        panel=9,
        is_in_figure=True,
    ),
    Metric(
        "base/pass@1",
        "the same of the model before training (`eval.at_start`); in the row of iteration 1 alone",
        also=(
            "base/pass@1_se",
            "base/pass@N",
            "base/pass@N_se",
            "base/distinct_correct",
            "base/problems",
            "base/n",
        ),
    ),
    Metric(
        "perf/tokens_per_s",
        "response tokens a second: over the whole iteration, over drawing them, over the K passes of updates",
        also=("perf/generate_tokens_per_s", "perf/update_tokens_per_s"),
        view=View("speed", "{} tokens/s"),
    ),
    Metric(
        "perf/step_s",
        "seconds of the whole iteration",
        is_in_summary=True,
        column="s / step",
        view=View("speed", "  {} s a step"),
    ),
    Metric(
        "perf/prompts_s",
        "seconds of its phases up to the K passes of updates",
        also=("perf/generate_s", "perf/reward_s", "perf/dual_s", "perf/old_logp_s", "perf/ref_logp_s", "perf/update_s"),
    ),
    Metric(
        "perf/audit_s",
        "seconds of the phases after them; checkpoint: the one after the previous iteration",
        also=("perf/sync_s", "perf/eval_s", "perf/checkpoint_s", "perf/log_s", "perf/other_s"),
    ),
    Metric(
        "perf/peak_memory_gib",
        "most memory held so far: on the GPU, or by the process on the CPU; of several ranks the largest",
    ),
)

_BY_NAME = {metric.name: metric for metric in TRAINING_METRICS}
PANELS = tuple(sorted((metric for metric in TRAINING_METRICS if metric.panel), key=lambda metric: metric.panel))
COLUMNS = tuple(metric for metric in dict.fromkeys((*PANELS, *TRAINING_METRICS)) if metric.column)


def training_metric(name: str) -> Metric:
    """The entry of the metric ``name``."""
    return _BY_NAME[name]
