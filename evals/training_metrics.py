"""The one table of training metrics: what each number of metrics.jsonl means, and where a reader meets it.

Figures, the report, the live view, a sweep's summary, model cards and docs/metrics.md read it. A new metric is
computed in `quatro/loop` (those of the rollouts in metrics.py there) and described here in one entry; then
`python docs/generate.py` writes docs/metrics.md, in the order of the entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

# What evaluations measure is named so: during training, and before it (`eval.at_start`, in the first row alone).
EVALUATED, BASE = "eval/", "base/"
# How many problems an evaluation had, and how many samples of each.
EVALUATION_COUNTS = ("eval/problems", "eval/n")


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
    Metric("rollouts", "number of responses in the iteration, and of their tokens with stop tokens", also=("tokens",)),
    Metric(
        "reward/mean",
        "mean over the rollouts; if the reward failed on a rollout, it counts as 0 (`on_error: zero`) or "
        "is left out (`drop`)",
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
        "number of rollouts whose reward raised an exception, or was killed at its time limit. "
        "`reward.on_error` says whether they count as 0 or are left out of their groups. In a list each "
        "reward that fails is counted",
        also=("reward/timeouts",),
    ),
    Metric(
        "reward/parts/NAME",
        "mean of each reward of a list, without its weight, and of each number that a reward logs. A "
        "function logs what it returns beside `reward` (in a list the name begins with that of the "
        "reward); a reward model logs `cut`. Each mean is over the rollouts that have the number. A "
        "rollout on which a function failed has none of its numbers; if it counts as 0, it has a 0 for the "
        "reward of the list",
    ),
    Metric(
        "accuracy/mean",
        "share of correct rollouts, among those of which the reward says whether they are correct; null if "
        "it never does. Your own function says it by `correct`",
        is_in_summary=True,
        card="accuracy of the training rollouts",
        view=View("accuracy"),
    ),
    Metric(
        "groups/mixed_share",
        "share of prompts whose rollouts did not all earn the same; only these prompts give a signal",
        is_share=True,
        card="share of prompts with a signal",
        view=View("accuracy", "  mixed groups {}"),
    ),
    Metric(
        "groups/all_right_share",
        "share of prompts whose rollouts are all correct, and of those whose rollouts are all wrong; null "
        "if this is unknown for any rollout",
        also=("groups/all_wrong_share",),
    ),
    Metric("sampling/rounds", "with dynamic sampling: how many batches of prompts were drawn to fill one"),
    Metric(
        "entropy/token_mean",
        "exact entropy of the next-token distribution of pi_old at temperature 1, mean over the rollouts' tokens",
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
        "mean, quantiles, smallest and largest lam* of the prompts that have one",
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
    Metric("dual/mu_mean", "mean of mu* over the same prompts"),
    Metric(
        "dual/kl_mean",
        "mean of KL(pi* || pi_old) over the same prompts; it is delta, unless delta was lowered or "
        "`method.temperature` is not `dual`",
    ),
    Metric(
        "dual/share_without_success",
        "share of the KL, summed over prompts, that is spent on prompts without a correct rollout: with "
        "graded rewards, 0.02 against 0.05 counts as much as 0 against 1. null if any rollout has no "
        "verdict. Above 0.25 there is a warning",
    ),
    Metric(
        "dual/interior_share",
        "shares of prompts by how their dual was solved: the KL equals delta; delta was lowered to "
        "`boundary_cap` x log(N/m); there is no interior optimum; all rewards are equal",
        also=("dual/capped_share", "dual/boundary_share", "dual/degenerate_share"),
    ),
    Metric("dual/floored_rows", "number of rollouts whose advantage was raised to `advantage_floor`"),
    Metric("dual/delta", "the KL radius of this iteration: `method.delta`, or the value of its schedule"),
    Metric(
        "advantage/min",
        "smallest, mean and largest advantage of the rollouts; alpha is GPG's factor for the whole batch",
        also=("advantage/mean", "advantage/max", "advantage/alpha"),
    ),
    Metric(
        "kl/new_old",
        "the realised KL, measured after the last update: KL(pi_new || pi_old), the direction of the "
        "constraint, and its standard error over the audited prompts (`audit.prompts` of them, or all if "
        "there are not more)",
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
        "`kl/new_old` divided by the delta of this iteration; above 3 there is a warning",
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
        "quantiles of `kl/new_old` over the audited prompts; with 8 rollouts per prompt these are noisy",
        also=("kl/prompt_median", "kl/prompt_p90"),
    ),
    Metric("kl/prompt_above_3delta_share", "share of audited prompts whose KL is above three times delta"),
    Metric("kl/capped_share", "share of rollouts whose log-ratio was capped at 20 in the audit"),
    Metric(
        "kl/reference",
        "KL of pi_old to the reference (`kl.reference`, else the model that the run began with): k3 estimate, mean "
        "over tokens",
        card="KL to the reference model, nats per token",
    ),
    Metric("target/gap_mean", "mean |A - l|: how far the audited rollouts still are from pi*, where l = A"),
    Metric("target/above_share", "share of audited rollouts that are now more likely than under pi*"),
    Metric(
        "log_ratio/before_mean",
        "difference of two computations of a sequence's log pi_old before any update: that of the first "
        "update, and that of the sampler (over the first minibatch) or of a separate forward pass (over "
        "its first micro-batch). It is numerical noise and should be about 0. Above 0.1 nats, or above "
        "half of sqrt(2 delta) if that is less, there is a warning. With one minibatch per iteration there "
        "is only one computation, and it is 0",
        also=("log_ratio/before_std", "log_ratio/before_max"),
    ),
    Metric(
        "log_ratio/after_mean",
        "sequence log-ratio l of the audited rollouts after the last update",
        also=("log_ratio/after_std", "log_ratio/after_max"),
    ),
    Metric(
        "mismatch/dlogp_abs_mean",
        "difference between the sampler's and the trainer's log-probability of a token: over all "
        "responses, or one in eight with vLLM in bfloat16; over the first minibatch if log pi_old is the "
        "sampler's",
        also=("mismatch/dlogp_abs_max", "mismatch/k3"),
    ),
    Metric(
        "sync/probe_dlogp_mean",
        "with vLLM: difference per token between engine and policy on a fixed sequence, after the weights "
        "were sent. The run stops if the largest is above 1e-4 in float32, or the mean above 0.12 in "
        "bfloat16",
        also=("sync/probe_dlogp_max",),
    ),
    Metric(
        "logp_max",
        "largest log-probability of a token. If it is above 0, a head or kernel computes something else, "
        "and the run stops",
    ),
    Metric(
        "ratio/ess_share_min",
        "smallest effective sample size of a minibatch as a share of its rows, (sum s)^2 / (n sum s^2); "
        "below 0.1 there is a warning",
    ),
    Metric("ratio/capped_share", "share of rows whose log-ratio exceeded `max_log_ratio`"),
    Metric(
        "loss",
        "`loss` is the sum over the iteration's optimiser steps. The others are its terms: means over "
        "these steps, without their coefficients, and `loss/entropy` is negative. So `loss` is about "
        "`optimizer_steps` x (`loss/policy` + `kl.beta` x `loss/kl` + `entropy_coefficient` x "
        "`loss/entropy`). Your own method names its terms itself",
        also=("loss/policy", "loss/kl", "loss/entropy"),
    ),
    Metric("approx_kl", "mean over tokens of log pi_old - log pi_theta during the updates"),
    Metric(
        "clip_fraction",
        "share of tokens whose loss was clipped: by the ordinary clip, and by the dual clip",
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
        "GSPO: share of responses whose sequence ratio is clipped, as the paper counts; `clip_fraction` "
        "weights each response by its number of tokens",
        title="Clipped",
        unit="share of samples",
        is_share=True,
    ),
    Metric(
        "grad/norm",
        "gradient norm before clipping, mean and largest over the optimiser steps where it was finite",
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
        "optimiser steps that were skipped because loss or gradient was not finite, or because there was "
        "no gradient; optimiser steps that were made",
        also=("grad/zero_steps", "optimizer_steps"),
    ),
    Metric(
        "length/mean",
        "mean and largest number of tokens of a response",
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
        "with `rollout.thinking`: share of responses whose thought does not end, which therefore have no answer",
        is_share=True,
    ),
    Metric(
        "length/padded_over_real",
        "tokens of a batch with every row padded to the longest, divided by real tokens: what naive "
        "batching would waste",
    ),
    Metric(
        "inner/passes",
        "passes over the rollouts: K, or with `inner_updates: auto` as many as were needed",
    ),
    Metric(
        "inner/budget_reached",
        "with `auto`: 1 if the realised KL reached 0.8 of delta, 0 if the passes ended before that",
    ),
    Metric("inner/backtrack", "with `auto`: share of the last pass's move that was kept; 1 if nothing was taken back"),
    Metric("inner/kl_checks", "with `auto`: forward passes spent on measuring the realised KL"),
    Metric(
        "staleness/steps_max",
        "number of optimiser steps between drawing the rollouts and the last update that used them",
    ),
    Metric(
        "eval/pass@1",
        "evaluation during training (`eval.every`), with the standard error over problems; "
        "distinct_correct counts identical texts once",
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
        "the same for the model before training (`eval.at_start`); only in the row of iteration 1",
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
        "response tokens per second: of the whole iteration, of generation, and of the K passes of updates",
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
        "seconds of the iteration's phases, up to the K passes of updates",
        also=("perf/generate_s", "perf/reward_s", "perf/dual_s", "perf/old_logp_s", "perf/ref_logp_s", "perf/update_s"),
    ),
    Metric(
        "perf/audit_s",
        "seconds of the phases after the updates; checkpoint_s is for the checkpoint after the previous iteration",
        also=("perf/sync_s", "perf/eval_s", "perf/checkpoint_s", "perf/log_s", "perf/other_s"),
    ),
    Metric(
        "perf/peak_memory_gib",
        "most memory used so far, on the GPU, or by the process on a CPU; of several processes the largest",
    ),
)

_BY_NAME = {metric.name: metric for metric in TRAINING_METRICS}
PANELS = tuple(sorted((metric for metric in TRAINING_METRICS if metric.panel), key=lambda metric: metric.panel))
COLUMNS = tuple(metric for metric in dict.fromkeys((*PANELS, *TRAINING_METRICS)) if metric.column)


def training_metric(name: str) -> Metric:
    """The entry of the metric ``name``."""
    return _BY_NAME[name]


def evaluation_metrics(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that evaluations during training measure: each once, in order, without standard errors."""
    return [name for name in dict.fromkeys(names) if name.startswith(EVALUATED) and not name.endswith("_se")]
