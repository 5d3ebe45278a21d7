"""The state of a point of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quatro.sweep.plan import Point


@dataclass(frozen=True)
class PointOutcome:
    """The state of a point: ``status`` as in its status.json, or ``missing``; ``reason`` if it is not done.

    With an evaluation a trained point is ``unmeasured`` until ``measured`` holds its numbers.
    """

    point: Point
    status: str
    reason: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
