"""`quatro table`: the paper's tables from result files and runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli.options import split
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.entries import RunHead, Sources
    from evals.tables import Layout as LayoutName
    from evals.tables import Table


class Layout(StrEnum):
    average = "average"
    benchmarks = "benchmarks"
    ucc = "ucc"
    entropy = "entropy"
    code = "code"


class Format(StrEnum):
    csv = "csv"
    latex = "latex"
    markdown = "markdown"
    json = "json"


METRIC_OF = {"ucc": "ucc@k", "entropy": "entropy"}  # the other layouts show Pass@k


def table(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RESULT|RUN", help="Files of `eval ... -o FILE`, or run directories.")
    ],
    layout: Annotated[
        Layout | None, typer.Option(help="Default: by metric; Pass@k: benchmarks, or code.", show_default=False)
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="Pass@k: the mean over benchmarks. UCC@k: a row with it.")
    ] = False,
    with_paper: Annotated[bool, typer.Option("--with-paper", help="Put the published rows beside them.")] = False,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.markdown,
    digits: Annotated[int, typer.Option(min=0, max=10, help="Digits after the point.")] = 2,
    k: Annotated[str | None, typer.Option("--k", metavar="32,64", help="Only these. Default: all.")] = None,
    ci: Annotated[bool, typer.Option("--ci", help="Show the intervals that the files hold.")] = False,
    standalone: Annotated[bool, typer.Option("--standalone", help="LaTeX: a whole document.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write here instead of to stdout.")
    ] = None,
) -> None:
    """Tables as in the paper: Pass@k in percent, UCC@k as counts, the best of each column in bold.

    Rows are named by --label of `quatro eval`, else by the file. Several files with the same label are seeds and
    are averaged (interval: Student t). Labels that begin with `Ours`, and runs of quatro, are shaded in LaTeX.

    \b
    Examples:
      quatro table grpo.json ours.json --average --with-paper
      quatro table ucc-*.json --k 32,64,128,256 --format latex -o ucc.tex
      quatro table runs/quickstart-* --layout entropy
    """
    from evals.entries import own_entries, published_entries, read_sources
    from evals.errors import UsageError
    from evals.tables import PAPER_TABLES, Style, build_tables

    if standalone and format is not Format.latex:
        raise UsageError(f"--standalone is for --format latex, found {format.value}")
    ks = _ks(k)
    sources = read_sources(paths, describe=_describe)
    chosen = _layout(sources, layout, average=average)
    metric = METRIC_OF.get(chosen, "pass@k")
    if ks is not None and chosen == "entropy":
        raise UsageError("--k: entropy has no k")
    own, warnings = own_entries(sources, metric)
    if ci and not any(number.low is not None for entry in own for number in entry.numbers.values()):
        raise UsageError("--ci: none of the files holds intervals; make them with `quatro eval passk FILES --ci`")
    published = published_entries(metric, tables=PAPER_TABLES[chosen]) if with_paper else []
    style = Style(digits=digits, ks=ks, with_average=average)
    tables = build_tables(chosen, own, published, metric=metric, style=style)
    for warning in warnings:
        output.warn(warning)
    if format is Format.csv:  # it has no place for notes
        for note in dict.fromkeys(note for one in tables for note in one.notes):
            output.info(note)
    text = _text(format, chosen, tables, digits=digits, ci=ci, standalone=standalone)
    if out is None:
        output.data(text)
        return
    from quatro.atomic import write_text

    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    output.info(f"written: {out}")


def _layout(sources: Sources, wanted: Layout | None, *, average: bool) -> LayoutName:
    """The layout asked for, or the one that the files' metric and benchmarks call for."""
    from evals.errors import UsageError
    from evals.tables import CODE

    if wanted is not None:
        if average and wanted not in (Layout.average, Layout.ucc):
            raise UsageError(f"--average is for the layouts average and ucc, found --layout {wanted.value}")
        return wanted.value
    metrics = sources.metrics or ["entropy"]
    if len(metrics) > 1:
        raise UsageError(f"the files hold {', '.join(metrics)}: choose one with --layout {'|'.join(Layout)}")
    if metrics == ["ucc@k"]:
        return "ucc"
    if metrics == ["entropy"] and not average:
        return "entropy"
    if metrics != ["pass@k"]:
        raise UsageError(f"a table shows pass@k, ucc@k or entropy, and --average the first two; found {metrics[0]}")
    if average:
        return "average"
    return "code" if sources.benchmarks and set(sources.benchmarks) <= set(CODE) else "benchmarks"


def _describe(run: Path) -> RunHead:
    from evals.entries import RunHead
    from quatro.config import load_config

    config = load_config(run)
    return RunHead(model=config.model, method=config.method.name)


def _ks(text: str | None) -> list[int] | None:
    from evals.errors import UsageError

    if text is None:
        return None
    parts = split([text])
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--k {text}: expected whole numbers separated by commas, such as 32,64,128,256")
    return [int(part) for part in parts]


def _text(format: Format, layout: LayoutName, tables: list[Table], *, digits: int, ci: bool, standalone: bool) -> str:
    if format is Format.latex:
        from evals.latex import to_latex

        return to_latex(tables, digits=digits, with_ci=ci, standalone=standalone)
    from evals.table_formats import to_csv, to_json, to_markdown

    if format is Format.json:
        return to_json(layout, tables, digits=digits, with_ci=ci)
    return (to_csv if format is Format.csv else to_markdown)(tables, digits=digits, with_ci=ci)
