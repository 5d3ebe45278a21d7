"""`quatro plot training | limitation | delta-lambda | entropy | stability`: figures from run directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quatro_cli.commands.plot.printing import Printing, printed
from quatro_cli.options import SweepCell, run_paths, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.figures.run_settings import Drawn

Runs = Annotated[
    list[Path], run_paths("RUN|SWEEP", "Run directories, or sweeps with all of their runs; seeds are averaged.")
]


@printed
def training(
    runs: Annotated[
        list[Path],
        run_paths("RUN|SWEEP", "Run directories, each a curve; or sweeps, with a thin line per seed and their mean."),
    ],
    cell: SweepCell = None,
    *,
    printing: Printing,
) -> None:
    """Draw the curves of training.

    They are reward, entropy, lambda, realised KL against delta, clipped share, length, and evaluation where there is
    some. If there are more than four curves, each method has its own panel. The figure of a single run or sweep is
    written to its figures/training.png.

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot training sweeps/paper-math --cell main -o training.pdf
      quatro plot training runs/*-quatro-0 runs/*-gspo-0 -o compare.svg
    """
    from evals.figures.training import training_figure
    from quatro.runs.views.series import read_curves

    if printing.out is None and len(runs) > 1:
        raise usage_error(f"{len(runs)} runs need a place for their common figure; for example -o training.png")
    curves, warnings = read_curves(runs, cell=cell)
    output.warn(*warnings)
    figure = training_figure(curves, sheet=printing.sheet)
    printing.save(figure, "training", default=runs[0] / "figures" / "training.png")


@printed
def limitation(runs: Runs, *, printing: Printing) -> None:
    """Draw the baselines over learning rates and inner updates.

    The curves are reward, clipped share and entropy. Many baselines get a panel each.

    \b
    Examples:
      quatro plot limitation runs/gspo-k*
      quatro plot limitation sweeps/staleness -o limitation.pdf
    """
    from evals.figures.stability import limitation_figure

    _draw(limitation_figure, runs, printing, "limitation")


@printed
def delta_lambda(runs: Runs, *, printing: Printing) -> None:
    """Draw how delta sets advantages and lambda of QUATRO.

    One panel shows the advantage of a correct rollout against the number of correct ones, the other lambda over the
    iterations.

    \b
    Examples:
      quatro plot delta-lambda runs/quatro-delta=*
      quatro plot delta-lambda sweeps/delta -o delta-lambda.pdf
    """
    from evals.figures.delta_lambda import delta_lambda_figure

    _draw(delta_lambda_figure, runs, printing, "delta-lambda")


@printed
def entropy(runs: Runs, *, printing: Printing) -> None:
    """Draw the entropy of QUATRO, by delta, and of the baselines.

    If there are more than four curves, each method has its own panel. Runs that are left out are named on stderr.

    \b
    Examples:
      quatro plot entropy runs/gspo-* runs/quatro-delta=*
      quatro plot entropy sweeps/delta -o entropy.pdf
    """
    from evals.figures.delta_lambda import entropy_figure

    _draw(entropy_figure, runs, printing, "entropy")


@printed
def stability(runs: Runs, *, printing: Printing) -> None:
    """Draw how stable the methods are.

    The panels show the methods at different inner updates K (a) and learning rates (b), and QUATRO with and without
    its log-ratio term (c). Runs that are left out are named on stderr.

    \b
    Examples:
      quatro plot stability sweeps/staleness
      quatro plot stability runs/gspo-* runs/quatro-* -o stability.pdf
    """
    from evals.figures.stability import stability_figure

    _draw(stability_figure, runs, printing, "stability")


def _draw(figure_of: Callable[..., Drawn], runs: list[Path], printing: Printing, name: str) -> None:
    from quatro.runs.views.series import read_settings

    found = read_settings(runs)
    output.warn(*found.warnings)
    drawn = figure_of(found.settings, sheet=printing.sheet)
    output.warn(*drawn.notes)
    printing.save(drawn.figure, name)
