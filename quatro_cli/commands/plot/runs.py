"""`quatro plot limitation | delta-lambda | entropy | stability`: the paper's figures from run directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli import completion
from quatro_cli.commands.plot.results import Out, save
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.figures.run_settings import Drawn, RunSetting

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN|SWEEP",
        help="Run directories, or sweeps with all of their runs; seeds are averaged.",
        autocompletion=completion.runs,
    ),
]


def limitation(runs: Runs, out: Out = None) -> None:
    """Draw GSPO over learning rates and over inner updates K.

    The curves are reward, clipped share and entropy.

    \b
    Examples:
      quatro plot limitation runs/gspo-k*
      quatro plot limitation sweeps/staleness -o limitation.pdf
    """
    from evals.figures.limitation import limitation_figure

    _draw(limitation_figure, runs, out, "limitation")


def delta_lambda(runs: Runs, out: Out = None) -> None:
    """Draw how delta sets advantages and lambda of QUATRO.

    One panel has the advantage of a correct rollout against how many are correct, the other lambda over the steps.

    \b
    Examples:
      quatro plot delta-lambda runs/quatro-delta=*
      quatro plot delta-lambda sweeps/delta -o delta-lambda.pdf
    """
    from evals.figures.delta_lambda import delta_lambda_figure

    _draw(delta_lambda_figure, runs, out, "delta-lambda")


def entropy(runs: Runs, out: Out = None) -> None:
    """Draw the entropy of QUATRO, by delta, and of GSPO.

    \b
    Examples:
      quatro plot entropy runs/gspo-* runs/quatro-delta=*
      quatro plot entropy sweeps/delta -o entropy.pdf
    """
    from evals.figures.stability import entropy_figure

    _draw(entropy_figure, runs, out, "entropy")


def stability(runs: Runs, out: Out = None) -> None:
    """Draw how stable GSPO and QUATRO are.

    The panels are over inner updates K (a), over learning rates (b), and of QUATRO with and without its log-ratio
    term (c).

    \b
    Examples:
      quatro plot stability sweeps/staleness
      quatro plot stability runs/gspo-* runs/quatro-* -o stability.pdf
    """
    from evals.figures.stability import stability_figure

    _draw(stability_figure, runs, out, "stability")


def _draw(figure_of: Callable[[Sequence[RunSetting]], Drawn], runs: list[Path], out: Path | None, name: str) -> None:
    from quatro.runs.series import read_settings

    found = read_settings(runs)
    output.warn(*found.warnings)
    drawn = figure_of(found.settings)
    output.warn(*drawn.notes)
    save(drawn.figure, out, name)
