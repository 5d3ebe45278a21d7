"""Panels of one figure: how many stand side by side on a sheet, which of them share axes, the legend below them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evals.errors import DataError
from evals.figures.method_looks import Facet
from evals.figures.sheet import SMALL, STYLE, Axes, Figure, Sheet, SubFigure, fitted, inches_of, legible

GREY = "#666666"
_LEGEND_SIZE = STYLE["legend.fontsize"]
_LEGEND_LINE, _NOTE_LINE, _TITLE_LINE = 0.16, 0.14, 0.2  # inches
_KEY_INCHES = 0.5  # a key, and the gap before the next column
_BESIDE_FACETS = 0.75  # the label and ticks at the left of facets
LEAST = 1.55  # inches: the width of a panel with axes of its own, and
LEAST_FACET = 0.82  # of one of many that share theirs


@dataclass(frozen=True)
class Part:
    """``num_panels`` on a sheet of this ``width``, a legend of matplotlib ``keys`` and a ``note``.

    Each panel has its ``facets`` on shared axes, or axes of the relative widths ``ratios``, which share nothing.
    ``height`` is that of a panel, and ``least`` the width that a facet needs, in inches; ``title`` stands above all.
    """

    width: float
    num_panels: int
    height: float
    facets: Sequence[Facet] = (Facet("", ()),)
    least: float = LEAST
    most: int = 3
    keys: Sequence[Any] = ()
    note: str = ""
    title: str = ""
    ratios: tuple[float, ...] = ()

    @property
    def num_facets(self) -> int:
        """Axes of a panel."""
        return len(self.ratios or self.facets)

    @property
    def columns(self) -> tuple[int, int, int]:
        """Facets side by side, lines of them in a panel, and panels side by side."""
        least = self.least if self.num_facets <= 3 else min(self.least, LEAST_FACET)
        fit = max(1, int((self.width + 0.05) / least))
        lines = math.ceil(self.num_facets / fit)
        across = math.ceil(self.num_facets / lines)
        most = max(1, min(self.num_panels, self.most, fit // across))
        return across, lines, math.ceil(self.num_panels / math.ceil(self.num_panels / most))  # two by two, not 3 and 1

    @property
    def title_inches(self) -> float:
        """How wide the title of a panel, or of a facet, may be."""
        across, _, beside = self.columns
        if self.num_facets == 1:
            return self.width / beside - 0.6
        return (self.width / beside - _BESIDE_FACETS) / across - 0.05

    @property
    def rows(self) -> int:
        """Rows of axes."""
        _, lines, beside = self.columns
        return math.ceil(self.num_panels / beside) * lines

    @property
    def inches(self) -> float:
        """The height of everything."""
        notes = _NOTE_LINE * (self.note.count("\n") + 1) if self.note else 0.0
        legend = _LEGEND_LINE * math.ceil(len(self.keys) / legend_columns(self)) + 0.08 if self.keys else 0.0
        return self.rows * self.height + legend + notes + (_TITLE_LINE if self.title else 0.0) + 0.1


class Grid(NamedTuple):
    """A part of a figure, and the axes of its panels by facet."""

    part: Part
    panels: list[list[Axes]]

    @property
    def axes(self) -> list[Axes]:
        """The axes of panels that have one facet."""
        return [own[0] for own in self.panels]

    @property
    def inches(self) -> float:
        """The width of one panel's facet."""
        across, _, beside = self.part.columns
        return self.part.width / (beside * across)


def new_figure(sheet: Sheet, *parts: Part) -> tuple[Figure, list[Grid]]:
    """A figure as wide as the sheet: axes for each part, with its legend; raises DataError without a panel."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if not parts or any(part.num_panels < 1 for part in parts):
        raise DataError("nothing to draw: no panel has a number")
    heights = [part.inches for part in parts]
    figure = Figure(
        figsize=(sheet.width, sum(heights)),
        layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02),
    )
    wholes: list[Figure | SubFigure] = [figure]
    if len(parts) > 1:
        wholes = list(figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights, hspace=0).flat)
    return figure, [Grid(part, _lay_out(whole, part)) for whole, part in zip(wholes, parts, strict=True)]


def _lay_out(figure: Figure | SubFigure, part: Part) -> list[list[Axes]]:
    """The axes of the part's panels, its title and its legend."""
    across, lines, beside = part.columns
    ratios = part.ratios * beside if part.ratios else None
    cells = figure.subplots(part.rows, beside * across, squeeze=False, width_ratios=ratios)
    for axis in cells.flat:
        axis.set_axis_off()
    panels: list[list[Axes]] = []
    for place in range(part.num_panels):
        top, left = place // beside * lines, place % beside * across
        own = [cells[top + at // across][left + at % across] for at in range(part.num_facets)]
        for at, axis in enumerate(own):
            axis.set_axis_on()
            if part.ratios:
                continue
            if part.num_facets > 1 and (panels or at):
                axis.sharex(panels[0][0] if panels else own[0])
            if at:
                axis.sharey(own[0])
            if at % across:
                axis.tick_params(labelleft=False)
            if at + across < part.num_facets or (
                part.num_facets > 1 and lines == 1 and place + beside < part.num_panels
            ):
                axis.tick_params(labelbottom=False)
        panels.append(own)
    if part.title:
        title = fitted(part.title, part.width - 0.2, size=8.5, weight="bold")
        figure.suptitle(title, fontsize=8.5, fontweight="bold", x=0.01, ha="left")
    if part.keys or part.note:
        _add_legend(figure, part)
    return panels


def _add_legend(figure: Figure | SubFigure, part: Part) -> None:
    """The legend, whose labels are cut to the width, below the panels; above it the small note."""
    if not part.keys:
        figure.supxlabel(note_text(part.note, part.width), fontsize=SMALL, color=GREY, x=0.99, ha="right")
        return
    for key in part.keys:
        key.set_label(legend_text(str(key.get_label()), part.width))
    legend = figure.legend(handles=list(part.keys), loc="outside lower center", ncols=legend_columns(part))
    if part.note:
        legend.set_title(note_text(part.note, part.width))
        legend.set_alignment("left")
        legend.get_title().set(fontsize=SMALL, color=GREY)


def legend_text(label: str, width: float) -> str:
    """``label`` as it fits into a legend."""
    return fitted(label, width - _KEY_INCHES - 0.1, size=_LEGEND_SIZE)


def legend_columns(part: Part) -> int:
    """As many columns as the longest label leaves room for."""
    labels = [legend_text(str(key.get_label()), part.width) for key in part.keys]
    longest = max((inches_of(label, size=_LEGEND_SIZE) for label in labels), default=0.0)
    return max(1, min(len(labels), int(part.width / (longest + _KEY_INCHES))))


def note_text(note: str, width: float) -> str:
    """Each line of ``note`` as it fits."""
    return "\n".join(fitted(line, width - 0.15, size=SMALL) for line in note.split("\n"))


def wrapped(
    parts: Sequence[str], width: float, *, size: float = SMALL, weight: str = "normal", joint: str = "; ", most: int = 9
) -> str:
    """``parts`` on as few lines as they fit on, and at most so many; the last one may be too long then."""
    lines: list[str] = []
    for part in map(legible, filter(None, parts)):
        longer = f"{lines[-1]}{joint}{part}" if lines else part
        if lines and (len(lines) == most or inches_of(longer, size=size, weight=weight) <= width):
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(lines)
