"""Runs grouped by setting: which settings can be compared, their mean over seeds, and how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.errors import DataError
from evals.figures.panels import GREY, shortened, start_at_zero
from evals.figures.style import make_logarithmic
from evals.files.metric_rows import Rows, running_mean, series
from evals.training_metrics import Metric, training_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

GSPO, QUATRO = "gspo", "quatro"
NO_LOG_RATIO = "none"
LR, INNER_UPDATES = "lr", "inner_updates"
AXES = {LR: "learning rate", INNER_UPDATES: "inner updates K"}


@dataclass(frozen=True)
class RunSetting:
    """Runs that differ in their seed alone; ``runs`` holds the rows of metrics.jsonl of each.

    ``shared`` and ``own`` say, as text, in which other keys settings that were read together differ: outside and inside
    the method's block. ``advantages`` (QUATRO) is A of a correct rollout when c = 1, 2, ..., N - 1 of N are correct;
    ``capped`` are the c at which delta was out of reach and was lowered.
    """

    method: str
    lr: float
    inner_updates: int
    runs: tuple[Rows, ...]
    delta: float | None = None
    log_ratio: str | None = None
    shared: str = ""
    own: str = ""
    advantages: tuple[float, ...] = ()
    capped: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """The method as the paper writes it, with its delta and what else tells it apart."""
        radius = "" if self.delta is None else f" δ {self.delta:g}"
        term = "" if self.log_ratio in (None, "detached") else f", log-ratio {self.log_ratio}"
        return f"{self.method.upper()}{radius}{term}{f', {self.own}' if self.own else ''}"


class Drawn(NamedTuple):
    """A figure, and what could not be drawn in it and why."""

    figure: Figure
    notes: list[str]


class Curve(NamedTuple):
    """The mean over runs at each step they have in common; ``low`` and ``high`` are the smallest and largest run."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


REWARD, ENTROPY = training_metric("reward/mean"), training_metric("entropy/token_mean")
KL = replace(training_metric("kl/new_old"), title="Realised KL")


def of_method(settings: Sequence[RunSetting], method: str) -> list[RunSetting]:
    """The settings of ``method``; raises DataError, which names the others, if there is none."""
    found = [setting for setting in settings if setting.method == method]
    if not found:
        others = ", ".join(dict.fromkeys(setting.method for setting in settings)) or "none"
        raise DataError(f"no run of {method} among the runs given (methods: {others}); train one with -m {method}")
    return found


def comparison(settings: Iterable[RunSetting], axis: str, *, methods: Sequence[str]) -> list[RunSetting]:
    """Settings of ``methods`` that differ in ``axis`` alone, by method and value; empty if none takes two values.

    All keys outside the method's block are equal, and within a method that block is equal too. If there are several
    such groups, the one in which most methods take two values is taken, then the one with most values, then most runs.
    """
    other = INNER_UPDATES if axis == LR else LR
    best: list[RunSetting] = []
    best_score = (0, 0, 0)
    for group in grouped(settings, lambda one: (getattr(one, other), one.shared)):
        chosen = []
        for method in methods:
            alike = grouped(
                (one for one in group if one.method == method), lambda one: (one.delta, one.log_ratio, one.own)
            )
            chosen.append(max(alike, key=_size, default=[]))
        everyone = [one for found in chosen for one in sorted(found, key=lambda one: float(getattr(one, axis)))]
        score = (sum(len(found) > 1 for found in chosen), *_size(everyone))
        if score[0] and score > best_score:
            best, best_score = everyone, score
    return best


def grouped(settings: Iterable[RunSetting], key: Callable[[RunSetting], Hashable]) -> list[list[RunSetting]]:
    """Groups of settings with equal keys, in order of their first members."""
    groups: dict[Hashable, list[RunSetting]] = {}
    for setting in settings:
        groups.setdefault(key(setting), []).append(setting)
    return list(groups.values())


def mean_curve(runs: Sequence[Rows], metric: Metric) -> Curve:
    """The running means of ``runs`` averaged, at the steps that all of them have; geometric on a logarithmic axis.

    A geometric mean keeps one spike from lifting its neighbourhood. Runs without a number of ``metric`` do not count.
    """
    smooth = []
    for rows in runs:
        steps, values = series(rows, metric.name)
        pairs = [(step, value) for step, value in zip(steps, values, strict=True) if value > 0 or not metric.is_log]
        transformed = [math.log(value) if metric.is_log else value for _, value in pairs]
        means = running_mean(transformed, 2 * (len(transformed) // 24) + 1)
        if pairs:
            smooth.append(dict(zip((step for step, _ in pairs), means, strict=True)))
    steps = sorted(set.intersection(*(set(one) for one in smooth))) if smooth else []
    back = math.exp if metric.is_log else float
    columns = [[one[step] for one in smooth] for step in steps]
    return Curve(
        steps,
        [back(math.fsum(column) / len(column)) for column in columns],
        [back(min(column)) for column in columns],
        [back(max(column)) for column in columns],
    )


def draw_settings(
    axis: Axes, settings: Sequence[RunSetting], looks: Sequence[dict[str, Any]], metric: Metric, *, title: str
) -> None:
    """A curve for each of ``settings``, the title and the scale of the y axis."""
    for position, (setting, look) in enumerate(zip(settings, looks, strict=True)):
        _draw_setting(axis, setting, metric, look, place=(position, len(settings)))
    axis.set_title(title)
    if not axis.lines:
        return
    if metric.is_log:
        make_logarithmic(axis)
    else:
        start_at_zero(axis)
        if axis.dataLim.y1 <= 0:  # nothing was clipped: a flat line, not an axis of 1e-17
            axis.set_ylim(0, 1)


def _draw_setting(
    axis: Axes, setting: RunSetting, metric: Metric, look: dict[str, Any], *, place: tuple[int, int]
) -> None:
    """The mean over seeds with a band. A single run has its unsmoothed values, faint, instead.

    ``place`` is the curve's number and the number of curves, so that their markers stand at different steps.
    """
    curve = mean_curve(setting.runs, metric)
    if not curve.steps:
        return
    if len(setting.runs) == 1:
        steps, values = series(setting.runs[0], metric.name)
        if metric.is_log:
            values = [value if value > 0 else math.nan for value in values]
        axis.plot(steps, values, color=look["color"], linewidth=0.6, alpha=0.22)
    else:
        axis.fill_between(curve.steps, curve.low, curve.high, color=look["color"], alpha=0.15, linewidth=0)
    every = max(1, len(curve.steps) // 6)
    axis.plot(curve.steps, curve.mean, markevery=(place[0] * every // place[1], every), **look)


def key(label: str, look: dict[str, Any]) -> Any:
    """A matplotlib key for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=shortened(label), **(look | {"markersize": 4.5, "linewidth": 1.8}))


def has_numbers(setting: RunSetting, metric: Metric) -> bool:
    """Whether a run of ``setting`` has a finite number of ``metric``."""
    return any(series(rows, metric.name)[0] for rows in setting.runs)


def value_text(setting: RunSetting, axis: str) -> str:
    """``lr 0.0003`` or ``K 5``."""
    return f"lr {setting.lr:g}" if axis == LR else f"K {setting.inner_updates}"


def fixed_text(setting: RunSetting, axis: str) -> str:
    """What is the same for all curves of a comparison over ``axis``."""
    other = value_text(setting, INNER_UPDATES if axis == LR else LR)
    return ", ".join(part for part in (other, setting.shared) if part)


def reading(settings: Sequence[RunSetting]) -> str:
    """Says what a line and its band mean."""
    counts = sorted({len(setting.runs) for setting in settings})
    seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    band = "band: smallest to largest seed" if counts[-1] > 1 else "faint: every step"
    return f"running mean, {seeds} seed{'s' if counts[-1] > 1 else ''} a curve; {band}"


def add_foot(figure: Figure, text: str) -> None:
    """Small ``text`` at the foot, or above the keys of the figure's legend if it has one."""
    for legend in figure.legends:
        head_legend(legend, text)
    if not figure.legends:
        figure.supxlabel(text, fontsize=7, color=GREY, x=0.99, ha="right")


def head_legend(legend: Legend, text: str) -> None:
    """Small ``text`` above the keys of ``legend``."""
    legend.set_title(text)
    legend.set_alignment("left")
    legend.get_title().set(fontsize=7, color=GREY)


def _size(settings: Sequence[RunSetting]) -> tuple[int, int]:
    return len(settings), sum(len(setting.runs) for setting in settings)
