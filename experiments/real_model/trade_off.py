"""Accuracy against diversity: one point for each model, the base as a star, and QUATRO's deltas joined."""

from collections.abc import Sequence
from typing import NamedTuple

from evals.figures.grid import GREY, Part, new_figure
from evals.figures.method_looks import BASE, delta_of, family_of
from evals.figures.panels import line_key, line_look
from evals.figures.sheet import PAGE, SMALL, Figure, styled

Interval = tuple[float | None, float | None]


class Point(NamedTuple):
    """A model: its accuracy and its diversity, each with the interval that is known of it."""

    label: str
    accuracy: float
    diversity: float
    accuracy_interval: Interval = (None, None)
    diversity_interval: Interval = (None, None)


def trade_off_figure(points: Sequence[Point], *, accuracy: str, diversity: str, note: str = "") -> Figure:
    """Points further to the right are right more often, points further up in more ways."""
    labels = PAGE.labels([point.label for point in points])
    with styled():
        looks = {name: line_look(look) | {"linestyle": "none", "markersize": 6} for name, look in labels.with_looks}
        for name in looks:
            if family_of(name) == BASE:
                looks[name] |= {"marker": "*", "markersize": 10}
        keys = [line_key(labels.shown[name], look) for name, look in looks.items()]
        figure, (grid,) = new_figure(PAGE, Part(PAGE.width, 1, 2.9, keys=keys, note=note))
        axis = grid.axes[0]
        deltas = sorted((point for point in points if delta_of(point.label)), key=lambda one: delta_of(one.label) or 0)
        path = [point.accuracy for point in deltas], [point.diversity for point in deltas]
        axis.plot(*path, color=looks[deltas[0].label]["color"] if deltas else GREY, linewidth=0.8, zorder=1)
        for point in points:
            look = looks[point.label]
            bars = {"color": look["color"], "linewidth": 0.8, "alpha": 0.6}
            (left, right), (low, high) = point.accuracy_interval, point.diversity_interval
            if left is not None and right is not None:
                axis.hlines(point.diversity, left, right, **bars)
            if low is not None and high is not None:
                axis.vlines(point.accuracy, low, high, **bars)
            axis.plot([point.accuracy], [point.diversity], **look)
        axis.set_xlabel(accuracy, fontsize=SMALL)
        axis.set_ylabel(diversity, fontsize=SMALL)
    return figure
