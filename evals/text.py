"""Untrusted text, such as a model's answer, made visible, numbers in words, small tables of both, and TOML of our own.

Writers escape what their formats need on top.
"""

import html
import math
import re
import tomllib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# C0 and C1 controls, line separators, lone surrogates, and Unicode's category Cf: direction marks and overrides,
# zero-width characters, soft hyphens, tags.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_TIMES = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def visible(text: str, *, keep: str = "\t\n\r", controls_only: bool = False) -> str:
    """``text`` with what acts on a terminal or cannot be seen spelled out, as in `\\x1b`; characters in ``keep`` stay.

    ``controls_only`` leaves direction marks, zero-width characters and lone surrogates as they are.
    """

    def spelled(match: re.Match[str]) -> str:
        character = match.group()
        return character if character in keep else character.encode("unicode_escape").decode("ascii")

    return (_CONTROL if controls_only else _INVISIBLE).sub(spelled, text)


def unescaped(text: str) -> str:
    r"""The text that ``text`` means in a shell: ``\n``, ``\t`` and ``\\`` are one character each."""
    meaning = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
    return re.sub(r"\\[nt\\]", lambda match: meaning[match[0]], text)


def escaped(text: str) -> str:
    """What is typed for ``text``, so that `unescaped` gives it back."""
    return text.replace("\\", "\\\\")


def size_text(num_bytes: float) -> str:
    """`1.2 GiB`: the largest of GiB, MiB and KiB of which there is a tenth."""
    unit, size = next((pair for pair in _SIZES if num_bytes >= pair[1] / 10), _SIZES[-1])
    return f"{num_bytes / size:.1f} {unit}"


def time_text(seconds: float) -> str:
    """`3 h`: whole days, hours, minutes or seconds, the largest of which there is one."""
    unit, size = next((pair for pair in _TIMES if seconds >= pair[1]), _TIMES[-1])
    return f"{seconds // size:.0f} {unit}"


def clock_text(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` within an hour."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def words_of(text: str) -> frozenset[str]:
    """The words of ``text``, for a set that is written in the code."""
    return frozenset(text.split())


def table_beside(module: str, name: str) -> dict[str, Any]:
    """The TOML file ``name`` beside the module whose ``__file__`` is ``module``."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


def value_cell(value: object, keep: str = "") -> str:
    """What stands in a table for ``value``: a dash for None and for numbers that are not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value), keep=keep)


def is_number(cell: str) -> bool:
    """Whether ``cell`` is a number, perhaps with an interval, or unknown: such columns are flushed right."""
    number = r"[-+−]?[\d,]*\.?\d+(e[-+]?\d+)?\s?%?"
    interval = r"( \[.*\])?"
    return cell == "-" or re.fullmatch(number + interval, cell) is not None


class Grid(NamedTuple):
    """A small table. Its ``notes`` stand below it; titles, notes and cells may be untrusted."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Title, head and a line for each row, as wide as it needs to be, then the notes."""
        columns = [[value_cell(cell) for cell in column] for column in zip(self.columns, *self.rows, strict=True)]
        padded = []
        for column in columns:
            width, is_right = max(map(len, column)), all(map(is_number, column[1:]))
            padded.append([cell.rjust(width) if is_right else cell.ljust(width) for cell in column])
        lines = ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]
        return [*filter(None, [visible(self.title, keep="")]), *lines, *(visible(note, keep="") for note in self.notes)]


class Shown:
    """What a session of Python and a notebook show as small tables, and ``warnings`` below them."""

    warnings: list[str]

    @abstractmethod
    def grids(self) -> Iterable[Grid]:
        """The tables."""

    def __repr__(self) -> str:
        warnings = [f"warning: {visible(warning, keep='')}" for warning in self.warnings]
        return "\n".join([*(line for grid in self.grids() for line in grid.lines()), *warnings])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"
