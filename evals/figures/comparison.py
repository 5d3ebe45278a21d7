"""Runs that differ in one key alone, and how such comparisons are drawn: a panel for each method and metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evals.figures.grid import LEAST_FACET, Part, new_figure, styled, wrapped
from evals.figures.method_looks import METHOD_LOOKS, MOST_LINES, Facet, Look, looks_of, variants
from evals.figures.panels import line_key, line_look
from evals.figures.run_settings import (
    AXES,
    INNER_UPDATES,
    LR,
    Line,
    RunSetting,
    draw_lines,
    fixed_text,
    grouped,
    reading,
    value_text,
)
from evals.figures.sheet import PAGE, Sheet
from evals.figures.training import head_panels
from evals.training_metrics import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@dataclass(frozen=True)
class Comparison:
    """``settings`` that differ in ``axis`` alone (None: in their log-ratio term), by method and value."""

    title: str
    axis: str | None
    settings: Sequence[RunSetting]
    metrics: Sequence[Metric]

    def value(self, setting: RunSetting) -> str:
        """What tells the curves of a method apart."""
        if self.axis is not None:
            return value_text(setting, self.axis)
        return "without log-ratio" if setting.log_ratio == "none" else f"with log-ratio ({setting.log_ratio})"

    def method(self, setting: RunSetting) -> str:
        """The name of the method."""
        return setting.label if self.axis is not None else setting.without_log_ratio

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(map(self.method, self.settings)))

    @property
    def values(self) -> list[str]:
        """All values, ascending."""
        ordered = sorted(self.settings, key=lambda one: float(getattr(one, self.axis)) if self.axis else 0.0)
        return list(dict.fromkeys(map(self.value, ordered)))

    @property
    def fixed(self) -> list[str]:
        """What all curves have in common."""
        first = self.settings[0]
        if self.axis is not None:
            return fixed_text(first, self.axis).split(", ")
        return [value_text(first, LR), *fixed_text(first, LR).split(", ")]


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


def method_order(settings: Sequence[RunSetting]) -> list[str]:
    """The methods of ``settings``, known ones first and in their order."""
    held = dict.fromkeys(one.method for one in settings)
    return [*(name for name in METHOD_LOOKS if name in held), *(name for name in held if name not in METHOD_LOOKS)]


def lacking(settings: Sequence[RunSetting], axis: str) -> str:
    """Says which values of ``axis`` each method has, where two with all else equal are needed."""
    found = []
    for method in method_order(settings):
        values = sorted({float(getattr(one, axis)) for one in settings if one.method == method})
        found.append(f"{method} {', '.join(f'{value:g}' for value in values)}")
    return f"{AXES[axis]}: needs two runs of one method that differ in nothing else; found {'; '.join(found) or 'none'}"


def draw_comparisons(comparisons: Sequence[Comparison], *, sheet: Sheet = PAGE) -> Figure:
    """The comparisons one above the other, or side by side if each is of one and the same method."""
    shown = sheet.shown(list(dict.fromkeys(name for one in comparisons for name in one.methods)))
    is_split = any(len(one.settings) > MOST_LINES and len(one.methods) > 1 for one in comparisons)
    foot = reading([one for comparison in comparisons for one in comparison.settings])
    with styled():
        parts, plans = [], []
        for place, one in enumerate(comparisons):
            facets = _facets(one, shown, is_split=is_split)
            said = [*one.fixed, *(foot if place == len(comparisons) - 1 else [])]
            plans.append((one, facets))
            parts.append(
                Part(
                    len(one.metrics),
                    1.05 if len(facets) > 1 else 1.45,
                    len(facets),
                    least=LEAST_FACET if len(facets) > 3 else 1.5,
                    most=2 if len(facets) > 1 else 3,
                    keys=_keys(one, shown, is_split=len(facets) > 1),
                    note=wrapped(said, sheet.width - 0.15, joint=", "),
                    title=one.title,
                )
            )
        figure, grids = new_figure(sheet, parts)
        for (one, facets), part, grid in zip(plans, parts, grids, strict=True):
            looks = _looks(one)
            lines = [
                Line(f"{one.method(setting)}\0{one.value(setting)}", line_look(looks[place]), setting.runs)
                for place, setting in enumerate(one.settings)
            ]
            for place, (metric, axes) in enumerate(zip(one.metrics, grid.panels, strict=True)):
                draw_lines(axes, facets, lines, metric, behind=False)
                head_panels(axes, metric, facets, part, sheet, place=place)
    return figure


def _facets(one: Comparison, shown: dict[str, str], *, is_split: bool) -> list[Facet]:
    methods = one.methods
    labels = {
        method: tuple(f"{method}\0{one.value(setting)}" for setting in one.settings if one.method(setting) == method)
        for method in methods
    }
    if not is_split or len(methods) == 1:
        return [Facet("", tuple(label for own in labels.values() for label in own))]
    return [Facet(shown[method], own) for method, own in labels.items()]


def _looks(one: Comparison) -> list[Look]:
    """The look of each setting: that of its method, in the shade and with the dash of its value."""
    of_method = dict(zip(one.methods, looks_of(one.methods), strict=True))
    values = one.values
    return [
        variants(of_method[one.method(setting)], len(values))[values.index(one.value(setting))]
        for setting in one.settings
    ]


def _keys(one: Comparison, shown: dict[str, str], *, is_split: bool) -> list[Line2D]:
    """The legend: the values alone in grey where each method has its panel; else each method with each value."""
    labels, looks = one.values, variants(Look("#555555", "o"), len(one.values))
    if not is_split:
        labels = [f"{shown[one.method(setting)]}, {one.value(setting)}" for setting in one.settings]
        looks = _looks(one)
    return [line_key(label, line_look(look)) for label, look in zip(labels, looks, strict=True)]


def _size(settings: Sequence[RunSetting]) -> tuple[int, int]:
    return len(settings), sum(len(setting.runs) for setting in settings)
