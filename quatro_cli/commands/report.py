"""`quatro report`: runs or a sweep as one page to look at in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatro_cli.commands.eval.options import check_out, progress
from quatro_cli.output import output


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="SWEEP|RUN...", help="A sweep with all of its runs, or run directories.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page, an .html file.")] = Path(
        "report.html"
    ),
    problems: Annotated[
        int | None,
        typer.Option(
            "--problems",
            metavar="N",
            min=0,
            help="Problems of each benchmark with their answers. Default: 100, fewer where they fill 8 MB.",
            show_default=False,
        ),
    ] = None,
    answers: Annotated[
        int, typer.Option("--answers", metavar="N", min=1, help="Clusters, and wrong answers, of each problem.")
    ] = 3,
) -> None:
    """One page with everything: settings, curves with values under the pointer, Pass@k, UCC@k, answers by cluster.

    It needs no network and no torch, and the same runs give the same bytes. What was left out of it is said.

    \b
    Examples:
      quatro report sweeps/delta -o delta.html
      quatro report runs/demo/quatro runs/demo/gspo --problems 200 --answers 5
    """
    from evals.errors import UsageError
    from evals.files.whole import write_whole
    from evals.report.document import document, size_text
    from evals.report.page import report_page
    from quatro.runs.report import gather_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {out}: a report is a page; name it .html, for example -o {out.stem or 'report'}.html")
    check_out(out)
    with progress("reading samples files") as tell:
        found = gather_report(paths, num_answers=answers, progress=tell)
    made = document(found, num_problems=problems)
    page = report_page(made).encode("utf-8")
    write_whole(out, [page])
    for note in made.notes:
        output.warn(note)
    output.info(f"{len(found.runs)} runs, {size_text(len(page))}")
    output.data(str(out))
