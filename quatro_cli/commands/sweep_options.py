"""Options of commands that read a sweep beside other results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from evals.results.document import Result

SweepTopP = Annotated[
    float | None,
    typer.Option(
        "--top-p", metavar="P", help="Use a sweep's samples at this top_p. Default: the only one.", show_default=False
    ),
]
SweepCell = Annotated[
    str | None,
    typer.Option("--cell", metavar="NAME", help="Use only this cell of a sweep. Default: all.", show_default=False),
]


def expander(
    paths: Sequence[Path],
    top_p: float | None,
    cell: str | None,
    *,
    kind: Literal["curves", "flips", "temperature"] = "curves",
) -> Callable[[Path], Sequence[tuple[Result, Path]]]:
    """What reads a sweep among ``paths``; raises UsageError for an option without one, which would be ignored."""
    from evals.errors import UsageError
    from quatro.sweep import is_sweep, labelled_results

    ignored = [name for name, value in (("--top-p", top_p), ("--cell", cell)) if value is not None]
    if ignored and not any(is_sweep(path) for path in paths):
        raise UsageError(
            f"{' and '.join(ignored)}: none of the paths is a sweep (a folder with sweep.yaml); leave it out"
        )
    if kind == "curves":
        return lambda folder: labelled_results(folder, top_p=top_p, cell=cell)
    from quatro.sweep import flip_results, temperature_results

    averaged = flip_results if kind == "flips" else temperature_results
    return lambda folder: averaged(folder, top_p=top_p, cell=cell)
