"""What figures are printed on: the one style, widths, titles and names; how much text fits; and writing to files.

matplotlib is imported inside the functions (extra `plot`). The same numbers give the same bytes: no dates, no ids.
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evals.errors import UsageError
from evals.figures.method_looks import Labels, facets_of, looks_of
from evals.files.whole import write_whole
from evals.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import SubFigure as SubFigure
    from matplotlib.lines import Line2D as Line2D
    from matplotlib.patches import Patch as Patch
else:
    Axes = Figure = SubFigure = Line2D = Patch = Any  # for annotations

# The metadata that would change from day to day, or from version to version, by the ending of a file.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
DPI = 200  # of a PNG

# What of the style is read here, too; all else of it stands in `style.mplstyle`.
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "legend.fontsize": 7.5,
}

# A column and both columns of a page of ICML's style, in inches. Figures are drawn at the size at which they are
# printed, so that their letters have the size that `STYLE` says.
WIDTHS = MappingProxyType({"column": 3.25, "page": 6.75})
SMALL = 7.0  # points: the smallest letters in print
_MOST_LETTERS = 200


@dataclass(frozen=True)
class Sheet:
    """``width`` in inches, and ``names`` for the labels in order; ``spell`` writes labels without one."""

    width: float = WIDTHS["page"]
    names: tuple[str, ...] = ()
    spell: Callable[[str], str] = str

    def shown(self, labels: Sequence[str]) -> dict[str, str]:
        """What stands for each of ``labels``: its name, or the label itself where the name is empty.

        Raises UsageError if there are names, but not one for each label.
        """
        if self.names and len(self.names) != len(labels):
            listed = ",".join(map(legible, labels))
            raise UsageError(
                f"--labels has {len(self.names)} names, and the figure has {len(labels)} labels; give one for each in "
                f"this order, or nothing between two commas to keep one: {listed}"
            )
        names = self.names or [""] * len(labels)
        return {label: name or self.spell(label) for label, name in zip(labels, names, strict=True)}

    def labels(self, labels: Sequence[str]) -> Labels:
        """``labels`` with all that a figure draws them by; raises UsageError as `shown` does."""
        shown = self.shown(labels)
        return Labels(labels, shown, looks_of(labels), facets_of(labels, shown))


PAGE = Sheet()


def inches_of(text: str, *, size: float, weight: str = "normal") -> float:
    """How wide ``text`` is on one line in letters of ``size`` points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=STYLE["font.family"], size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def fitted(text: str, inches: float, *, size: float, weight: str = "normal") -> str:
    """``text`` on one line, as matplotlib can show it, and at most so wide. A long one loses its middle."""
    shown = legible(text)
    if len(shown) <= _MOST_LETTERS and inches_of(shown, size=size, weight=weight) <= inches:
        return shown
    numbers = range(1, min(len(shown), _MOST_LETTERS + 1))
    fit = bisect_right(numbers, inches, key=lambda number: inches_of(_cut(shown, number), size=size, weight=weight))
    return _cut(shown, fit)


def _cut(text: str, num_letters: int) -> str:
    """``num_letters`` of the ends of ``text`` and a mark between them."""
    head = num_letters * 2 // 3
    return f"{text[:head]}…{text[len(text) - (num_letters - head) :]}"


def legible(label: str) -> str:
    """``label`` as matplotlib can show it: on one line, and not dropped from a legend."""
    shown = visible(label, keep="")
    # matplotlib drops labels that start with an underscore.
    return f" {shown}" if shown.startswith("_") else shown


@contextmanager
def styled() -> Iterator[None]:
    """Everything inside is drawn in the one style of all figures."""
    import matplotlib

    style: Any = matplotlib.rc_params_from_file(Path(__file__).with_name("style.mplstyle"), use_default_template=False)
    with matplotlib.rc_context(style | STYLE):
        yield


def save_figure(figure: Figure, path: Path) -> None:
    """Write PNG, SVG or PDF by the file's ending, whole or not at all; raises UsageError for another ending."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in _METADATA:
        raise UsageError(f"a figure ends in .png, .svg or .pdf, not {path.name!r}; for example -o {path.stem}.pdf")
    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=kind, dpi=DPI, metadata=_METADATA[kind])
    write_whole(path, [drawn.getvalue()])
