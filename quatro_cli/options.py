"""Options that several commands share: same name, same meaning, same help everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing more.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")]
Set = Annotated[
    list[str],
    typer.Option(
        *("-s", "--set"),
        metavar="KEY=VALUE",
        help="Change a config value; repeatable.",
        default_factory=list,
        show_default=False,
    ),
]
Benchmarks = Annotated[
    list[str],
    typer.Option(
        *("-b", "--benchmark"),
        metavar="NAME[,NAME]",
        help="Benchmarks; several by comma.",
        default_factory=list,
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]


def split(values: list[str]) -> list[str]:
    """``["a,b", "c"]`` as ``["a", "b", "c"]``."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
