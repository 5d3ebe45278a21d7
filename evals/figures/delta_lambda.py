"""What delta does: to the advantage of a correct rollout and to lambda over training (paper, Fig. delta_lambda)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evals.errors import DataError
from evals.figures.panels import add_legend, line_look, new_grid, shortened, small_title, styled
from evals.figures.run_settings import (
    LR,
    NO_LOG_RATIO,
    QUATRO,
    Drawn,
    RunSetting,
    add_foot,
    draw_settings,
    fixed_text,
    grouped,
    has_numbers,
    of_method,
    reading,
    value_text,
)
from evals.training_metrics import training_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAMBDA = replace(training_metric("dual/lam_mean"), title="λ over training", is_log=True)


def delta_lambda_figure(settings: Sequence[RunSetting]) -> Drawn:
    """Left: A of a correct rollout against the number of correct ones. Right: mean lambda. One curve for each delta.

    Rings on the left mark radii that were out of reach and lowered. The runs share all keys outside the method's
    block. If there are several such groups, the one with most deltas, then most runs, is drawn.

    Raises:
        DataError: there is no QUATRO run.
    """
    found = widest_by_delta(of_method(settings, QUATRO))
    notes = []
    deltas = {setting.delta for setting in found}
    if len(deltas) < 2:
        notes.append(f"only one delta ({found[0].delta:g}) among quatro runs with all else equal")
    has_lambda = any(has_numbers(setting, LAMBDA) for setting in found)
    if not has_lambda:
        notes.append(f"right panel: no run has a finite {LAMBDA.name}")
    labels = [setting.label for setting in found]
    with styled():
        grid = new_grid(1 + has_lambda, num_columns=2, size=(3.4, 2.7), labels=labels)
        left = grid.axes[0]
        for position, setting in enumerate(found):
            _draw_advantages(left, setting, position)
        left.set_title("Advantage of a correct rollout")
        left.set_xlabel("correct rollouts c of a prompt")
        left.set_ylabel("A⁺, log-weight in nats")
        left.set_ylim(bottom=0)
        num_rollouts = len(found[0].advantages) + 1
        left.set_xticks(range(1, num_rollouts, -(-(num_rollouts - 1) // 9)))
        small_title(left, f"N = {num_rollouts}")
        if has_lambda:
            right = grid.axes[1]
            draw_settings(right, found, [line_look(at) for at in range(len(found))], LAMBDA, title=LAMBDA.title)
            right.set_ylabel(LAMBDA.unit)
            right.set_xlabel("step")
        add_legend(grid.figure, labels)
        fixed = shortened(f"{value_text(found[0], LR)}, {fixed_text(found[0], LR)}", 90)
        foot = [fixed, reading(found)] if has_lambda else []
        if any(setting.capped for setting in found):
            foot.append("ring: δ beyond reach, lowered")
        if foot:
            add_foot(grid.figure, "\n".join(foot))
    return Drawn(grid.figure, notes)


def widest_by_delta(settings: Sequence[RunSetting], *, beside: Sequence[RunSetting] = ()) -> list[RunSetting]:
    """QUATRO settings that share all keys outside the method's block, largest delta first, then those of ``beside``.

    Those without the log-ratio term are left out. Groups with a setting of ``beside`` go first, then those with most
    deltas, then most runs.

    Raises:
        DataError: all settings are without the log-ratio term.
    """
    stable = [one for one in settings if one.log_ratio != NO_LOG_RATIO and one.delta is not None]
    if not stable:
        raise DataError("all quatro runs are without the log-ratio term; train one with method.log_ratio=detached")

    def score(group: list[RunSetting]) -> tuple[bool, int, int]:
        ours = [one for one in group if one in stable]
        return len(ours) < len(group), len({one.delta for one in ours}), sum(len(one.runs) for one in group)

    groups = grouped([*stable, *beside], lambda one: (one.lr, one.inner_updates, one.shared))
    best = max((group for group in groups if any(one in stable for one in group)), key=score)
    return sorted(best, key=lambda one: -one.delta if one.delta is not None else 0.0)


def _draw_advantages(axis: Axes, setting: RunSetting, position: int) -> None:
    look = line_look(position)
    counts = range(1, len(setting.advantages) + 1)
    axis.plot(counts, setting.advantages, **look)
    ring: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 8, "markerfacecolor": "none"}
    ring |= {"markeredgecolor": look["color"], "markeredgewidth": 1.0}
    axis.plot(setting.capped, [setting.advantages[count - 1] for count in setting.capped], **ring)
