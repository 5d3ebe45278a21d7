"""`quatro plot`: its commands, and the figure of training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from quatro_cli.commands.plot import results, runs
from quatro_cli.commands.plot.printing import Printing, printed
from quatro_cli.help import App
from quatro_cli.options import SweepCell, run_paths, usage_error
from quatro_cli.output import output

app = App()


@app.callback()
def _plot() -> None:
    """Draw figures (needs the extra `plot`).

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot passk base.json ours.json -o passk.pdf
    """


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


app.add("training", training)
app.add("passk", results.passk)
app.add("ucc", results.ucc)
app.add("flips", results.flips)
app.add("similarity", results.similarity)
app.add("heatmap", results.heatmap)
app.add("side-by-side", results.side_by_side)
app.add("threshold", results.threshold)
app.add("bias", results.bias)
app.add("limitation", runs.limitation)
app.add("delta-lambda", runs.delta_lambda)
app.add("entropy", runs.entropy)
app.add("stability", runs.stability)
