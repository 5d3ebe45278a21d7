"""`quatro eval`: Pass@k and UCC@k of samples files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli.commands.flips import flips
from quatro_cli.commands.grade import grade
from quatro_cli.commands.studies import bias, similarity, temperature
from quatro_cli.eval_options import (
    BootstrapSeed,
    Files,
    Interval,
    Ks,
    Label,
    Linkage,
    Out,
    PerProblem,
    Regrade,
    Similarity,
    Tokens,
    about_files,
    read_files,
)
from quatro_cli.options import Benchmarks, Json, numbers, split
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.comparing import Comparison
    from evals.results import Result

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("grade")(grade)
app.command("flips")(flips)
app.command("similarity")(similarity)
app.command("temperature")(temperature)
app.command("bias")(bias)

Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="A B", help="B minus A on the same problems: interval and p, paired bootstrap."),
]


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
    also: Annotated[
        str | None, typer.Option(metavar="maj,g-pass", help="Rows besides: maj (maj@k), g-pass (G-Pass@k).")
    ] = None,
    tau: Annotated[
        str | None, typer.Option(metavar="T[,T]", help="Share of k draws g-pass asks to be right. Default: 0.5.")
    ] = None,
    compare: Compare = None,
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
      quatro eval passk runs/quickstart-quatro-0 -b countdown --k 1,8,64 --ci --json
      quatro eval passk --compare base.jsonl tuned.jsonl --k 1,256
    """
    from evals.aggregate import passk_result
    from evals.comparing import compare_passk
    from evals.errors import UsageError

    metrics = split([also]) if also is not None else []
    if tau is not None and "g-pass" not in metrics:
        raise UsageError(f"--tau {tau} concerns G-Pass@k; add --also g-pass, or leave --tau out")
    taus = numbers(tau, "--tau", float) or [0.5]
    ks = numbers(k, "--k", int)
    if compare is not None:
        _refuse_beside("--compare", files=files, ci=ci, per_problem=per_problem, label=label)
        a, b = (read_files([path], benchmarks) for path in compare)
        names = (str(compare[0]), str(compare[1]))
        _finish(
            compare_passk(a, b, names=names, ks=ks, also=metrics, taus=taus, seed=seed, regrade=regrade),
            json=json,
            out=out,
        )
        return
    samples = read_files(files, benchmarks)
    about = about_files(samples, label, regrade=regrade)
    result = passk_result(
        samples, ks=ks, also=metrics, taus=taus, ci=ci, seed=seed, per_problem=per_problem, regrade=regrade, **about
    )
    _finish(result, json=json, out=out)


@app.command("ucc")
def ucc(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    similarity: Similarity = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="T[,T]", help="Same solution from here. Default: .9 tfidf, .8 others.")
    ] = None,
    linkage: Linkage = "components",
    tokens: Tokens = "math",
    compare: Compare = None,
    show: Annotated[
        str | None, typer.Option("--show", metavar="ID", help="What the largest clusters of one problem look like.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the problems.")] = 1,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    per_problem: PerProblem = False,
    label: Label = None,
    regrade: Regrade = False,
    json: Json = False,
    out: Out = None,
) -> None:
    """UCC@k: different right solutions in k samples; UCR: clusters per sample.

    Components chain as n grows: compare models at equal n only. A threshold does
    not mean the same for two similarities.

    \b
    Examples:
      quatro eval ucc base.jsonl --similarity tfidf,rouge-l --linkage complete --json
      quatro eval ucc --compare base.jsonl tuned.jsonl --k 256
      quatro eval ucc samples/math500.jsonl --show test/algebra/12
    """
    from evals.aggregate import ucc_result
    from evals.comparing import compare_ucc
    from evals.representatives import clusters_of_problem
    from quatro_cli.eval_tables import LARGEST_CLUSTERS, show_clusters

    ks = numbers(k, "--k", int)
    similarities = split([similarity]) if similarity is not None else None
    thresholds = numbers(threshold, "--threshold", float)
    if show is not None:
        _refuse_beside("--show", compare=compare, ks=ks, ci=ci, per_problem=per_problem, label=label, out=out)
        found = clusters_of_problem(
            read_files(files, benchmarks),
            show,
            similarities=similarities,
            thresholds=thresholds,
            linkage=linkage,
            tokens=tokens,
            regrade=regrade,
        )
        if json:
            output.json({"schema": 1, "problems": [one.document(largest=LARGEST_CLUSTERS) for one in found]})
        else:
            show_clusters(found)
        return
    if compare is not None:
        _refuse_beside("--compare", files=files, ci=ci, per_problem=per_problem, label=label)
        a, b = (read_files([path], benchmarks) for path in compare)
        comparison = compare_ucc(
            a,
            b,
            names=(str(compare[0]), str(compare[1])),
            similarities=similarities,
            thresholds=thresholds,
            linkage=linkage,
            tokens=tokens,
            ks=ks,
            seed=seed,
            regrade=regrade,
            jobs=jobs,
        )
        _finish(comparison, json=json, out=out)
        return
    samples = read_files(files, benchmarks)
    result = ucc_result(
        samples,
        similarities=similarities,
        thresholds=thresholds,
        linkage=linkage,
        tokens=tokens,
        ks=ks,
        ci=ci,
        seed=seed,
        per_problem=per_problem,
        regrade=regrade,
        jobs=jobs,
        **about_files(samples, label, regrade=regrade),
    )
    _finish(result, json=json, out=out)


def _refuse_beside(option: str, **others: object) -> None:
    """Raises UsageError if one of ``others`` was given: it would be ignored."""
    from evals.errors import UsageError

    for name, value in others.items():
        if value:
            given = "FILES" if name == "files" else "--k" if name == "ks" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{given} has no effect beside {option}; leave one of them out")


def _finish(result: Result | Comparison, *, json: bool, out: Path | None) -> None:
    from evals.results import Result
    from quatro_cli.eval_tables import show_comparison, show_rows

    for warning in result.warnings:
        output.warn(warning)
    if out is not None:
        result.write(out)
    if json:
        output.json(result.document())
    elif isinstance(result, Result):
        show_rows(result.rows)
    else:
        show_comparison(result)
    if out is not None:
        output.info(f"written: {out}")
