"""What off-policy steps do to the baselines and to QUATRO (paper, Figs. limitation, stability)."""

from __future__ import annotations

from collections.abc import Sequence

from evals.errors import DataError
from evals.figures.comparison import Comparison, comparison, draw_comparisons, lacking, method_order
from evals.figures.run_settings import (
    AXES,
    ENTROPY,
    GSPO,
    INNER_UPDATES,
    KL,
    LR,
    NO_LOG_RATIO,
    QUATRO,
    REWARD,
    Drawn,
    RunSetting,
    grouped,
    has_numbers,
    left_out,
)
from evals.figures.sheet import PAGE, Sheet
from evals.training_metrics import training_metric

# Runs of older versions know the share of tokens only; the paper counts samples.
CLIPPED, CLIPPED_SAMPLES = training_metric("clip_fraction"), training_metric("clip_fraction_samples")


def limitation_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """Reward, clipped share and entropy of the baselines over learning rates and over K, all else equal.

    A baseline has a panel of its own if there are more than four curves. One that does not vary is left out and named,
    and so is a comparison without runs.

    Raises:
        DataError: there is no run of a baseline, or no two that differ only in learning rate or K.
    """
    baselines = [one for one in settings if one.method != QUATRO]
    if not baselines:
        methods = ", ".join(dict.fromkeys(one.method for one in settings)) or "none"
        raise DataError(f"no run of a baseline such as {GSPO} among the runs given (methods: {methods}); train one")
    found = {axis: _varied(comparison(baselines, axis, methods=method_order(baselines)), axis) for axis in AXES}
    notes = [lacking(baselines, axis) for axis, group in found.items() if not group]
    held = {axis: group for axis, group in found.items() if group}
    if not held:
        raise DataError(
            f"{'; '.join(notes)}; train more, for example "
            "`quatro sweep CONFIG -m gspo -g inner_updates=1,2,5` or `-g optimizer.lr=1e-4,1e-3`"
        )
    drawn = [one for group in held.values() for one in group]
    by_samples = all(has_numbers(one, CLIPPED_SAMPLES) for one in drawn)
    wanted = (REWARD, CLIPPED_SAMPLES if by_samples else CLIPPED, ENTROPY)
    metrics = [metric for metric in wanted if any(has_numbers(one, metric) for one in drawn)]
    if not metrics:
        raise DataError(f"no run has a finite number of {', '.join(metric.name for metric in wanted)}")
    ours = [one.named for one in settings if one.method == QUATRO]
    notes += [f"left out, of quatro, which does not clip: {', '.join(ours)}"] if ours else []
    notes += left_out(baselines, drawn)
    comparisons = [
        Comparison(f"({letter}) {AXES[axis]}", axis, group, metrics)
        for letter, (axis, group) in zip("ab", held.items(), strict=False)
    ]
    return Drawn(draw_comparisons(comparisons, sheet=sheet), notes)


def stability_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """(a) over K and (b) over the learning rate: reward and entropy; (c) the log-ratio term: reward and KL.

    A method has a panel of its own where a part would have more than four curves. A part without runs is left out and
    noted, and so is each run that stands in no part.

    Raises:
        DataError: no part can be drawn; the message names what is missing.
    """
    stable = [one for one in settings if one.log_ratio != NO_LOG_RATIO]
    comparisons: list[Comparison] = []
    notes = []
    for letter, axis in (("a", INNER_UPDATES), ("b", LR)):
        methods = method_order(stable)
        found = comparison(stable, axis, methods=methods)
        if not found:
            notes.append(f"({letter}) {lacking(stable, axis)}")
            continue
        notes += [
            f"({letter}) {lacking([one for one in found if one.method == method], axis)}, too few for {method}"
            for method in methods
            if sum(one.method == method for one in found) < 2
        ]
        comparisons.append(Comparison(f"({letter}) {AXES[axis]}", axis, found, (REWARD, ENTROPY)))
    ablated = _log_ratio_pair(settings)
    if ablated:
        comparisons.append(Comparison("(c) log-ratio term", None, ablated, (REWARD, KL)))
    else:
        kinds = ", ".join(dict.fromkeys(str(one.log_ratio) for one in settings if one.method == QUATRO)) or "no quatro"
        notes.append(f"(c) needs quatro runs that differ in method.log_ratio alone, none and another; found {kinds}")
    if not comparisons:
        raise DataError("; ".join(notes))
    drawn = [one for part in comparisons for one in part.settings]
    notes += [
        f"{part.title}: no run has a finite {metric.name}"
        for part in comparisons
        for metric in part.metrics
        if not any(has_numbers(one, metric) for one in part.settings)
    ]
    return Drawn(draw_comparisons(comparisons, sheet=sheet), notes + left_out(settings, drawn))


def _log_ratio_pair(settings: Sequence[RunSetting]) -> list[RunSetting]:
    """QUATRO settings that differ in log_ratio alone, `none` last; empty if `none` or the others are missing.

    If there are several such groups, the largest is taken, then the one with most runs, then the paper's own (delta
    0.1, K 2).
    """

    def score(group: Sequence[RunSetting]) -> tuple[int, int, bool]:
        is_papers = (group[0].delta, group[0].inner_updates) == (0.1, 2)
        return len(group), sum(len(one.runs) for one in group), is_papers

    ours = [one for one in settings if one.method == QUATRO]
    groups = grouped(ours, lambda one: (one.delta, one.lr, one.inner_updates, one.shared, one.own))
    pairs = [group for group in groups if len(group) > 1 and any(one.log_ratio == NO_LOG_RATIO for one in group)]
    best = max(pairs, key=score, default=[])
    return sorted(best, key=lambda one: (one.log_ratio == NO_LOG_RATIO, one.log_ratio != "detached"))


def _varied(group: Sequence[RunSetting], axis: str) -> list[RunSetting]:
    """Those of methods with two values of ``axis``."""
    values: dict[str, set[float]] = {}
    for one in group:
        values.setdefault(one.method, set()).add(float(getattr(one, axis)))
    return [one for one in group if len(values[one.method]) > 1]
