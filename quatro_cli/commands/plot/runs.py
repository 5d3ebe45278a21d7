"""`quatro plot training`: the curves of runs."""

from pathlib import Path
from typing import Annotated

from quatro_cli.commands.plot.printing import Printing
from quatro_cli.options import SweepCell, run_paths, spread, usage_error
from quatro_cli.output import output


@spread
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

    They are reward, entropy, lambda, realised KL against delta, clipped share, length and evaluation. With more than
    four runs each method has its own panel. The figure of a single run or sweep is written to its figures/training.png.

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
