"""The colour and marker of each method, wherever curves are labelled by method.

The colours are those of Okabe and Ito, "Color Universal Design" (2008): readers who are colour-blind tell them apart,
and markers survive a black-and-white printer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class MethodLook(NamedTuple):
    """How a method's curve is drawn."""

    color: str
    marker: str


METHOD_LOOKS = {
    "quatro": MethodLook("#0072B2", "o"),  # blue
    "gspo": MethodLook("#D55E00", "s"),  # vermilion
    "grpo": MethodLook("#009E73", "^"),  # green
    "gmpo": MethodLook("#CC79A7", "D"),  # purple
    "gpg": MethodLook("#E69F00", "v"),  # orange
    "dapo": MethodLook("#56B4E9", "P"),  # sky blue
    "cispo": MethodLook("#000000", "X"),
}
# Curves with other labels take these looks in turn.
PALETTE = tuple(look.color for look in METHOD_LOOKS.values())
MARKERS = tuple(look.marker for look in METHOD_LOOKS.values())


def places(labels: Iterable[str]) -> list[int]:
    """The number of each label's look: its own for the name of a method, the first free one for any other label."""
    methods = list(METHOD_LOOKS)
    found: list[int | None] = []
    for label in labels:
        place = methods.index(label.lower()) if label.lower() in METHOD_LOOKS else None
        found.append(None if place in found else place)
    free = (place for place in range(len(methods) + len(found)) if place not in found)
    return [next(free) if place is None else place for place in found]
