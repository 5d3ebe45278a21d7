"""`quatro plot`: its commands, and the figure of training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatro_cli import completion
from quatro_cli.commands.plot import results, runs
from quatro_cli.help import App
from quatro_cli.options import usage_error

app = App()


@app.callback()
def _plot() -> None:
    """Draw figures (needs the extra `plot`).

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot passk base.json ours.json -o passk.pdf
    """


def training(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run directories; several share one figure.", autocompletion=completion.runs
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="PNG, SVG or PDF. Default: RUN/figures/training.png."),
    ] = None,
) -> None:
    """Draw the curves of training.

    They are reward, entropy, lambda, realised KL against delta, clipped share and length.

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot training runs/*-quatro-0 runs/*-gspo-0 -o compare.svg
    """
    from evals.figures.training import training_figure
    from quatro.runs.series import read_curves

    if out is None and len(runs) > 1:
        raise usage_error(f"{len(runs)} runs need a place for their common figure; for example -o training.png")
    results.save(training_figure(read_curves(runs)), out or runs[0] / "figures" / "training.png", "training")


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
app.add_old_name("temperature", "plot side-by-side", results.side_by_side)
