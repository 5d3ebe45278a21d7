"""Tables of runs: what training cost, and hyper-parameters.

The cost is the share of each phase of an iteration, tokens, hours and responses a second. Hyper-parameters that all
runs share stand in one table, and those that differ in one with a column for each run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evals.errors import DataError
from evals.files.strict_json import shown
from evals.tables.parts import Cell, Column, Line, Section, Table
from evals.text import visible
from evals.training_metrics import is_finite, metric_rows

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


class HyperParameter(NamedTuple):
    """One hyper-parameter of a run: ``source`` says whose value it is. A usual one is shown only where runs differ."""

    group: str
    name: str
    value: str
    source: str
    is_usual: bool = False


def settings_tables(runs: Mapping[str, Sequence[HyperParameter]]) -> list[Table]:
    """A table of what the runs share, and one of what differs; each only if it holds something.

    A dash stands where a run has no such setting. The source of values that differ is said once if it is the same.
    """
    found: dict[tuple[str, str], dict[str, HyperParameter]] = {}
    for run, settings in runs.items():
        for one in settings:
            found.setdefault((one.group, one.name), {})[run] = one
    shared: dict[str, list[Line]] = {}
    differing: dict[str, list[Line]] = {}
    for group in dict.fromkeys(group for group, _ in found):
        for (of_group, name), by_run in found.items():
            if of_group != group:
                continue
            sides = [by_run.get(run) for run in runs]
            first = next(side for side in sides if side is not None)
            source = _words(_sources(by_run))
            if all(side is not None and side.value == first.value for side in sides):
                if not first.is_usual:
                    shared.setdefault(group, []).append(Line(visible(name), (_words(first.value), source)))
            else:
                cells = (None if side is None else _words(side.value) for side in sides)
                differing.setdefault(group, []).append(Line(visible(name), (*cells, source)))
    whose = Column("Source", is_text=True)
    value = Column("All runs" if len(runs) > 1 else visible(next(iter(runs))), is_text=True)
    columns = (*(Column(visible(run), is_text=True) for run in runs), whose)
    title = "Hyper-parameters" + (" that all runs share" if len(runs) > 1 else "")
    return [
        Table(title, name, "Hyper-parameter", "Group", "", _sections(lines, heads))
        for title, name, lines, heads in (
            ("Hyper-parameters that differ between the runs", "differing", differing, columns),
            (title, "shared", shared, (value, whose)),
        )
        if lines
    ]


def _sources(by_run: Mapping[str, HyperParameter]) -> str:
    """Whose the values are: the commonest source, then the runs that have another."""
    runs_of: dict[str, list[str]] = {}
    for run, setting in by_run.items():
        runs_of.setdefault(setting.source, []).append(run)
    first, *others = sorted(runs_of, key=lambda source: -len(runs_of[source]))
    return "; ".join([first, *(f"{', '.join(runs_of[source])}: {source}" for source in others)])


def _words(text: str) -> Cell:
    return Cell(None, text=visible(text))


def _sections(lines: Mapping[str, Sequence[Line]], columns: Sequence[Column]) -> tuple[Section, ...]:
    return tuple(Section(group, tuple(columns), tuple(some)) for group, some in lines.items())
