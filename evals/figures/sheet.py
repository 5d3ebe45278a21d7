"""What a figure is printed on: its width, its title and the names of its labels; and how much text fits there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from evals.errors import UsageError
from evals.figures.style import STYLE, legible

if TYPE_CHECKING:
    from matplotlib.font_manager import FontProperties

# A column and both columns of a page of ICML's style, in inches. Figures are drawn at the size at which they are
# printed, so that their letters have the size that `evals.figures.style` says.
WIDTHS = MappingProxyType({"column": 3.25, "page": 6.75})
SMALL = 7.0  # points: the smallest letters in print
_MOST_LETTERS = 200


@dataclass(frozen=True)
class Sheet:
    """``width`` in inches, a ``title`` above the panels, and ``names`` in place of the figure's labels, in order.

    ``spell`` is how a label is written that has no name.
    """

    width: float = WIDTHS["page"]
    title: str = ""
    names: tuple[str, ...] = ()
    spell: Callable[[str], str] = str

    def shown(self, labels: Sequence[str]) -> dict[str, str]:
        """What stands for each of ``labels``: its name, or the label itself where the name is empty.

        Raises:
            UsageError: there are names, but not one for each label.
        """
        if self.names and len(self.names) != len(labels):
            listed = ",".join(map(legible, labels))
            raise UsageError(
                f"--labels has {len(self.names)} names, and the figure has {len(labels)} labels; give one for each in "
                f"this order, or nothing between two commas to keep one: {listed}"
            )
        names = self.names or [""] * len(labels)
        return {label: name or self.spell(label) for label, name in zip(labels, names, strict=True)}


PAGE = Sheet()


def inches_of(text: str, *, size: float, weight: str = "normal") -> float:
    """How wide ``text`` is on one line in letters of ``size`` points."""
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, _font(size, weight), ismath=False)
    return float(width) / 72


def fitted(text: str, inches: float, *, size: float, weight: str = "normal") -> str:
    """``text`` on one line, as matplotlib can show it, and at most so wide. A long one loses its middle."""
    shown = legible(text)
    if len(shown) <= _MOST_LETTERS and inches_of(shown, size=size, weight=weight) <= inches:
        return shown
    least, most = 0, min(len(shown) - 1, _MOST_LETTERS)
    while least < most:
        middle = (least + most + 1) // 2
        if inches_of(_cut(shown, middle), size=size, weight=weight) <= inches:
            least = middle
        else:
            most = middle - 1
    return _cut(shown, least)


def _cut(text: str, num_letters: int) -> str:
    """``num_letters`` of the ends of ``text`` and a mark between them."""
    head = num_letters * 2 // 3
    return f"{text[:head]}…{text[len(text) - (num_letters - head) :]}"


def _font(size: float, weight: str) -> FontProperties:
    from matplotlib.font_manager import FontProperties

    return FontProperties(family=STYLE["font.family"], size=size, weight=weight)
