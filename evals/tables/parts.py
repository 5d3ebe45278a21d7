"""The parts of all tables: cells, lines and sections, and the commonest table, methods x k."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal

from evals.errors import UsageError
from evals.results.entries import Entry, Number
from evals.results.shown import unit_of

DIGITS = 2  # after the decimal point, as in the paper


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name. Neighbours with the same ``group`` stand under one heading."""

    name: str
    group: str = ""
    is_ours: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.group} {self.name}" if self.group else self.name


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in the unit that is shown. A misprint is never the best.

    ``over`` is what the interval from ``low`` to ``high`` is over; ``digits`` stand after the decimal point.
    """

    value: float
    low: float | None = None
    high: float | None = None
    is_best: bool = False
    is_misprint: bool = False
    over: str | None = None
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

    @property
    def columns(self) -> tuple[Column, ...] | None:
        """The columns of all sections, if they have the same."""
        found = {section.columns for section in self.sections}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Style:
    """How numbers are shown; those equal after rounding to `DIGITS` are equally good. ``with_ci``: with intervals."""

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
    return "-" if cell is None else decimal_text(cell.value, cell.digits)


def beside_text(cell: Cell) -> str:
    """`[1.00, 2.00]`, the interval of a cell; empty where there is none."""
    if cell.low is None or cell.high is None:
        return ""
    return f"[{decimal_text(cell.low)}, {decimal_text(cell.high)}]"


def method_table(
    title: str,
    name: str,
    entries: Sequence[Entry],
    ks: Sequence[int],
    number_of: Callable[[Entry, int], Number | None],
    *,
    metric: str,
    notes: Sequence[str] = (),
    plate: str = "",
) -> Table:
    """Methods x k, in a section for each model. The best of each column is that of its section."""
    ks = [k for k in ks if any(number_of(entry, k) for entry in entries)]
    columns = tuple(Column(str(k)) for k in ks)
    models = list(dict.fromkeys(entry.model for entry in entries))
    scale, unit = unit_of(metric)
    sections, all_notes = [], list(notes)
    for model in models:
        members = [entry for entry in entries if entry.model == model]
        of_columns = [cells_of([number_of(entry, k) for entry in members], scale=scale) for k in ks]
        lines = lines_of(members, of_columns)
        all_notes += misprint_notes((f"{entry.label}, k = {k}", number_of(entry, k)) for entry in members for k in ks)
        heading = model or ("" if len(models) == 1 else "model not stated")
        if lines:
            sections.append(Section(heading, columns, lines))
    return Table(title, name, "Method", "Model", unit, tuple(sections), tuple(all_notes), plate)


def lines_of(
    entries: Sequence[Entry], of_columns: Sequence[Sequence[Cell | None]], labels: Sequence[str] | None = None
) -> tuple[Line, ...]:
    """A line for each entry that has a number; ``of_columns`` has a cell for each entry in each column."""
    labels = labels or [entry.label for entry in entries]
    lines = (
        Line(label, tuple(cells[place] for cells in of_columns), is_ours=entry.is_ours)
        for place, (entry, label) in enumerate(zip(entries, labels, strict=True))
    )
    return tuple(line for line in lines if any(line.cells))


def cells_of(numbers: Sequence[Number | None], *, scale: float = 1.0) -> list[Cell | None]:
    """Cells of which the highest as shown is marked best, if there are at least two."""
    cells = [None if number is None else _cell(number, scale) for number in numbers]
    rivals = [Decimal(cell_text(cell)) for cell in cells if cell is not None and not cell.is_misprint]
    best = max(rivals) if len(rivals) > 1 else None
    return [cell and replace(cell, is_best=not cell.is_misprint and Decimal(cell_text(cell)) == best) for cell in cells]


def _cell(number: Number, scale: float) -> Cell:
    low, high = ((end * scale if end is not None else None) for end in (number.low, number.high))
    return Cell(number.value * scale, low, high, is_misprint=number.misprint is not None, over=number.over)


def ks_of(entries: Sequence[Entry], metric: str, style: Style) -> list[int]:
    """The ks of ``style``, or all that the entries have; raises UsageError for one that no entry has."""
    found = {key.k for entry in entries for key in entry.numbers if key.metric == metric and key.k is not None}
    if style.ks is None:
        return sorted(found)
    for k in style.ks:
        require_k(k, metric, found)
    return list(dict.fromkeys(style.ks))


def require_k(k: int, metric: str, held: Iterable[int | None]) -> None:
    """Raises UsageError unless ``k`` is among those that the files hold ``metric`` at."""
    known = sorted({one for one in held if one is not None})
    if k not in known:
        raise UsageError(f"--k {k}: no {metric} at k = {k} in the files, only at {', '.join(map(str, known))}")


def unique_labels(entries: Sequence[Entry]) -> list[str]:
    """Labels, with the model where two models share one."""
    labels = [entry.label for entry in entries]
    return [
        f"{entry.label} ({entry.model or 'model not stated'})" if labels.count(entry.label) > 1 else entry.label
        for entry in entries
    ]


def misprint_notes(numbers: Iterable[tuple[str, Number | None]]) -> list[str]:
    """The notes below a table about misprints among ``numbers``, each with the place where it stands."""
    return [
        f"† {where}: a misprint of the paper, left out of the comparison; {number.misprint}."
        for where, number in numbers
        if number is not None and number.misprint is not None
    ]
