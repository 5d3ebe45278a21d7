"""The options that all figures share, and where a figure is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from quatro_cli.output import output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evals.figures.sheet import Sheet


@dataclass(frozen=True)
class Printing:
    """The shared options: the width and names of a figure, and its file."""

    width: Annotated[
        Literal["column", "page"], Option("--width", metavar="column|page", help="Width in print: 3.25 or 6.75 inches.")
    ] = "page"
    labels: Annotated[
        str | None,
        Option("--labels", metavar="NAME[,NAME]", help="Names for the legend, in order; an empty one changes nothing."),
    ] = None
    out: Annotated[
        Path | None,
        Option("-o", "--out", metavar="FILE", help="PNG, SVG or PDF. Default: a PNG here, named like the command."),
    ] = None

    @property
    def sheet(self) -> Sheet:
        from evals.figures.sheet import WIDTHS, Sheet

        names = () if self.labels is None else tuple(name.strip() for name in self.labels.split(","))
        return Sheet(WIDTHS[self.width], names)

    def save(self, figure: Figure, name: str, *, default: Path | None = None) -> None:
        """Writes ``figure`` to the file asked for, else to ``default`` or NAME.png, and prints the path."""
        from evals.figures.sheet import save_figure

        path = self.out or default or Path(f"{name}.png")
        save_figure(figure, path)
        output.data(str(path))
