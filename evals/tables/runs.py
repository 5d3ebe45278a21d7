"""Tables of the hyper-parameters of runs: one of what all runs share, one of what differs, with a column for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evals.tables.parts import Cell, Column, Line, Section, Table
from evals.text import visible


class HyperParameter(NamedTuple):
    """One hyper-parameter of a run: ``source`` says whose value it is. A usual one is shown only where runs differ.

    A usual value is a default of ours outside of the paper's table.
    """

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
