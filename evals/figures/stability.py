"""GSPO beside QUATRO: entropy over training, and what more off-policy steps do (paper, Figs. entropy, stability)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evals.errors import DataError
from evals.figures.delta_lambda import widest_by_delta
from evals.figures.method_looks import MARKERS, METHOD_LOOKS, PALETTE, places
from evals.figures.panels import LINES, add_legend, line_look, new_grid, shortened, styled
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
    add_foot,
    comparison,
    draw_settings,
    fixed_text,
    grouped,
    head_legend,
    key,
    of_method,
    reading,
    value_text,
)
from evals.training_metrics import Metric

_Part = tuple[str, str, tuple[Metric, Metric], list[RunSetting], list[tuple[str, dict[str, Any]]]]


def entropy_figure(settings: Sequence[RunSetting]) -> Drawn:
    """Token entropy over steps: a curve for each delta of QUATRO, and GSPO. Keys outside the method's block are equal.

    Raises:
        DataError: there is no QUATRO run with the log-ratio term, or no run has an entropy.
    """
    clipped = [one for one in settings if one.method == GSPO]
    found = widest_by_delta(of_method(settings, QUATRO), beside=clipped)
    notes = []
    if not clipped:
        notes.append("no run of gspo to compare with")
    elif not any(one.method == GSPO for one in found):
        notes.append("gspo is left out: its runs differ from quatro's in learning rate, K or another common key")
    labels = [one.label for one in found]
    with styled():
        grid = new_grid(1, num_columns=1, size=(4.6, 2.9), labels=labels)
        axis = grid.axes[0]
        draw_settings(axis, found, [line_look(place) for place in places(labels)], ENTROPY, title=ENTROPY.title)
        if not axis.lines:
            raise DataError(f"no run has a finite {ENTROPY.name}; nothing to draw")
        axis.set_ylabel(ENTROPY.unit)
        axis.set_xlabel("step")
        add_legend(grid.figure, labels)
        fixed = shortened(f"{value_text(found[0], LR)}, {fixed_text(found[0], LR)}", 60)
        add_foot(grid.figure, f"{fixed}\n{reading(found)}")
    return Drawn(grid.figure, notes)


def stability_figure(settings: Sequence[RunSetting]) -> Drawn:
    """(a) over K and (b) over the learning rate: reward and entropy; (c) the log-ratio term: reward and KL.

    The colour stands for the method, dash and marker for the value. A part without runs is left out and noted.

    Raises:
        DataError: no part can be drawn; the message names what is missing.
    """
    stable = [one for one in settings if one.log_ratio != NO_LOG_RATIO]
    parts: list[_Part] = []
    notes = []
    for letter, axis in (("a", INNER_UPDATES), ("b", LR)):
        found = comparison(stable, axis, methods=(GSPO, QUATRO))
        if not found:
            notes.append(
                f"({letter}) needs runs of gspo or quatro that differ in {AXES[axis]} alone; {_held(stable, axis)}"
            )
            continue
        notes += [
            f"({letter}) has too few values of {AXES[axis]} for {method} beside these: {_held(found, axis, method)}"
            for method in (GSPO, QUATRO)
            if sum(one.method == method for one in found) < 2
        ]
        parts.append(
            (f"({letter}) {AXES[axis]}", fixed_text(found[0], axis), (REWARD, ENTROPY), found, _looks(found, axis))
        )
    ablated = _log_ratio_pair(settings)
    if ablated:
        fixed = f"{_named(ablated[0])}, {value_text(ablated[0], LR)}, {fixed_text(ablated[0], LR)}"
        looks = [
            (_log_ratio_label(one), line_look(position) | {"color": (PALETTE[0], PALETTE[2], PALETTE[1])[position]})
            for position, one in enumerate(ablated)
        ]
        parts.append(("(c) log-ratio term", fixed, (REWARD, KL), ablated, looks))
    else:
        kinds = ", ".join(dict.fromkeys(str(one.log_ratio) for one in settings if one.method == QUATRO)) or "no quatro"
        notes.append(f"(c) needs quatro runs that differ in method.log_ratio alone, none and another; found {kinds}")
    if not parts:
        raise DataError("; ".join(notes))
    with styled():
        grid = new_grid(2 * len(parts), num_columns=2, size=(3.7, 2.0))
        for row, (title, fixed, metrics, found, looks) in enumerate(parts):
            for column, metric in enumerate(metrics):
                axes = grid.axes[2 * row + column]
                panel_title = f"{title}: {metric.title.lower()}" if column == 0 else metric.title
                draw_settings(axes, found, [look for _, look in looks], metric, title=panel_title)
                axes.set_ylabel(metric.unit)
                if not axes.lines:
                    notes.append(f"{title}: no run has a finite {metric.name}")
                if row == len(parts) - 1:
                    axes.set_xlabel("step")
            heading = "\n".join(shortened(line, 40) for line in fixed.split(", "))
            handles = [key(label, look) for label, look in looks]
            legend = grid.axes[2 * row + 1].legend(handles=handles, loc="center left", bbox_to_anchor=(1.02, 0.5))
            head_legend(legend, heading)
        add_foot(grid.figure, reading([one for part in parts for one in part[3]]))
    return Drawn(grid.figure, notes)


def _looks(found: Sequence[RunSetting], axis: str) -> list[tuple[str, dict[str, Any]]]:
    values = sorted({getattr(one, axis) for one in found})
    looks = []
    for one in found:
        at = values.index(getattr(one, axis))
        look = line_look(at) | {"color": METHOD_LOOKS[one.method].color, "linestyle": LINES[at % len(LINES)]}
        looks.append((f"{one.label}, {value_text(one, axis)}", look | {"marker": MARKERS[at % len(MARKERS)]}))
    return looks


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


def _named(setting: RunSetting) -> str:
    """The setting's label without the words about the log-ratio term."""
    return replace(setting, log_ratio=None).label


def _log_ratio_label(setting: RunSetting) -> str:
    return "without log-ratio" if setting.log_ratio == NO_LOG_RATIO else f"with log-ratio ({setting.log_ratio})"


def _held(settings: Sequence[RunSetting], axis: str, method: str | None = None) -> str:
    held = [f"{one.method} {value_text(one, axis)}" for one in settings if method in (None, one.method)]
    return f"found {', '.join(dict.fromkeys(held)) or 'none'}"
