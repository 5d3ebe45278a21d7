"""What clipping cannot hold: baselines at larger learning rates and with more updates (paper, Fig. limitation)."""

from __future__ import annotations

from collections.abc import Sequence

from evals.errors import DataError
from evals.figures.comparison import Comparison, comparison, draw_comparisons, lacking, method_order
from evals.figures.run_settings import AXES, ENTROPY, GSPO, QUATRO, REWARD, Drawn, RunSetting, has_numbers, left_out
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


def _varied(group: Sequence[RunSetting], axis: str) -> list[RunSetting]:
    """Those of methods with two values of ``axis``."""
    values: dict[str, set[float]] = {}
    for one in group:
        values.setdefault(one.method, set()).add(float(getattr(one, axis)))
    return [one for one in group if len(values[one.method]) > 1]
