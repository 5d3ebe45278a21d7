"""The best value of a metric so far, by which a checkpoint is kept and a run may end early."""

from __future__ import annotations

import math
from collections.abc import Mapping

from quatro.config import Config

_STOPPING = ("bar/", "no_better/")


def bests(config: Config, before: Mapping[str, float], metrics: Mapping[str, float]) -> dict[str, float]:
    """What a run remembers of the metrics that its configuration watches, after an iteration with ``metrics``.

    For each such metric M: `best/M` and the iteration `best_step/M` in which it was. For early stopping besides the
    value `bar/M` that the next improvement must exceed by more than `early_stop.min_delta`, and how many iterations in
    a row since then had the metric and did not (`no_better/M`). It is a part of `Position.carried`.
    """
    found = {name: value for name, value in before.items() if name.startswith(("best/", "best_step/", *_STOPPING))}
    # A dictionary, not a set: the order of the keys is a part of a checkpoint's bytes.
    for name in dict.fromkeys(config.watched.values()):
        value = metrics.get(name, math.nan)
        if not math.isfinite(value):
            continue
        if value > found.get(f"best/{name}", -math.inf):
            found |= {f"best/{name}": value, f"best_step/{name}": metrics["step"]}
        if value > found.get(f"bar/{name}", -math.inf) + config.early_stop.min_delta:
            found |= {f"bar/{name}": value, f"no_better/{name}": 0.0}
        else:
            found[f"no_better/{name}"] = found.get(f"no_better/{name}", 0.0) + 1.0
    return found


def is_best(config: Config, carried: Mapping[str, float], step: int) -> bool:
    """Whether iteration ``step`` was the best by `checkpoint.keep.best`, so that a checkpoint of it is kept."""
    return config.checkpoint.best is not None and carried.get(f"best_step/{config.checkpoint.best}") == step


def ends_early(config: Config, carried: Mapping[str, float]) -> str | None:
    """Why the run ends before its last iteration; None if it goes on."""
    metric, patience = config.early_stop.metric, config.early_stop.patience
    if not patience or carried.get(f"no_better/{metric}", 0.0) < patience:
        return None
    best, step, min_delta = carried[f"best/{metric}"], int(carried[f"best_step/{metric}"]), config.early_stop.min_delta
    since = (
        f"{patience} times in a row it was not more than {min_delta:g} above {carried[f'bar/{metric}']:.4g}"
        if min_delta
        else f"not better {patience} times since"
    )
    return f"early stop: {metric} was best in iteration {step} ({best:.4g}), and {since}"
