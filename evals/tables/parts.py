"""The parts of all tables: cells, lines and sections, and the commonest table, methods x k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from evals.errors import UsageError
from evals.results.entries import Entry, Number

DIGITS = 2  # after the decimal point, as in the paper


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name. Neighbours with the same ``group`` stand under one heading. Words are set at the left."""

    name: str
    group: str = ""
    is_text: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.group} {self.name}" if self.group else self.name


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in the unit that is shown, or a ``text`` in its place. A misprint is never the best.

    ``spread`` is the smaller and the larger of the two values that it is the mean of; ``digits`` stand after the
    decimal point.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    is_best: bool = False
    is_ours: bool = False
    is_misprint: bool = False
    text: str = ""
    spread: tuple[float, float] | None = None
    digits: int = DIGITS


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table."""

    label: str
    cells: tuple[Cell | None, ...]
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Lines under one heading (a model, a code benchmark) with the columns they share."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. ``name`` is unique in a document; ``stub`` and ``section_kind`` head the labels and section titles.

    On paper, neighbouring tables with the same ``plate`` share a float, whose title it is.
    """

    title: str
    name: str
    stub: str
    section_kind: str
    unit: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    plate: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """How numbers are shown. Numbers that are equal after rounding to `DIGITS` are equally good.

    ``with_ci``: what is beside a number, its interval or spread, is shown too.
    """

    ks: Sequence[int] | None = None
    with_average: bool = False
    with_ci: bool = False


_EVERY_DIGIT = Context(prec=400, rounding=ROUND_HALF_UP)  # of the largest float


def decimal_text(value: float, digits: int = DIGITS) -> str:
    """``value`` with this many digits. A tie up to float noise is rounded up, as in the paper's means."""
    exact = Decimal(f"{value:.{min(digits + 8, 12)}f}")
    return f"{exact.quantize(Decimal(1).scaleb(-digits), context=_EVERY_DIGIT):f}"


def cell_text(cell: Cell | None) -> str:
    """What stands in the cell, without its marks; `-` where nothing is known."""
    if cell is None:
        return "-"
    return cell.text if cell.value is None else decimal_text(cell.value, cell.digits)


def beside_text(cell: Cell) -> str:
    """`[1.00, 2.00]` for an interval, `(1.00 to 2.00)` for the values of two seeds; empty where there is neither."""
    if cell.low is not None and cell.high is not None:
        return f"[{decimal_text(cell.low)}, {decimal_text(cell.high)}]"
    if cell.spread is not None:
        return f"({' to '.join(map(decimal_text, cell.spread))})"
    return ""


def method_table(
    title: str,
    name: str,
    entries: Sequence[Entry],
    ks: Sequence[int],
    number_of: Callable[[Entry, int], Number | None],
    style: Style,
    notes: Sequence[str],
    *,
    is_share: bool = True,
    plate: str = "",
) -> Table:
    """Methods x k, in a section for each model. The best of each column is that of its section."""
    ks = [k for k in ks if any(number_of(entry, k) for entry in entries)]
    columns = tuple(Column(str(k)) for k in ks)
    models = list(dict.fromkeys(entry.model for entry in entries))
    scale = 100.0 if is_share else 1.0
    sections, all_notes = [], list(notes)
    for model in models:
        members = [entry for entry in entries if entry.model == model]
        grid = [[number_of(entry, k) for k in ks] for entry in members]
        best_columns = [cells_of(column, scale=scale) for column in zip(*grid, strict=True)]
        lines = []
        for position, entry in enumerate(members):
            cells = tuple(column[position] for column in best_columns)
            if any(cells):
                lines.append(Line(entry.label, cells, is_ours=entry.is_ours))
                numbers = zip(ks, grid[position], strict=True)
                all_notes += [
                    misprint_note(f"{entry.label}, k = {k}", number) for k, number in numbers if is_wrong(number)
                ]
        heading = model or ("" if len(models) == 1 else "model not stated")
        if lines:
            sections.append(Section(heading, columns, tuple(lines)))
    unit = "percent" if is_share else "count"
    return Table(title, name, "Method", "Model", unit, tuple(sections), tuple(all_notes), plate)


def cells_of(
    numbers: Sequence[Number | None], *, scale: float = 1.0, ours: Sequence[bool] | None = None
) -> list[Cell | None]:
    """Cells of which the highest as shown is marked best, if there are at least two."""
    texts = [None if number is None else Decimal(decimal_text(number.value * scale)) for number in numbers]
    rivals = [text for text, number in zip(texts, numbers, strict=True) if text is not None and not is_wrong(number)]
    best = max(rivals) if len(rivals) > 1 else None
    cells: list[Cell | None] = []
    for position, number in enumerate(numbers):
        if number is None:
            cells.append(None)
            continue
        low, high = ((end * scale if end is not None else None) for end in (number.low, number.high))
        is_best = texts[position] == best and not is_wrong(number)
        is_ours = ours is not None and ours[position]
        spread = number.spread and (number.spread[0] * scale, number.spread[1] * scale)
        cells.append(Cell(number.value * scale, low, high, is_best, is_ours, is_wrong(number), spread=spread))
    return cells


def ks_of(entries: Sequence[Entry], metric: str, style: Style) -> list[int]:
    """The ks of ``style``, or all that the entries have; raises UsageError for one that no entry has."""
    found = {key.k for entry in entries for key in entry.numbers if key.metric == metric and key.k is not None}
    if style.ks is None:
        return sorted(found)
    for k in style.ks:
        if k not in found:
            raise UsageError(
                f"--k {k}: no {metric} at k = {k} in the files, only at {', '.join(map(str, sorted(found)))}"
            )
    return list(dict.fromkeys(style.ks))


def unique_labels(entries: Sequence[Entry]) -> list[str]:
    """Labels, with the model where two models share one."""
    labels = [entry.label for entry in entries]
    return [
        f"{entry.label} ({entry.model or 'model not stated'})" if labels.count(entry.label) > 1 else entry.label
        for entry in entries
    ]


def is_wrong(number: Number | None) -> bool:
    """Whether ``number`` is a misprint."""
    return number is not None and number.misprint is not None


def misprint_note(where: str, number: Number | None) -> str:
    """The note below a table about a misprint."""
    assert number is not None
    return f"† {where}: a misprint of the paper, left out of the comparison; {number.misprint}."
