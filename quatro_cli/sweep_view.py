"""What is shown of a sweep while it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quatro.runs.views.live import Panel
    from quatro.sweep.measure import SweepEvaluation
    from quatro.sweep.plan import Point
    from quatro.sweep.summary import PointOutcome

SHOWN_ROWS = 12
LEFT_INTERVAL_S = 10.0  # between two looks at how much is left
SHOWN_WARNINGS = 5
WARNING_WIDTH = 140  # characters of a point and its first warning


class SweepView:
    """A `quatro.sweep.run.Board`: ``panel`` shows what it was told last, and how much training is left."""

    def __init__(self, folder: Path, points: Sequence[Point], evaluation: SweepEvaluation | None) -> None:
        self._folder, self._points, self._evaluation = folder, points, evaluation
        self._asked_at, self._end = -math.inf, math.inf
        self.panel = sweep_panel(folder, points, dict.fromkeys((one.name for one in points), "waits"), evaluation)

    def __call__(self, states: Mapping[str, str]) -> None:
        from evals.errors import DataError
        from evals.text import clock_text
        from quatro.sweep.cost import seconds_left

        now = time.monotonic()
        if now - self._asked_at >= LEFT_INTERVAL_S:  # all metrics are read for it
            running = [state for state in states.values() if _is_running(state)]
            going = [one for one in self._points if states.get(one.name, "done") in ("done", "waits", *running)]
            try:
                seconds = seconds_left(going, self._folder)
            except DataError:  # the summary names the file
                seconds = None
            self._asked_at = now
            self._end = math.inf if seconds is None else now + seconds / max(1, len(running))
        left = f", about {clock_text(self._end - now)} of training left" if math.isfinite(self._end) else ""
        self.panel = sweep_panel(self._folder, self._points, states, self._evaluation, left)


def sweep_panel(
    folder: Path, points: Sequence[Point], states: Mapping[str, str], evaluation: SweepEvaluation | None, left: str = ""
) -> Panel:
    """What each point does that has begun and is not done; ``states`` are those of a `quatro.sweep.run.Board`.

    Where there are many, those that run come first.
    """
    from quatro.runs.views.live import Panel

    waiting = [point for point in points if states.get(point.name) == "waits"]
    num_done = sum(states.get(point.name, "done") == "done" for point in points)
    active = [point for point in points if states.get(point.name, "done") not in ("waits", "done")]
    active.sort(key=lambda point: not _is_running(states[point.name]))
    rows = [(point.name, _words(folder, point, states[point.name], evaluation)) for point in active[:SHOWN_ROWS]]
    hidden = f", {len(active) - SHOWN_ROWS} more begun" if len(active) > SHOWN_ROWS else ""
    rows.append(("", f"{num_done} done, {len(waiting)} wait{hidden}{left}"))
    return Panel(str(folder), num_done, len(points), rows)


def _is_running(state: str) -> bool:
    return state in ("trains", "resumes", "runs already") or state.startswith(("is sampled", "is measured"))


def _words(folder: Path, point: Point, state: str, evaluation: SweepEvaluation | None) -> str:
    """The state with the step, reward and number of warnings of a run, or the benchmark that is being sampled."""
    from evals.errors import DataError
    from quatro.runs.metrics import last_metrics
    from quatro.sample.folder import Tag
    from quatro.sweep.measure import run_folder, sampled_last
    from quatro.sweep.run import warnings_of

    head, _, how = state.partition(", ")
    tag = Tag.parse(how)
    if head == "is sampled" and tag is not None and evaluation is not None:
        name = sampled_last(evaluation, run_folder(folder, point), tag)
        names = evaluation.benchmarks
        return f"{state}: {Path(name).stem}, {names.index(name) + 1} of {len(names)}" if name is not None else state
    if state not in ("trains", "resumes", "runs already"):
        return state
    try:
        row = last_metrics(run_folder(folder, point))
    except DataError:  # the summary names the file
        row = {}
    reward = row.get("reward/mean")
    shown = f"  reward {reward:.3f}" if isinstance(reward, float) else ""
    warned = _counted(len(warnings_of(point, folder)))
    return f"{state}  {int(row.get('step') or 0)}/{point.config.steps}{shown}{f'  {warned}' if warned else ''}"


def told_warnings(folder: Path, outcomes: Sequence[PointOutcome]) -> list[str]:
    """A line for each point that warned, with its first warning, at most ``SHOWN_WARNINGS``; then where all are."""
    warned = [outcome for outcome in outcomes if outcome.warnings]
    if not warned:
        return []
    lines = []
    for one in warned[:SHOWN_WARNINGS]:
        text = f"{one.point.name} ({_counted(len(one.warnings))}): {one.warnings[0]}"
        lines.append(shorten(text, WARNING_WIDTH, placeholder=" ..."))
    more = f"{len(warned) - SHOWN_WARNINGS} more points warned; " if len(warned) > SHOWN_WARNINGS else ""
    places = f"{quote(str(folder / 'runs'))}/*/log.txt {quote(str(folder / 'logs'))}/*"
    return [*lines, f"{more}all warnings: `grep -i warning {places}`"]


def _counted(num_warnings: int) -> str:
    return f"{num_warnings} warning{'s' if num_warnings > 1 else ''}" if num_warnings else ""
