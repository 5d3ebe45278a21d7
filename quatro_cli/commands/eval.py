"""`quatro eval`: Pass@k and UCC@k of samples files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from quatro_cli.options import Benchmarks, Json, split
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.records import Samples
    from evals.results import About, Result, Row

Number = TypeVar("Number", int, float)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Samples (.jsonl, .jsonl.gz) or run directories.")]
Ks = Annotated[str | None, typer.Option("--k", metavar="1,2,4", help="Default: 1,2,4,...,256 up to n.")]
Interval = Annotated[bool, typer.Option("--ci", help="95 % bootstrap intervals over problems.")]
BootstrapSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")]
PerProblem = Annotated[bool, typer.Option("--per-problem", help="Counts of every problem in the document.")]
Label = Annotated[str | None, typer.Option("--label", help="Name of the result in tables.")]
Regrade = Annotated[bool, typer.Option("--regrade", help="Judge again, even where the rows say `correct`.")]
Out = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the JSON document here too.")]


@app.callback()
def _eval() -> None:
    """Measure samples: how often they are right (passk), in how many ways (ucc).

    \b
    Examples:
      quatro eval passk samples/math500.jsonl --k 1,16,256 --ci
      quatro eval ucc runs/quickstart-quatro-0 --json
    """


@app.command("passk")
def passk(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    per_problem: PerProblem = False,
    label: Label = None,
    regrade: Regrade = False,
    json: Json = False,
    out: Out = None,
) -> None:
    """Pass@k: the chance that at least one of k samples is right, unbiased from n samples a problem.

    \b
    Examples:
      quatro eval passk samples/math500.jsonl samples/aime24.jsonl
      quatro eval passk runs/quickstart-quatro-0 -b countdown --k 1,8,64 --ci --json
    """
    from evals.aggregate import passk_result

    ks = _numbers(k, "--k", int)
    samples = _read(files, benchmarks)
    about = _about(samples, label, regrade=regrade)
    result = passk_result(samples, ks=ks, ci=ci, seed=seed, per_problem=per_problem, regrade=regrade, **about)
    _finish(result, json=json, out=out)


@app.command("ucc")
def ucc(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    similarity: Annotated[
        str | None, typer.Option(help="exact, tfidf, rouge-l, jaccard, edit. Default: tfidf (countdown: exact).")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="T[,T]", help="Same solution from here. Default: .9 tfidf, .8 others.")
    ] = None,
    linkage: Annotated[str, typer.Option(help="components, complete, average or greedy.")] = "components",
    tokens: Annotated[str, typer.Option(help="math, sklearn or whitespace.")] = "math",
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    per_problem: PerProblem = False,
    label: Label = None,
    regrade: Regrade = False,
    json: Json = False,
    out: Out = None,
) -> None:
    """UCC@k: how many different right solutions k samples hold; UCR: clusters per sample drawn.

    Clusters are components of similarity >= threshold, and components chain as n grows: compare models at
    equal n only. A threshold does not mean the same for two similarities.

    \b
    Examples:
      quatro eval ucc samples/math500.jsonl --k 32,64,128,256
      quatro eval ucc base.jsonl --similarity tfidf,rouge-l --linkage complete --json
    """
    from evals.aggregate import ucc_result

    ks = _numbers(k, "--k", int)
    samples = _read(files, benchmarks)
    result = ucc_result(
        samples,
        similarities=split([similarity]) if similarity is not None else None,
        thresholds=_numbers(threshold, "--threshold", float),
        linkage=linkage,
        tokens=tokens,
        ks=ks,
        ci=ci,
        seed=seed,
        per_problem=per_problem,
        regrade=regrade,
        **_about(samples, label, regrade=regrade),
    )
    _finish(result, json=json, out=out)


def _read(files: list[Path], benchmarks: list[str]) -> Samples:
    from evals.records import read_samples

    return read_samples(files, benchmarks=split(benchmarks) or None, keep_extra=True)


def _about(samples: Samples, label: str | None, *, regrade: bool) -> About:
    """The head of the document: what sampling.json says, and who judged."""
    from evals.grading import GRADER_VERSION
    from evals.results import GraderInfo, about_samples

    about = about_samples(samples.files)
    about["label"] = label
    if regrade or any(row.correct is None for row in samples.rows):
        about["grader"] = GraderInfo(version=GRADER_VERSION, policy="strict")
    return about


def _finish(result: Result, *, json: bool, out: Path | None) -> None:
    for warning in result.warnings:
        output.warn(warning)
    if out is not None:
        result.write(out)
    if json:
        output.json(result.document())
    else:
        for title, rows in _tables(result.rows):
            _show(title, rows)
    if out is not None:
        output.info(f"written: {out}")


def _tables(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by what counts as the same solution, each group with its title."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        title = "Pass@k in %"
        if row.similarity:
            threshold = "" if row.threshold is None else f" >= {row.threshold:g}, {row.linkage}"
            tokens = f", {row.tokens} tokens" if row.similarity in ("tfidf", "jaccard") else ""
            title = f"UCC@k (solutions among k samples), {row.similarity}{threshold}{tokens}"
        tables.setdefault(title, []).append(row)
    return list(tables.items())


def _show(title: str, rows: list[Row]) -> None:
    columns = list(dict.fromkeys((row.metric, row.k) for row in rows))
    by_benchmark: dict[str, dict[tuple[str, int | None], Row]] = {}
    for row in rows:
        by_benchmark.setdefault(row.benchmark, {})[row.metric, row.k] = row
    if len(by_benchmark) == 2:  # the average of one benchmark is that benchmark
        by_benchmark.pop("average", None)
    head = ["benchmark", "problems", "n", *(metric.upper() if k is None else f"k={k}" for metric, k in columns)]
    body = []
    for name, cells in by_benchmark.items():
        first = next(iter(cells.values()))
        shown = [_number(cells[column]) if column in cells else None for column in columns]
        body.append([name, first.num_problems, first.n, *shown])
    output.table(title, head, body)


def _number(row: Row) -> str:
    scale, digits = (100, 1) if row.metric == "pass@k" else (1, 3 if row.metric == "ucr" else 2)
    text = f"{scale * row.value:.{digits}f}"
    if row.ci_low is None or row.ci_high is None:
        return text
    return f"{text} [{scale * row.ci_low:.{digits}f}, {scale * row.ci_high:.{digits}f}]"


def _numbers(text: str | None, option: str, kind: type[Number]) -> list[Number] | None:
    from evals.errors import UsageError

    if text is None:
        return None
    try:
        numbers = [kind(part) for part in split([text])]
    except ValueError:
        numbers = []
    if not numbers:
        example = "1,2,4" if kind is int else "0.8,0.9"
        raise UsageError(f"{option} {text}: expected numbers separated by commas, such as {example}")
    return numbers
