"""Baselines beside QUATRO: entropy over training, and what off-policy steps do (paper, Figs. entropy, stability)."""

from __future__ import annotations

from collections.abc import Sequence

from evals.errors import DataError
from evals.figures.comparison import Comparison, comparison, draw_comparisons, method_order
from evals.figures.delta_lambda import widest_by_delta
from evals.figures.grid import Part, new_figure, styled, wrapped
from evals.figures.method_looks import facets_of, looks_of
from evals.figures.panels import line_keys, line_look
from evals.figures.run_settings import (
    AXES,
    ENTROPY,
    INNER_UPDATES,
    KL,
    LR,
    NO_LOG_RATIO,
    QUATRO,
    REWARD,
    Drawn,
    Line,
    RunSetting,
    draw_lines,
    fixed_text,
    grouped,
    has_numbers,
    left_out,
    reading,
    value_text,
)
from evals.figures.sheet import PAGE, Sheet
from evals.figures.training import head_panels


def entropy_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """Token entropy over steps: each delta of QUATRO and each baseline, with all keys outside the method's block equal.

    More than four curves have a panel for each method. A run that is not drawn is named, with the reason.

    Raises:
        DataError: no run has an entropy, or all runs are of QUATRO without the log-ratio term.
    """
    known = [one for one in settings if has_numbers(one, ENTROPY)]
    if not known:
        raise DataError(f"no run has a finite {ENTROPY.name}; nothing to draw")
    notes = [f"left out: {one.named}, which has no finite {ENTROPY.name}" for one in settings if one not in known]
    found = widest_by_delta(known)
    for is_ours, name in ((True, QUATRO), (False, "a baseline")):
        if not any((one.method == QUATRO) == is_ours for one in known):
            notes.append(f"no run of {name} to compare with")
    notes += left_out(known, found)
    labels = [one.label for one in found]
    shown, looks = sheet.shown(labels), looks_of(labels)
    facets = facets_of(labels, shown)
    lines = [Line(one.label, line_look(look), one.runs) for one, look in zip(found, looks, strict=True)]
    with styled():
        said = [value_text(found[0], LR), fixed_text(found[0], LR), *reading(found)]
        note = wrapped(
            [*said, *(["grey: the other methods"] if len(facets) > 1 else [])], sheet.width - 0.15, joint=", "
        )
        height = 2.1 if len(facets) == 1 else 1.5
        keys = line_keys(labels, looks, shown, facets)
        part = Part(1, height, len(facets), least=1.5, keys=keys, note=note)
        figure, (grid,) = new_figure(sheet, [part])
        draw_lines(grid.panels[0], facets, lines, ENTROPY)
        head_panels(grid.panels[0], ENTROPY, facets, part, sheet, place=0)
    return Drawn(figure, notes)


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
            notes.append(f"({letter}) needs runs of one method that differ only in {AXES[axis]}; {_held(stable, axis)}")
            continue
        notes += [
            f"({letter}) has too few values of {AXES[axis]} for {method} beside these: {_held(found, axis, method)}"
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


def _held(settings: Sequence[RunSetting], axis: str, method: str | None = None) -> str:
    held = [f"{one.method} {value_text(one, axis)}" for one in settings if method in (None, one.method)]
    return f"found {', '.join(dict.fromkeys(held)) or 'none'}"
