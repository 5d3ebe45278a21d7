"""`quatro table`: the paper's tables from result files and runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from quatro_cli import options
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.results.document import Comparison
    from evals.results.reading import RunHead, Sources
    from evals.tables.layouts import Layout
    from evals.tables.parts import Table


Format = Literal["csv", "latex", "markdown", "json"]


@options.spread
def table(
    paths: Annotated[
        list[Path],
        options.run_paths("RESULT|RUN|SWEEP", "Files from `quatro eval ... -o FILE`, run directories, or sweeps."),
    ],
    metric: Annotated[
        str | None, Option(metavar="NAME", help="A metric such as ucc@k, entropy or ucr. Default: that of the files.")
    ] = None,
    average: Annotated[bool, Option("--average", help="Show the mean over benchmarks.")] = False,
    with_paper: Annotated[bool, Option("--with-paper", help="Add the published rows.")] = False,
    format: Annotated[Format | None, Option(metavar="NAME", help="markdown (default), latex, csv, json.")] = None,
    k: Annotated[str | None, Option(metavar="K[,K]", help="Only these values of k. Default: all.")] = None,
    ci: Annotated[bool, Option("--ci", help="Show 95 % intervals, over seeds and problems.")] = False,
    labels: Annotated[
        str | None, Option("--labels", metavar="NAME[,NAME]", help="Names of the rows, in order.", show_default=False)
    ] = None,
    models: Annotated[
        str | None, Option(metavar="NAME[,NAME]", help="Name of the model, or of each in order.", show_default=False)
    ] = None,
    *,
    of_sweep: options.OfSweep,
    out: Annotated[
        Path | None, Option("-o", "--out", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
) -> None:
    """Print result files as a table in the paper's layout.

    Pass@k is in percent, UCC@k is a count, and the best of each column is bold. Files with one label count as seeds of
    one model: the table shows their mean. LaTeX shades labels that begin with `Ours`.

    \b
    Examples:
      quatro table grpo.json ours.json --average --with-paper
      quatro table ucc-*.json --k 32,64,128,256 --format latex -o ucc.tex
      quatro table sweeps/paper-small --metric entropy
    """
    from evals.results.entries import own_entries, published_entries, renamed
    from evals.results.reading import read_sources
    from evals.tables.layouts import PAPER_TABLES, build_tables, comparison_table
    from evals.tables.parts import Style

    ks, rows = options.numbers(k, "--k", int), options.names(labels, "--labels")
    chosen_by = {"--metric": metric, "--average": average, "--with-paper": with_paper, "--k": k, "--models": models}
    options.refuse_loss(out, paths)
    comparison, expand = _comparison(paths), of_sweep.expander(paths)
    if comparison is not None:
        options.refuse_idle({"--labels": labels, **chosen_by}, "what `quatro eval compare` wrote")
        _finish(format, "comparison", comparison_table(comparison), ci=ci, out=out)
        return
    sources = read_sources(paths, describe=_describe, expand=expand)
    chosen, shown = _layout(sources, metric, average=average)
    if with_paper and not PAPER_TABLES[chosen]:
        raise options.usage_error(f"--with-paper: the paper has no table of {shown}; leave it out")
    own, warnings = own_entries(sources, shown)
    own = renamed(own, rows, options.names(models, "--models"))
    found = [number for entry in own for number in entry.numbers.values()]
    if ci and all(number.low is None for number in found):
        raise options.usage_error(
            "--ci: no file has intervals, and no mean is of seeds that give one; "
            "`quatro eval passk FILE --ci -o RESULT.json` makes them, and keeps what a mean over seeds needs"
        )
    if ks is not None and not any(key.k is not None for entry in own for key in entry.numbers):
        raise options.usage_error(f"--k: {shown} has no k")
    published = published_entries(shown, tables=PAPER_TABLES[chosen]) if with_paper else []
    tables = build_tables(chosen, own, published, metric=shown, style=Style(ks=ks, with_average=average, with_ci=ci))
    output.warn(*warnings)
    others = dict.fromkeys(row.metric for one in sources.results for row in one.result.rows if row.metric != shown)
    if metric is None and others:
        output.info(f"{shown} is shown; the files also hold {', '.join(others)}: choose with --metric")
    _finish(format, chosen, tables, ci=ci, out=out)


def _finish(format: Format | None, layout: str, tables: list[Table], *, ci: bool, out: Path | None) -> None:
    """Writes the tables to ``out``, or to stdout; as CSV their notes, which have no place in it, to stderr."""
    from evals.files.whole import write_whole
    from evals.tables.formats import to_csv, to_json, to_markdown
    from evals.tables.latex import to_latex

    writers: dict[str, Callable[..., str]] = {"json": partial(to_json, layout), "latex": to_latex, "csv": to_csv}
    if format == "csv":
        output.info(*dict.fromkeys(note for one in tables for note in one.notes))
    text = writers.get(format or "", to_markdown)(tables, with_ci=ci)
    if out is None:
        output.data(text)
    else:
        write_whole(out, [text.encode("utf-8")])
        output.info(f"written: {out}")


def _comparison(paths: list[Path]) -> Comparison | None:
    """What `quatro eval compare` wrote, if ``paths`` name such a document."""
    from evals.results.document import read_comparison

    for path in paths:
        found = read_comparison(path) if path.is_file() else None
        if found is not None:
            if len(paths) > 1:
                raise options.usage_error(
                    f"{path} is of `quatro eval compare` and is a table of its own; name no other file"
                )
            return found
    return None


def _layout(sources: Sources, metric: str | None, *, average: bool) -> tuple[Layout, str]:
    """The layout that the metric asked for and the benchmarks call for, and the metric, else that of the files."""
    from evals.benchmarks.catalogue import grader_of

    if metric is None:
        metrics = sources.metrics or ["entropy"]
        if sources.sweeps and "pass@k" in metrics:  # it holds everything; this comes first
            metrics = ["pass@k"]
        if len(metrics) > 1:
            raise options.usage_error(
                f"the files hold {', '.join(metrics)}: choose one with --metric {'|'.join(metrics)}"
            )
        metric = metrics[0]
    if average and metric not in ("pass@k", "ucc@k"):
        raise options.usage_error(f"--average is for pass@k and ucc@k, found {metric}")
    if metric == "pass@k":
        is_code = sources.benchmarks and {grader_of(name) for name in sources.benchmarks} == {"code"}
        return "average" if average else "code" if is_code else "benchmarks", metric
    layouts: dict[str, Layout] = {"ucc@k": "ucc", "entropy": "entropy"}
    return layouts.get(metric, "metric"), metric


def _describe(run: Path) -> RunHead:
    from evals.results.reading import RunHead
    from quatro.runs.identity import read_config
    from quatro.runs.status import read_environment

    config = read_config(run)
    return RunHead(config.model, config.method.name, read_environment(run).get("model_digest"))
