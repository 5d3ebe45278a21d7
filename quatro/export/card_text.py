"""The Markdown of a model card, in which untrusted words stay words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from evals.tables.formats import markdown_text
from evals.text import visible


def scalar(value: Any) -> str:
    """``value`` as YAML and JSON write it; text as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def number(value: Any) -> str:
    """Four significant digits; a dash for what is no finite number."""
    return f"{value:.4g}" if is_number(value) else "-"


def plain(value: str) -> str:
    """``value`` as plain words in Markdown, on one line: no markup, HTML or table cell can begin in it."""
    return markdown_text(visible(value, keep=""))


def code(value: str) -> str:
    """``value`` in code type, in a table too."""
    flat = visible(value, keep="").replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    ticks, pad = "`" * (longest + 1), " " if longest else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def fence(language: str, lines: Sequence[str]) -> list[str]:
    """``lines`` as a block of code."""
    return [f"```{language}", *lines, "```"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; cells stand as they are."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
