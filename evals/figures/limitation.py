"""What clipping cannot hold: GSPO at larger learning rates and with more inner updates (paper, Fig. limitation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evals.errors import DataError
from evals.figures.panels import line_look, new_grid, shortened, styled
from evals.figures.run_settings import (
    AXES,
    ENTROPY,
    GSPO,
    REWARD,
    Drawn,
    RunSetting,
    add_foot,
    comparison,
    draw_settings,
    fixed_text,
    has_numbers,
    head_legend,
    key,
    of_method,
    reading,
    value_text,
)
from evals.training_metrics import training_metric

# Runs of older versions know the share of tokens only; the paper counts samples.
CLIPPED, CLIPPED_SAMPLES = training_metric("clip_fraction"), training_metric("clip_fraction_samples")


def limitation_figure(settings: Sequence[RunSetting]) -> Drawn:
    """GSPO's reward, clipped share and entropy (rows) over learning rates and over K (columns), all else equal.

    A column is left out, with a note, if its runs are missing.

    Raises:
        DataError: there is no GSPO run, or none that differ in learning rate or K alone.
    """
    clipped = of_method(settings, GSPO)
    columns = {axis: comparison(clipped, axis, methods=(GSPO,)) for axis in AXES}
    notes = [_lacking(clipped, axis) for axis, found in columns.items() if not found]
    columns = {axis: found for axis, found in columns.items() if found}
    if not columns:
        raise DataError(
            f"{'; '.join(notes)}; train more, for example "
            "`quatro sweep CONFIG -m gspo -g inner_updates=1,2,5` or `-g optimizer.lr=1e-4,1e-3`"
        )
    by_samples = all(has_numbers(one, CLIPPED_SAMPLES) for one in clipped)
    wanted = (REWARD, CLIPPED_SAMPLES if by_samples else CLIPPED, ENTROPY)
    metrics = [metric for metric in wanted if any(has_numbers(one, metric) for one in clipped)]
    if not metrics:
        raise DataError(f"no run has a finite number of {', '.join(metric.name for metric in wanted)}")
    with styled():
        num_columns = len(columns)
        grid = new_grid(num_columns * len(metrics), num_columns=num_columns, size=(3.4, 2.0))
        for column, (axis_name, found) in enumerate(columns.items()):
            looks = [line_look(position) for position in range(len(found))]
            for row, metric in enumerate(metrics):
                axis = grid.axes[row * num_columns + column]
                opening = f"({'ab'[column]}) {AXES[axis_name]}: " if row == 0 else ""
                title = opening + (metric.title.lower() if opening else metric.title)
                draw_settings(axis, found, looks, metric, title=title)
                if column == 0:
                    axis.set_ylabel(metric.unit)
            bottom = grid.axes[(len(metrics) - 1) * num_columns + column]
            bottom.set_xlabel("step")
            handles = [key(value_text(one, axis_name), look) for one, look in zip(found, looks, strict=True)]
            heading = f"{shortened(found[0].label)}\n{shortened(fixed_text(found[0], axis_name))}"
            below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.32)}
            head_legend(bottom.legend(handles=handles, ncols=min(3, len(found)), **below), heading)
        add_foot(grid.figure, reading([one for found in columns.values() for one in found]))
    return Drawn(grid.figure, notes)


def _lacking(settings: Sequence[RunSetting], axis: str) -> str:
    """Says which values of ``axis`` there are, where two with all else equal are needed."""
    name = settings[0].method
    values = ", ".join(f"{value:g}" for value in sorted({float(getattr(one, axis)) for one in settings}))
    return f"{AXES[axis]}: needs two {name} runs that differ in it alone; found {values}"
