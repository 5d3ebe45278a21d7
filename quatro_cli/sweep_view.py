"""What is said of the warnings of a sweep's runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quatro.sweep.summary import PointOutcome

SHOWN_WARNINGS = 5
WARNING_WIDTH = 140  # characters of a point and its first warning


def told_warnings(folder: Path, outcomes: Sequence[PointOutcome]) -> list[str]:
    """A line for each point that warned, with its first warning, at most ``SHOWN_WARNINGS``; then where all are."""
    warned = [outcome for outcome in outcomes if outcome.warnings]
    if not warned:
        return []
    lines = []
    for one in warned[:SHOWN_WARNINGS]:
        number = f"{len(one.warnings)} warning{'s' if len(one.warnings) > 1 else ''}"
        lines.append(shorten(f"{one.point.name} ({number}): {one.warnings[0]}", WARNING_WIDTH, placeholder=" ..."))
    more = f"{len(warned) - SHOWN_WARNINGS} more points warned; " if len(warned) > SHOWN_WARNINGS else ""
    places = f"{quote(str(folder / 'runs'))}/*/log.txt {quote(str(folder / 'logs'))}/*"
    return [*lines, f"{more}all warnings: `grep -i warning {places}`"]
