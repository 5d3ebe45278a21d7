"""The colour, marker, dash and hatch of each label, the same for a method in every figure.

A label belongs to the method that it names (`GSPO, K 2`, `quickstart-quatro-0`, `Ours delta=0.01`). Labels of one
method share its marker and hue: the deltas of QUATRO have fixed shades of blue, and each further label another dash.
The colours are told apart by readers who are colour-blind, and dashes, markers and hatches survive a printer without
colours.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from typing import Any, NamedTuple

from evals.files.frames import grouped
from evals.files.own_code import is_own
from evals.text import table_beside


class Look(NamedTuple):
    """How one label is drawn; ``is_hollow`` is for a marker that is white inside."""

    color: str
    marker: str
    dash: Any = "solid"
    hatch: str = ""
    is_hollow: bool = False


METHOD_LOOKS = {name: Look(*look) for name, look in table_beside(__file__, "method_looks.toml").items()}
BASE = "base"  # the model before training
_FAMILY_LOOKS = {**METHOD_LOOKS, BASE: Look("#999999", "p")}
_OTHER_NAMES = {"ours": "quatro", "weighted": "cluster-weighted"}
PALETTE = tuple(look.color for look in METHOD_LOOKS.values())

# Blues of QUATRO's deltas. A delta between two of them has a shade between theirs.
DELTA_SHADES = {0.1: "#08306B", 0.01: "#1F77C9", 0.001: "#74B9F0"}
_DELTA = re.compile(r"(?:δ|delta)\s*(?:=\s*)?(\d+(?:\.\d+)?(?:e-?\d+)?)", re.IGNORECASE)

_LIGHTEST = 0.72  # luma of the palest curve

DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)), (0, (1, 1.1)), (0, (5, 1.3, 1, 1.3)))
HATCHES = ("", "////", "....", "\\\\\\\\", "xxx", "---", "+++", "ooo", "|||", "**", "//..", "\\\\||")


def family_of(label: str) -> str | None:
    """The method that ``label`` names, or `base`; None if it names neither."""
    words = re.findall(r"[a-z]+", label.lower())
    named = (_OTHER_NAMES.get(word, word) for word in words)
    return next((word for word in named if word in _FAMILY_LOOKS), None)


def place_of(method: str) -> int:
    """The place of ``method`` among those that are known; behind them the others."""
    return list(METHOD_LOOKS).index(method) if method in METHOD_LOOKS else len(METHOD_LOOKS)


def delta_of(label: str) -> float | None:
    """The delta that ``label`` names."""
    found = _DELTA.search(label)
    return float(found.group(1)) if found else None


def looks_of(labels: Sequence[str]) -> list[Look]:
    """A look for each label, all of them different. One that names no method takes a look that is free."""
    named = [family_of(label) for label in labels]
    free = cycle([name for name in METHOD_LOOKS if name not in named] or METHOD_LOOKS)
    families = [family or next(free) for family in named]
    looks = []
    seen = Counter[str]()
    for position, (label, family) in enumerate(zip(labels, families, strict=True)):
        nth, look = seen[family], _FAMILY_LOOKS[family]
        seen[family] += 1
        delta = delta_of(label) if family == "quatro" else None
        color = look.color if delta is None else _shade_of(delta)
        dash, is_hollow = DASHES[nth % len(DASHES)], nth // len(DASHES) % 2 == 1
        looks.append(Look(color, look.marker, dash, HATCHES[position % len(HATCHES)], is_hollow))
    return looks


def variants(look: Look, number: int) -> list[Look]:
    """``number`` looks for one method, from dark to light, with its marker full and hollow in turn."""
    darkest = 0.7 - _most_white(look.color)
    shades = [look.color]
    if number > 1:
        tones = [darkest - 0.7 * i / (number - 1) for i in range(number)]
        shades = [_mixed(look.color, "#000000" if tone > 0 else "#FFFFFF", abs(tone)) for tone in tones]
    return [
        look._replace(color=shade, dash=DASHES[i % len(DASHES)], is_hollow=i % 2 == 1) for i, shade in enumerate(shades)
    ]


def _shade_of(delta: float) -> str:
    """The blue of a delta, on a logarithmic scale between those of `DELTA_SHADES`."""
    known = sorted(DELTA_SHADES)
    delta = min(max(delta, known[0]), known[-1])
    low, high = next(pair for pair in pairwise(known) if delta <= pair[1])
    return _mixed(DELTA_SHADES[low], DELTA_SHADES[high], math.log(delta / low) / math.log(high / low))


def _most_white(color: str) -> float:
    """The share of white with which ``color`` is still seen on paper: a half, but next to nothing with yellow."""
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return min(0.5, max(0.0, (_LIGHTEST - luma) / (1 - luma)))


def _mixed(first: str, second: str, share: float) -> str:
    parts = [(int(first[at : at + 2], 16), int(second[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + share * (b - a)):02X}" for a, b in parts)


def method_title(name: str) -> str:
    """The name of a method as the paper writes it, `GSPO`; `module:Class`, which is the user's own, as it is."""
    return name if is_own(name) else name.upper()


class Facet(NamedTuple):
    """A panel's share of the labels, and the name of what they have in common."""

    title: str
    labels: tuple[str, ...]


MOST_LINES = 4  # curves that a reader still tells apart in one small panel


class Labels(NamedTuple):
    """The labels of one figure in order: what stands for each, its look, and the facets that hold them."""

    names: Sequence[str]
    shown: dict[str, str]
    looks: list[Look]
    facets: list[Facet]

    @property
    def with_looks(self) -> list[tuple[str, Look]]:
        """Each label and its look."""
        return list(zip(self.names, self.looks, strict=True))


def facets_of(labels: Sequence[str], shown: Mapping[str, str]) -> list[Facet]:
    """One facet without a title for at most four labels; else one for each method, and for each label without one.

    ``shown`` has what stands for a label.
    """
    if len(labels) <= MOST_LINES:
        return [Facet("", tuple(labels))]
    groups = grouped(labels, lambda label: family_of(label) or f"\0{label}")
    return [Facet(_title(family, [shown[label] for label in own]), tuple(own)) for family, own in groups.items()]


def _title(family: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    words = {re.split(r"[ ,]", name)[0] for name in names}
    return words.pop() if len(words) == 1 else family.upper()
