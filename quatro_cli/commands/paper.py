"""`quatro paper`: the paper's tables and figures from one sweep."""

from pathlib import Path
from typing import Annotated

from typer import Option

from quatro_cli.options import OfSweep, run_paths, spread
from quatro_cli.output import output


@spread
def paper(
    sweep: Annotated[Path, run_paths("SWEEP", "The folder of a sweep.")],
    out: Annotated[Path, Option("-o", "--out", metavar="DIR", help="Where to write.")] = Path("paper"),
    with_paper: Annotated[
        bool, Option("--with-paper/--without-paper", help="Put the published numbers beside the sweep's.")
    ] = True,
    *,
    of_sweep: OfSweep,
) -> None:
    """Write the paper's tables and figures from a sweep.

    Tables are LaTeX, CSV and Markdown, figures PDF and PNG. README.md shows all of them and says what is missing.

    \b
    Examples:
      quatro paper sweeps/paper-math
      quatro paper sweeps/paper-math --top-p 0.7 -o paper/
    """
    from quatro.sweep.paper import write_paper

    page = write_paper(sweep, out, **vars(of_sweep), with_paper=with_paper, tell=output.info)
    output.warn(*page.warnings)
    for kind, reason in page.missing:
        output.info(f"missing: {kind.title}: {reason}")
    output.info(f"{len(page.tables)} tables, {len(page.figures)} figures, {len(page.missing)} missing")
    output.data(str(out / "README.md"))
