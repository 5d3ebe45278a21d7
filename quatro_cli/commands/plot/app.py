"""`quatro plot`: figures from run directories; those from results are in `plot_results`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatro_cli.commands.plot import results, runs
from quatro_cli.output import output

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _plot() -> None:
    """Draw figures (needs the extra `plot`).

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot passk base.json ours.json -o passk.pdf
    """


@app.command("training")
def training(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories; several are overlaid.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="PNG, SVG, PDF. Default: RUN/figures/training.png."),
    ] = None,
) -> None:
    """Reward, entropy, lambda, realised KL against delta, clipped share and length over the steps.

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot training runs/*-quatro-0 runs/*-gspo-0 -o compare.svg
    """
    from evals.errors import UsageError
    from evals.figures.style import save_figure
    from evals.figures.training import TrainingRun, training_figure
    from quatro.config import load_config
    from quatro.runs.metrics import read_metrics

    if out is None and len(runs) > 1:
        raise UsageError(f"{len(runs)} runs need a place for their common figure; for example -o training.png")
    for run in runs:
        if not (run / "config.yaml").is_file():
            raise UsageError(f"{run} is not a run directory (no config.yaml in it); `quatro runs list` shows them")
    drawn = [
        TrainingRun(run.resolve().name, list(read_metrics(run)), load_config(run).method.kl_radius) for run in runs
    ]
    path = out or runs[0] / "figures" / "training.png"
    save_figure(training_figure(drawn), path)
    output.data(str(path))


app.command("passk")(results.passk)
app.command("ucc")(results.ucc)
app.command("flips")(results.flips)
app.command("similarity")(results.similarity)
app.command("heatmap")(results.heatmap)
app.command("temperature")(results.temperature)
app.command("threshold")(results.threshold)
app.command("bias")(results.bias)
runs.register(app)
