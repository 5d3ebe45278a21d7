"""The training metrics that a reader meets beyond metrics.jsonl, and where: the one table of them.

Figures, the report, the live view and a sweep's summary read it, in the order of the entries. What each
metric means, these and the others, is in docs/metrics.md.
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
    """How one metric is shown; 0, "" and None mean that it is not shown there.

    ``title`` and ``unit`` head its panel, which has a logarithmic axis (``is_log``), or one that begins at 0
    (``is_share``; as text a share is a percentage). ``lines`` are dashed lines across the panel: at the delta of each
    run, or at 1. ``panel`` is its place among the report's panels, ``column`` its title in the report's table of runs.
    """

    name: str
    title: str = ""
    unit: str = ""
    is_log: bool = False
    is_share: bool = False
    lines: Literal["", "delta", "one"] = ""
    panel: int = 0
    column: str = ""
    view: View | None = None


TRAINING_METRICS = (
    Metric(
        "reward/mean",
        title="Reward",
        unit="mean of the iteration",
        panel=1,
        column="reward",
        view=View("reward"),
    ),
    Metric("reward/std", view=View("reward", "± {}")),
    Metric("accuracy/mean", view=View("accuracy")),
    Metric(
        "groups/mixed_share",
        is_share=True,
        view=View("accuracy", "  mixed groups {}"),
    ),
    Metric(
        "entropy/token_mean",
        title="Entropy",
        unit="nats per token",
        panel=2,
        column="entropy",
        view=View("entropy", "{} nats per token"),
    ),
    Metric(
        "dual/lam_mean",
        title="Dual variable λ",
        unit="mean over prompts",
        panel=6,
        column="λ",
        view=View("lambda", is_optional=True),
    ),
    Metric(
        "kl/new_old",
        title="Realised KL(new ‖ old)",
        unit="nats per iteration",
        is_log=True,
        lines="delta",
        panel=3,
        column="KL new‖old",
        view=View("KL new‖old", is_optional=True),
    ),
    Metric("kl/old_new", view=View("KL old‖new", is_optional=True)),
    Metric(
        "kl/ratio_to_delta",
        title="Realised KL over δ",
        unit="kl/new_old divided by delta",
        is_log=True,
        lines="one",
        panel=4,
        column="KL / δ",
    ),
    Metric(
        "clip_fraction",
        title="Clipped",
        unit="share of rows or tokens",
        is_share=True,
        panel=7,
        view=View("clipped", is_optional=True),
    ),
    Metric("clip_fraction_samples", title="Clipped", unit="share of samples", is_share=True),
    Metric(
        "grad/norm",
        title="Gradient norm",
        unit="before clipping",
        is_log=True,
        panel=5,
        column="grad norm",
        view=View("gradient"),
    ),
    Metric("lr", view=View("gradient", "  lr {}")),
    Metric(
        "length/mean",
        title="Response length",
        unit="tokens",
        panel=8,
        view=View("length", "{} tokens"),
    ),
    Metric(
        "length/truncated_share",
        is_share=True,
        view=View("length", "  truncated {}"),
    ),
    Metric("eval/pass@1", title="Evaluation", unit="Pass@1", is_share=True, panel=9),
    Metric("perf/tokens_per_s", view=View("speed", "{} tokens/s")),
    Metric("perf/step_s", column="s / step", view=View("speed", "  {} s a step")),
)

PANELS = tuple(sorted((metric for metric in TRAINING_METRICS if metric.panel), key=lambda metric: metric.panel))
# What `quatro plot training` draws.
FIGURE_PANELS = tuple(metric for metric in PANELS if metric.name not in ("kl/ratio_to_delta", "grad/norm"))
COLUMNS = tuple(metric for metric in dict.fromkeys((*PANELS, *TRAINING_METRICS)) if metric.column)
# The columns of a sweep's summary.csv.
SUMMARY_METRICS = (
    "reward/mean",
    "accuracy/mean",
    "entropy/token_mean",
    "dual/lam_mean",
    "kl/new_old",
    "kl/old_new",
    "kl/ratio_to_delta",
    "perf/step_s",
)


def training_metric(name: str) -> Metric:
    """The entry of the metric ``name``."""
    return next(metric for metric in TRAINING_METRICS if metric.name == name)


def evaluation_metrics(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that evaluations during training measure: each once, in order, without standard errors."""
    return [name for name in dict.fromkeys(names) if name.startswith(EVALUATED) and not name.endswith("_se")]
