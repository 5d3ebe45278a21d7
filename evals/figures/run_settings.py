"""Runs grouped by setting: which settings can be compared, their mean over seeds, and how it is drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from evals.figures.grid import Grid
from evals.figures.method_looks import Labels, method_title
from evals.figures.panels import draw_behind, finish_y_axis, head_facets, line_look, name_beside, panel_title, smaller
from evals.figures.sheet import SMALL, Axes, Figure
from evals.results.training_metrics import EVALUATED, Metric, Rows, running_mean, series, training_metric

GSPO, QUATRO = "gspo", "quatro"
NO_LOG_RATIO = "none"
LR, INNER_UPDATES, LOG_RATIO = "lr", "inner_updates", "log_ratio"
SMOOTHED_STEPS = 24  # shorter curves show every step, since a running mean over so few would hide them
AXES = {LR: "learning rate", INNER_UPDATES: "inner updates K"}


@dataclass(frozen=True)
class RunSetting:
    """Runs that differ in their seed alone; ``runs`` holds the rows of metrics.jsonl of each.

    ``shared`` and ``own`` say, as text, in which other keys settings that were read together differ: outside and inside
    the method's block. ``advantages`` (QUATRO) is A of a correct rollout when c = 1, 2, ..., N - 1 of N are correct;
    ``capped`` are the c at which delta was out of reach and was lowered; ``names`` are those of the runs.
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
    names: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """All that tells it apart from others, and the names of its runs."""
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{self.label}, {self.fixed(LOG_RATIO)}{names}"

    @property
    def label(self) -> str:
        """The method as the paper writes it, with its delta and what else tells it apart."""
        radius = "" if self.delta is None else f" δ {self.delta:g}"
        term = "" if self.log_ratio in (None, "detached") else f", log-ratio {self.log_ratio}"
        return f"{method_title(self.method)}{radius}{term}{f', {self.own}' if self.own else ''}"

    def has(self, metric: Metric) -> bool:
        """Whether a run has a finite number of ``metric``."""
        return any(series(rows, metric.name)[0] for rows in self.runs)

    def value(self, axis: str) -> str:
        """``lr 0.0003``, ``K 5`` or ``without log-ratio``."""
        if axis == LOG_RATIO:
            return "without log-ratio" if self.log_ratio == NO_LOG_RATIO else f"with log-ratio ({self.log_ratio})"
        return f"lr {self.lr:g}" if axis == LR else f"K {self.inner_updates}"

    def place(self, axis: str) -> float:
        """The number on ``axis`` that puts settings in order: the detached log-ratio first, none last."""
        if axis == LOG_RATIO:
            return {"detached": 0, NO_LOG_RATIO: 2}.get(str(self.log_ratio), 1)
        return self.lr if axis == LR else self.inner_updates

    def fixed(self, axis: str) -> str:
        """What is the same for all curves of a comparison over ``axis``."""
        others = [self.value(other) for other in AXES if other != axis]
        return ", ".join(filter(None, [*others, self.shared]))


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


def mean_curve(runs: Sequence[Rows], metric: Metric) -> Curve:
    """The running means of ``runs`` averaged, at the steps that all of them have; geometric on a logarithmic axis.

    A geometric mean keeps one spike from lifting its neighbourhood. Runs without a number of ``metric`` do not count.
    """
    smooth = []
    for rows in runs:
        steps, values = series(rows, metric.name)
        pairs = [(step, value) for step, value in zip(steps, values, strict=True) if value > 0 or not metric.is_log]
        transformed = [math.log(value) if metric.is_log else value for _, value in pairs]
        means = running_mean(transformed, 2 * (len(transformed) // SMOOTHED_STEPS) + 1)
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


class Line(NamedTuple):
    """One curve over the steps: its label, look and runs, which differ in their seed alone."""

    label: str
    look: dict[str, Any]
    runs: tuple[Rows, ...]


def lines_of(labels: Labels, runs: Iterable[tuple[Rows, ...]]) -> list[Line]:
    """The line of each of ``labels``, whose runs these are."""
    pairs = zip(labels.with_looks, runs, strict=True)
    return [Line(name, line_look(look), own) for (name, look), own in pairs]


def draw_metric(
    grid: Grid, place: int, metric: Metric, lines: Sequence[Line], *, behind: bool = True, seeds_as_lines: bool = False
) -> None:
    """Panel ``place`` with its title: the curves of each facet, and those of the others pale ``behind``.

    Several seeds are a mean with a band, or with a thin line for each. A single run has its unsmoothed values, faint.
    """
    axes, facets = grid.panels[place], grid.part.facets
    means = [mean_curve(line.runs, metric) for line in lines]
    for axis, facet in zip(axes, facets, strict=True):
        own = [at for at, line in enumerate(lines) if line.label in facet.labels]
        for at, mean in enumerate(means):
            if behind and at not in own and mean.steps and any(means[one].steps for one in own):
                draw_behind(axis, mean.steps, mean.mean)
        for nth, at in enumerate(own):
            if means[at].steps:
                line = lines[at] if len(facets) == 1 else lines[at]._replace(look=smaller(lines[at].look))
                _draw_line(axis, line, means[at], metric, (nth, len(own)), seeds_as_lines=seeds_as_lines)
    finish_y_axis(axes, is_log=metric.is_log, from_zero=True if metric.is_share else None)
    if len(facets) > 1:
        head_facets(grid, place, [metric.title, metric.unit], x_label="step")
    else:
        panel_title(axes[0], metric.title, grid.part.title_inches)
        name_beside(axes[0], [metric.unit], grid.part.height - 0.2)
        axes[0].set_xlabel("step", fontsize=SMALL)


def _draw_line(
    axis: Axes, line: Line, mean: Curve, metric: Metric, place: tuple[int, int], *, seeds_as_lines: bool
) -> None:
    """``place`` is the curve's number and the number of curves, so that their markers stand at different steps."""
    color = line.look["color"]
    if len(line.runs) == 1 and len(mean.steps) >= SMOOTHED_STEPS:
        steps, values = series(line.runs[0], metric.name)
        if metric.is_log:
            values = [value if value > 0 else math.nan for value in values]
        axis.plot(steps, values, color=color, linewidth=0.5, alpha=0.25, zorder=1.9)
    elif len(line.runs) > 1 and seeds_as_lines:
        for run in line.runs:
            one = mean_curve([run], metric)
            axis.plot(one.steps, one.mean, color=color, linewidth=0.5, alpha=0.5, zorder=1.9)
    elif len(line.runs) > 1:
        axis.fill_between(mean.steps, mean.low, mean.high, color=color, alpha=0.15, linewidth=0)
    if metric.name.startswith(EVALUATED):
        # Of several seeds the mean of their errors: they answer the same problems, so that these do not cancel.
        error_at = mean_curve(line.runs, replace(metric, name=f"{metric.name}_se", is_log=False))
        errors = dict(zip(error_at.steps, error_at.mean, strict=True))
        if errors.keys() >= set(mean.steps):
            bars = [errors[step] for step in mean.steps]
            axis.errorbar(mean.steps, mean.mean, yerr=bars, fmt="none", ecolor=color, elinewidth=0.7, capsize=1.5)
    every = max(1, len(mean.steps) // 5)
    axis.plot(mean.steps, mean.mean, markevery=(place[0] * every // place[1], every), **line.look)


def reading(settings: Sequence[RunSetting]) -> list[str]:
    """Says what a line and its band mean."""
    counts = sorted({len(setting.runs) for setting in settings})
    seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    is_smooth = is_smoothed(run for setting in settings for run in setting.runs)
    if counts[-1] > 1:
        mean = "running mean" if is_smooth else "mean of the seeds"
        return [mean, f"{seeds} seeds a curve", "band: smallest to largest seed"]
    return ["running mean", "1 seed a curve", "faint: every step"] if is_smooth else ["every step", "1 seed a curve"]


def is_smoothed(runs: Iterable[Rows]) -> bool:
    """Whether the curve of one of ``runs`` is a running mean over several steps."""
    return any(len(rows) >= SMOOTHED_STEPS for rows in runs)


def left_out(settings: Sequence[RunSetting], drawn: Sequence[RunSetting]) -> list[str]:
    """A note that names those of ``settings`` that are not among those ``drawn``; none if all are."""
    missing = [one.named for one in settings if not any(one is other for other in drawn)]
    return [f"left out: {'; '.join(missing)}"] if missing else []
