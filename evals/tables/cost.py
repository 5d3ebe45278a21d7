"""What training cost: the share of each phase of an iteration, tokens, hours and responses a second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evals.errors import DataError
from evals.files.metric_rows import is_finite, metric_rows
from evals.files.strict_json import shown
from evals.tables.parts import Cell, Column, Line, Section, Table
from evals.text import visible

STEP_S = "perf/step_s"
_UP_TO_UPDATES = ("prompts", "generate", "reward", "dual", "old_logp", "ref_logp", "update")
_AFTERWARDS = ("audit", "sync", "eval", "checkpoint", "log", "other")
PHASES = tuple(f"perf/{phase}_s" for phase in (*_UP_TO_UPDATES, *_AFTERWARDS))
_NEEDED = (STEP_S, "tokens", "rollouts")
SHARE_GROUP = "Time, %"
SMALLEST_SHARE = 0.005  # phases below it in every run stand together with the other time


def cost_table(runs: Mapping[str, Sequence[Path]]) -> Table:
    """A line for each label; of several run directories, its seeds, the mean.

    Raises:
        DataError: a run has no iteration, or an iteration without its time, responses or tokens.
    """
    costs = {label: _cost_of(folders) for label, folders in runs.items()}
    phases = [phase for phase in PHASES[:-1] if any(one.share(phase) >= SMALLEST_SHARE for one in costs.values())]
    is_long = any(one.mean(STEP_S) >= 3600 for one in costs.values())
    is_large = any(one.mean("tokens") >= 1e6 for one in costs.values())
    columns = [Column(_phase(phase), SHARE_GROUP) for phase in (*phases, PHASES[-1])]
    time, tokens = "hours" if is_long else "minutes", f"{'million' if is_large else 'thousand'} tokens"
    names = ("iterations", "s / iteration", time, tokens, "responses / s")
    lines = []
    for label, cost in costs.items():
        shares = [100 * cost.share(phase) for phase in phases]
        numbers = [
            cost.total[STEP_S] / sum(cost.steps),
            cost.mean(STEP_S) / (3600 if is_long else 60),
            cost.mean("tokens") / (1e6 if is_large else 1e3),
            cost.total["rollouts"] / cost.total[STEP_S],
        ]
        steps = Cell(None, text="-".join(map(str, sorted({min(cost.steps), max(cost.steps)}))))
        cells = (*map(Cell, (*shares, 100 - math.fsum(shares))), steps, *map(Cell, numbers))
        lines.append(Line(visible(label), cells))
    notes = ["Tokens are those of the responses. Evaluations and checkpoints are part of the time."]
    several = ", ".join(f"{visible(label)} ({len(one.steps)})" for label, one in costs.items() if len(one.steps) > 1)
    notes += [f"Means of several seeds: {several}."] if several else []
    section = Section("", (*columns, *map(Column, names)), tuple(lines))
    return Table("What training cost", "cost", "Run", "", "", (section,), tuple(notes))


class _Cost(NamedTuple):
    """The iterations of each of some runs, and sums of their metrics over all of them."""

    steps: list[int]
    total: Mapping[str, float]

    def mean(self, name: str) -> float:
        """Of one run."""
        return self.total[name] / len(self.steps)

    def share(self, phase: str) -> float:
        """Of all the time."""
        return self.total[phase] / self.total[STEP_S]


def _cost_of(folders: Sequence[Path]) -> _Cost:
    steps, found = [], []
    for folder in folders:
        file = folder / "metrics.jsonl"
        if not file.is_file():
            raise DataError(f"{file} does not exist: the run has not begun; `quatro train {folder} --resume` goes on")
        # An iteration that was trained again, after a crash, counts once.
        rows = {row["step"]: (at, row) for at, row in metric_rows(file)}
        if not rows:
            raise DataError(f"{file}: it has no iteration yet")
        for at, row in rows.values():
            for key in _NEEDED:
                if not (is_finite(row.get(key)) and row[key] > 0):
                    raise DataError(f"{at}: {key} is {shown(row.get(key))}; the layout cost needs it in every line")
        steps.append(len(rows))
        found += [row for _, row in rows.values()]
    return _Cost(steps, {key: math.fsum(row.get(key) or 0.0 for row in found) for key in (*_NEEDED, *PHASES)})


def _phase(name: str) -> str:
    return name.removeprefix("perf/").removesuffix("_s").replace("_", " ")
