"""`quatro report`: runs or a sweep as one page to look at in a browser."""

from pathlib import Path
from typing import Annotated

from typer import Option

from quatro_cli.commands.eval.shared import Written, progress
from quatro_cli.options import run_paths
from quatro_cli.output import output


def report(
    paths: Annotated[list[Path], run_paths("SWEEP|RUN", "A sweep with all of its runs, or run directories.")],
    out: Annotated[Path, Option("-o", "--out", metavar="FILE", help="The page to write, an .html file.")] = Path(
        "report.html"
    ),
    problems: Annotated[
        int | None,
        Option(
            metavar="N",
            min=0,
            help="How many problems of each benchmark to show with samples. Default: 100, or fewer if they fill 8 MB.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one page about runs or a sweep, for a browser.

    The page has settings, curves with values under the pointer, Pass@k, UCC@k and samples by cluster. It needs no
    network, and the same runs give the same file.

    \b
    Examples:
      quatro report sweeps/delta -o delta.html
      quatro report runs/demo/quatro runs/demo/gspo --problems 200
    """
    from quatro.runs.views.report import report

    Written(out=out).check(paths)
    output.data(str(report(paths, out, problems=problems, progress=progress)))
