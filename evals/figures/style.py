"""The one style of all figures, and how they are written to files. Colours of methods are in method_looks.py.

matplotlib is imported inside the functions (extra `plot`). The same numbers give the same bytes: no dates, no ids.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evals.errors import UsageError
from evals.files.whole import write_whole
from evals.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
DPI = 200  # of a PNG

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "axes.labelsize": 8,
    "axes.labelpad": 2,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.handlelength": 2.4,
    "legend.labelspacing": 0.35,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.2,
    "hatch.linewidth": 0.7,
    "lines.solid_capstyle": "round",
    "text.hinting": "no_hinting",  # a text is as wide as `evals.figures.sheet` measures it, at every resolution
    "text.parse_math": False,  # run names are not mathematics, whatever dollar signs they hold
    "svg.fonttype": "path",
    "svg.hashsalt": "quatro",
    "pdf.fonttype": 42,
}


def save_figure(figure: Figure, path: Path) -> None:
    """Write PNG, SVG or PDF by the file's ending: the old file or the new one, never half.

    Raises:
        UsageError: another ending.
    """
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise UsageError(f"a figure ends in .png, .svg or .pdf, not {path.name!r}; for example -o {path.stem}.pdf")
    import matplotlib

    metadata: dict[str, dict[str, str | None]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    drawn = io.BytesIO()
    with matplotlib.rc_context(cast("Any", STYLE)):
        figure.savefig(drawn, format=kind, dpi=DPI, metadata=metadata[kind])
    write_whole(path, [drawn.getvalue()])


def legible(label: str) -> str:
    """``label`` as matplotlib can show it: on one line, and not dropped from a legend."""
    shown = visible(label, keep="")
    # matplotlib drops labels that start with an underscore.
    return f" {shown}" if shown.startswith("_") else shown
