"""What delta does to advantages, lambda and entropy (paper, Figs. delta_lambda, entropy)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evals.errors import DataError
from evals.figures.grid import Part, new_figure, wrapped
from evals.figures.method_looks import place_of
from evals.figures.panels import line_keys, line_look, panel_title, small_title
from evals.figures.run_settings import (
    ENTROPY,
    LR,
    NO_LOG_RATIO,
    QUATRO,
    Drawn,
    RunSetting,
    draw_metric,
    left_out,
    lines_of,
    reading,
)
from evals.figures.sheet import PAGE, SMALL, Sheet, styled
from evals.files.frames import grouped
from evals.results.training_metrics import training_metric

LAMBDA = replace(training_metric("dual/lam_mean"), title="λ over training", is_log=True)


def delta_lambda_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """Left: A of a correct rollout against the number of correct ones. Right: mean lambda. One curve for each delta.

    Rings on the left mark radii that were out of reach and lowered. The runs share all keys outside the method's
    block. If there are several such groups, the one with most deltas, then most runs, is drawn, and the others named.

    Raises DataError if there is no QUATRO run.
    """
    ours = [one for one in settings if one.method == QUATRO]
    if not ours:
        others = ", ".join(dict.fromkeys(one.method for one in settings)) or "none"
        raise DataError(f"no run of {QUATRO} among the runs given (methods: {others}); train one with -m {QUATRO}")
    found = widest_by_delta(ours)
    notes = []
    deltas = {setting.delta for setting in found}
    if len(deltas) < 2:
        notes.append(f"only one delta ({found[0].delta:g}) among quatro runs with all else equal")
    has_lambda = any(setting.has(LAMBDA) for setting in found)
    if not has_lambda:
        notes.append(f"right panel: no run has a finite {LAMBDA.name}")
    notes += left_out(ours, found)
    labels = sheet.labels([setting.label for setting in found])
    with styled():
        fixed = [found[0].value(LR), found[0].fixed(LR)]
        rings = ["ring: δ beyond reach, lowered"] if any(setting.capped for setting in found) else []
        note = wrapped([*fixed, *(reading(found) if has_lambda else []), *rings], sheet.width - 0.15, joint=", ")
        keys = line_keys(labels)
        part = Part(sheet.width, 1 + has_lambda, 1.9, labels.facets, least=1.6, most=2, keys=keys, note=note)
        figure, (grid,) = new_figure(sheet, part)
        left = grid.axes[0]
        for setting, look in zip(found, labels.looks, strict=True):
            left.plot(range(1, len(setting.advantages) + 1), setting.advantages, **line_look(look))
            ring: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 8, "markerfacecolor": "none"}
            ring |= {"markeredgecolor": look.color, "markeredgewidth": 0.9}
            left.plot(setting.capped, [setting.advantages[count - 1] for count in setting.capped], **ring)
        panel_title(left, "Advantage of a correct rollout" if grid.inches > 2 else "Advantage", grid.inches - 0.5)
        left.set_xlabel("correct rollouts c of a prompt" if grid.inches > 2 else "correct rollouts c", fontsize=SMALL)
        left.set_ylabel("A⁺, log-weight in nats", fontsize=SMALL)
        left.set_ylim(bottom=0)
        num_rollouts = len(found[0].advantages) + 1
        left.set_xticks(range(1, num_rollouts, -(-(num_rollouts - 1) // 9)))
        small_title(left, f"N = {num_rollouts}")
        if has_lambda:
            draw_metric(grid, 1, LAMBDA, lines_of(labels, [one.runs for one in found]))
    return Drawn(figure, notes)


def entropy_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """Token entropy over steps: each delta of QUATRO and each baseline, with all keys outside the method's block equal.

    More than four curves have a panel for each method. A run that is not drawn is named, with the reason.

    Raises DataError if no run has an entropy, or all runs are of QUATRO without the log-ratio term.
    """
    known = [one for one in settings if one.has(ENTROPY)]
    if not known:
        raise DataError(f"no run has a finite {ENTROPY.name}; nothing to draw")
    notes = [f"left out: {one.named}, which has no finite {ENTROPY.name}" for one in settings if one not in known]
    found = widest_by_delta(known)
    for is_ours, name in ((True, QUATRO), (False, "a baseline")):
        if not any((one.method == QUATRO) == is_ours for one in known):
            notes.append(f"no run of {name} to compare with")
    notes += left_out(known, found)
    labels = sheet.labels([one.label for one in found])
    is_many = len(labels.facets) > 1
    with styled():
        said = [found[0].value(LR), found[0].fixed(LR), *reading(found)]
        note = wrapped([*said, "grey: the other methods" if is_many else ""], sheet.width - 0.15, joint=", ")
        height = 1.5 if is_many else 2.1
        part = Part(sheet.width, 1, height, labels.facets, least=1.5, keys=line_keys(labels), note=note)
        figure, (grid,) = new_figure(sheet, part)
        draw_metric(grid, 0, ENTROPY, lines_of(labels, [one.runs for one in found]))
    return Drawn(figure, notes)


def widest_by_delta(settings: Sequence[RunSetting]) -> list[RunSetting]:
    """Settings that share all keys outside the method's block: QUATRO, largest delta first, then the baselines.

    Those without the log-ratio term are left out. Groups with QUATRO go first, then those with most methods, then
    those with most deltas, then most runs. Raises DataError if all settings are without the log-ratio term.
    """
    stable = [one for one in settings if one.log_ratio != NO_LOG_RATIO]
    if not stable:
        raise DataError("all quatro runs are without the log-ratio term; train one with method.log_ratio=detached")

    def score(group: list[RunSetting]) -> tuple[bool, int, int, int]:
        methods = {one.method for one in group}
        num_runs = sum(len(one.runs) for one in group)
        return QUATRO in methods, len(methods), len({one.delta for one in group}), num_runs

    best = max(grouped(stable, lambda one: (one.lr, one.inner_updates, one.shared)).values(), key=score)
    return sorted(best, key=lambda one: (place_of(one.method), -(one.delta or 0.0)))
