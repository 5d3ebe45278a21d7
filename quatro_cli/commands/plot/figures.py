"""`quatro plot passk | ucc | training | ...`: figures of results, runs and samples."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, OfSweep, SweepCell, run_paths, split, spread, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evals.figures.sheet import Sheet

Results = Annotated[list[Path], run_paths("RESULT", "Files from `quatro eval ... -o FILE`, or runs with results/.")]


@dataclass(frozen=True)
class Printing:
    """The shared options: the width and names of a figure, and its file."""

    width: Annotated[
        Literal["column", "page"], Option("--width", metavar="column|page", help="Width in print: 3.25 or 6.75 inches.")
    ] = "page"
    labels: Annotated[
        str | None,
        Option("--labels", metavar="NAME[,NAME]", help="Names for the legend, in order; an empty one changes nothing."),
    ] = None
    out: Annotated[
        Path | None,
        Option("-o", "--out", metavar="FILE", help="PNG, SVG or PDF. Default: a PNG here, named like the command."),
    ] = None

    @property
    def sheet(self) -> "Sheet":
        from evals.figures.sheet import WIDTHS, Sheet

        names = () if self.labels is None else tuple(name.strip() for name in self.labels.split(","))
        return Sheet(WIDTHS[self.width], names)

    def save(self, figure: "Figure", name: str, *, default: Path | None = None) -> None:
        """Writes ``figure`` to the file asked for, else to ``default`` or NAME.png, and prints the path."""
        from evals.figures.sheet import save_figure

        path = self.out or default or Path(f"{name}.png")
        save_figure(figure, path)
        output.data(str(path))


def _over_k(name: str, metric: str, said: str) -> Callable[..., None]:
    """The command that draws ``metric`` against k; ``said`` is its help."""

    def command(
        results: Annotated[
            list[Path], run_paths("RESULT", "Files from `quatro eval ... -o FILE`, runs with results/, or sweeps.")
        ],
        benchmarks: Benchmarks,
        *,
        of_sweep: OfSweep,
        printing: Printing,
    ) -> None:
        from evals.figures.curves import curve_panels, curves_figure
        from evals.results.entries import own_entries
        from evals.results.reading import named_by_samples, read_sources

        sources = named_by_samples(read_sources(results, expand=of_sweep.expander(results)))
        entries, warnings = own_entries(sources, metric)
        output.warn(*warnings)
        panels = curve_panels(entries, metric, benchmarks=split(benchmarks, "-b"))
        printing.save(curves_figure(panels, sheet=printing.sheet), name)

    command.__doc__ = said
    return spread(command)


passk = _over_k(
    "passk",
    "pass@k",
    """Draw Pass@k against k.

    Each benchmark has a panel, and so has their mean. Bands are intervals.

    \b
    Examples:
      quatro plot passk base.json ours.json -b math500,aime24 -o passk.pdf
      quatro plot passk sweeps/paper-small --cell S1 --top-p 0.7
    """,
)
ucc = _over_k(
    "ucc",
    "ucc@k",
    """Draw UCC@k against k.

    Each benchmark and similarity has a panel.

    \b
    Examples:
      quatro plot ucc base-ucc.json ours-ucc.json
      quatro plot ucc runs/quickstart-quatro-0 -b countdown -o ucc.svg
    """,
)


@spread
def flips(
    results: Results,
    k: Annotated[
        int | None, Option(metavar="K", min=1, help="k of flip@k. Default: 16, else the smallest in the files.")
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Draw problems newly solved and flip@k, by difficulty.

    Each benchmark has a panel, each file a bar.

    \b
    Examples:
      quatro plot flips gspo-flips.json ours-flips.json
      quatro plot flips ours-flips.json --k 256 -o flips.pdf
    """
    from evals.figures.bars import flips_figure
    from evals.metrics.flips import FLIP, FLIP_AT_K
    from evals.results.reading import rows_by_label

    rows = rows_by_label(results, (FLIP, FLIP_AT_K), made_by="quatro eval flips BASE TUNED -o FILE")
    printing.save(flips_figure(rows, k=k, sheet=printing.sheet), "flips")


@spread
def similarity(results: Results, *, printing: Printing) -> None:
    """Draw histograms of how similar correct samples are.

    Each benchmark has a row and each similarity a column; the files share a panel.

    \b
    Examples:
      quatro plot similarity ours-similarity.json
      quatro plot similarity base-similarity.json ours-similarity.json -o similarity.pdf
    """
    from evals.figures.similarity import similarity_figure
    from evals.metrics.studies.similarity import METRIC
    from evals.results.reading import rows_by_label

    rows = rows_by_label(results, (METRIC,), made_by="quatro eval similarity FILES -o FILE")
    printing.save(similarity_figure(rows, sheet=printing.sheet), "similarity")


@spread
def heatmap(
    files: shared.Files,
    benchmarks: Benchmarks,
    id: shared.Id,
    similarity: Annotated[str | None, Option(metavar="NAME", help=f"{shared.NAMED} Default: tfidf.")] = None,
    threshold: shared.Threshold = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    everyone: Annotated[bool, Option("--all", help="Show all samples, the wrong ones after the correct ones.")] = False,
    *,
    printing: Printing,
) -> None:
    """Draw how similar the samples of a problem are.

    Each file has a square, ordered by cluster; clusters of correct samples are framed.

    \b
    Examples:
      quatro plot heatmap samples/math500.jsonl --id test/algebra/12 --all
      quatro plot heatmap gspo.jsonl ours.jsonl --id 60 -o heatmap.pdf
    """
    from evals.figures.similarity import heatmap_figure
    from evals.metrics.measuring import Options, paths_of
    from evals.metrics.studies.similarity import heatmap_of
    from evals.results.reading import labels_of

    how: dict[str, Any] = {"similarity": similarity, "threshold": threshold, "linkage": linkage, "tokens": tokens}
    clustering = Options(["ucc@k"], **how).clustering
    found = {}
    for path, name in zip(paths_of(files), labels_of(files), strict=True):
        samples, _ = shared.graded_samples([path], benchmarks, id=id)
        output.warn(*samples.warnings)
        found[name] = heatmap_of(samples, id, clustering, with_wrong=everyone)
    printing.save(heatmap_figure(found, sheet=printing.sheet), "heatmap")


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
