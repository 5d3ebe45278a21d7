"""The paper's figures of training: off-policy steps, stability, what delta does to advantages and lambda, entropy.

A comparison is of runs that differ in one key alone; it has a panel for each metric, and for each method of many.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evals.errors import DataError
from evals.figures.grid import LEAST_FACET, Part, new_figure, wrapped
from evals.figures.method_looks import MOST_LINES, Facet, Look, looks_of, place_of, variants
from evals.figures.panels import line_key, line_keys, line_look, panel_title, small_title
from evals.figures.run_settings import (
    AXES,
    ENTROPY,
    GSPO,
    INNER_UPDATES,
    KL,
    LOG_RATIO,
    LR,
    NO_LOG_RATIO,
    QUATRO,
    REWARD,
    Drawn,
    Line,
    RunSetting,
    draw_metric,
    left_out,
    lines_of,
    reading,
)
from evals.figures.sheet import PAGE, SMALL, Figure, Line2D, Sheet, styled
from evals.files.frames import grouped
from evals.results.training_metrics import Metric, training_metric

# Runs of older versions know the share of tokens only; the paper counts samples.
CLIPPED, CLIPPED_SAMPLES = training_metric("clip_fraction"), training_metric("clip_fraction_samples")
LAMBDA = replace(training_metric("dual/lam_mean"), title="λ over training", is_log=True)
_NEEDED = "needs two runs of one method that differ in nothing else (`quatro runs compare` says what differs)"


def limitation_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """Reward, clipped share and entropy of the baselines over learning rates and over K, all else equal.

    A baseline has a panel of its own if there are more than four curves. One that does not vary is left out and named,
    and so is a comparison without runs.

    Raises DataError if there is no run of a baseline, or no two that differ only in learning rate or K.
    """
    baselines = [one for one in settings if one.method != QUATRO]
    if not baselines:
        methods = ", ".join(dict.fromkeys(one.method for one in settings)) or "none"
        raise DataError(f"no run of a baseline such as {GSPO} among the runs given (methods: {methods}); train one")
    found = {axis: _varied(comparison(baselines, axis), axis) for axis in AXES}
    notes = [f"{AXES[axis]}: {_NEEDED}" for axis, group in found.items() if not group]
    held = {axis: group for axis, group in found.items() if group}
    if not held:
        raise DataError(
            f"{'; '.join(notes)}; train more, for example "
            "`quatro sweep CONFIG -m gspo -g inner_updates=1,2,5` or `-g optimizer.lr=1e-4,1e-3`"
        )
    drawn = [one for group in held.values() for one in group]
    by_samples = all(one.has(CLIPPED_SAMPLES) for one in drawn)
    wanted = (REWARD, CLIPPED_SAMPLES if by_samples else CLIPPED, ENTROPY)
    metrics = [metric for metric in wanted if any(one.has(metric) for one in drawn)]
    if not metrics:
        raise DataError(f"no run has a finite number of {', '.join(metric.name for metric in wanted)}")
    comparisons = [
        Comparison(f"({letter}) {AXES[axis]}", axis, group, metrics)
        for letter, (axis, group) in zip("ab", held.items(), strict=False)
    ]
    return Drawn(draw_comparisons(comparisons, sheet=sheet), notes + left_out(settings, drawn))


def stability_figure(settings: Sequence[RunSetting], *, sheet: Sheet = PAGE) -> Drawn:
    """(a) over K and (b) over the learning rate: reward and entropy; (c) the log-ratio term: reward and KL.

    A method has a panel of its own where a part would have more than four curves. A part without runs is left out and
    noted, and so is each run that stands in no part.

    Raises DataError if no part can be drawn; the message names what is missing.
    """
    stable = [one for one in settings if one.log_ratio != NO_LOG_RATIO]
    comparisons: list[Comparison] = []
    notes = []
    for letter, axis in (("a", INNER_UPDATES), ("b", LR)):
        found = comparison(stable, axis)
        if found:
            comparisons.append(Comparison(f"({letter}) {AXES[axis]}", axis, found, (REWARD, ENTROPY)))
        else:
            notes.append(f"({letter}) {AXES[axis]}: {_NEEDED}")
    ablated = _log_ratio_pair(settings)
    if ablated:
        comparisons.append(Comparison("(c) log-ratio term", LOG_RATIO, ablated, (REWARD, KL)))
    else:
        notes.append("(c) needs quatro runs that differ in method.log_ratio alone, none and another")
    if not comparisons:
        raise DataError("; ".join(notes))
    drawn = [one for part in comparisons for one in part.settings]
    return Drawn(draw_comparisons(comparisons, sheet=sheet), notes + left_out(settings, drawn))


def comparison(settings: Iterable[RunSetting], axis: str) -> list[RunSetting]:
    """Settings that differ in ``axis`` alone, by method and value; empty if no method takes two values.

    All keys outside the method's block are equal, and within a method that block is equal too. If there are several
    such groups, the one in which most methods take two values is taken, then the one with most values, then most runs.
    """
    other = INNER_UPDATES if axis == LR else LR
    best: list[RunSetting] = []
    best_score = (0, 0, 0)
    for group in grouped(settings, lambda one: (getattr(one, other), one.shared)).values():
        chosen = []
        for _, of_method in sorted(grouped(group, lambda one: one.method).items(), key=lambda some: place_of(some[0])):
            alike = max(grouped(of_method, lambda one: (one.delta, one.log_ratio, one.own)).values(), key=_size)
            chosen.append(sorted(alike, key=lambda one: one.place(axis)))
        everyone = [one for found in chosen for one in found]
        score = (sum(len(found) > 1 for found in chosen), *_size(everyone))
        if score[0] and score > best_score:
            best, best_score = everyone, score
    return best


def _size(settings: Sequence[RunSetting]) -> tuple[int, int]:
    return len(settings), sum(len(setting.runs) for setting in settings)


def _varied(group: Sequence[RunSetting], axis: str) -> list[RunSetting]:
    """Those of methods with two values of ``axis``."""
    values = {(one.method, one.place(axis)) for one in group}
    varied = [name for name, times in Counter(method for method, _ in values).items() if times > 1]
    return [one for one in group if one.method in varied]


def _log_ratio_pair(settings: Sequence[RunSetting]) -> list[RunSetting]:
    """QUATRO settings that differ in log_ratio alone, `none` last; empty if `none` or the others are missing.

    If there are several such groups, the largest is taken, then the one with most runs, then the paper's own (delta
    0.1, K 2).
    """

    def score(group: Sequence[RunSetting]) -> tuple[int, int, bool]:
        return *_size(group), (group[0].delta, group[0].inner_updates) == (0.1, 2)

    ours = [one for one in settings if one.method == QUATRO]
    groups = grouped(ours, lambda one: (one.delta, one.lr, one.inner_updates, one.shared, one.own))
    pairs = [
        group for group in groups.values() if len(group) > 1 and any(one.log_ratio == NO_LOG_RATIO for one in group)
    ]
    best = max(pairs, key=score, default=[])
    return sorted(best, key=lambda one: one.place(LOG_RATIO))


@dataclass(frozen=True)
class Comparison:
    """``settings`` that differ in ``axis`` alone, by method and value."""

    title: str
    axis: str
    settings: Sequence[RunSetting]
    metrics: Sequence[Metric]

    def value(self, setting: RunSetting) -> str:
        """What tells the curves of a method apart."""
        return setting.value(self.axis)

    def method(self, setting: RunSetting) -> str:
        """The name of the method."""
        return replace(setting, log_ratio=None).label if self.axis == LOG_RATIO else setting.label

    def line(self, setting: RunSetting) -> str:
        """What names the curve of ``setting``, and nothing else."""
        return f"{self.method(setting)}\0{self.value(setting)}"

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(map(self.method, self.settings)))

    @property
    def values(self) -> list[str]:
        """All values, ascending."""
        return list(dict.fromkeys(map(self.value, sorted(self.settings, key=lambda one: one.place(self.axis)))))

    def looks(self) -> list[Look]:
        """The look of each setting: that of its method, in the shade and with the dash of its value."""
        of_method = dict(zip(self.methods, looks_of(self.methods), strict=True))
        values = self.values
        return [
            variants(of_method[self.method(setting)], len(values))[values.index(self.value(setting))]
            for setting in self.settings
        ]

    def facets(self, shown: dict[str, str], *, is_split: bool) -> list[Facet]:
        """One facet, or with ``is_split`` one for each of several methods."""
        if not is_split or len(self.methods) == 1:
            return [Facet("", tuple(map(self.line, self.settings)))]
        lines = {name: [self.line(one) for one in self.settings if self.method(one) == name] for name in self.methods}
        return [Facet(shown[name], tuple(own)) for name, own in lines.items()]

    def keys(self, shown: dict[str, str], *, is_split: bool) -> list[Line2D]:
        """The legend: the values alone in grey where each method has its panel; else each method with each value."""
        if is_split:
            labels, looks = self.values, variants(Look("#555555", "o"), len(self.values))
        else:
            labels = [f"{shown[self.method(setting)]}, {self.value(setting)}" for setting in self.settings]
            looks = self.looks()
        return [line_key(label, line_look(look)) for label, look in zip(labels, looks, strict=True)]


def draw_comparisons(comparisons: Sequence[Comparison], *, sheet: Sheet = PAGE) -> Figure:
    """The comparisons one above the other, or side by side if each is of one and the same method."""
    shown = sheet.shown(list(dict.fromkeys(name for one in comparisons for name in one.methods)))
    is_split = any(len(one.settings) > MOST_LINES and len(one.methods) > 1 for one in comparisons)
    with styled():
        parts = []
        for one in comparisons:
            facets = one.facets(shown, is_split=is_split)
            is_many = len(facets) > 1
            foot = reading([each for some in comparisons for each in some.settings]) if one is comparisons[-1] else []
            parts.append(
                Part(
                    sheet.width,
                    len(one.metrics),
                    1.05 if is_many else 1.45,
                    facets,
                    least=LEAST_FACET if len(facets) > 3 else 1.5,
                    most=2 if is_many else 3,
                    keys=one.keys(shown, is_split=is_many),
                    note=wrapped([*one.settings[0].fixed(one.axis).split(", "), *foot], sheet.width - 0.15, joint=", "),
                    title=one.title,
                )
            )
        figure, grids = new_figure(sheet, *parts)
        for one, grid in zip(comparisons, grids, strict=True):
            looks = map(line_look, one.looks())
            lines = [Line(one.line(each), look, each.runs) for each, look in zip(one.settings, looks, strict=True)]
            for place, metric in enumerate(one.metrics):
                draw_metric(grid, place, metric, lines, behind=False)
    return figure


# ---- what delta does


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
