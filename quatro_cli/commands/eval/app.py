"""`quatro eval`: Pass@k and UCC@k of samples files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from quatro_cli.commands.eval.flips import flips
from quatro_cli.commands.eval.grade import grade
from quatro_cli.commands.eval.options import (
    BootstrapSeed,
    Extraction,
    Files,
    Grader,
    Interval,
    Ks,
    Label,
    Linkage,
    Out,
    PerProblem,
    Policy,
    Regrade,
    Similarity,
    Tokens,
    asked_for,
    check_out,
    progress,
    read_graded,
    read_two_graded,
    say_and_write,
)
from quatro_cli.commands.eval.studies import bias, similarity, temperature
from quatro_cli.options import Benchmarks, Json, names, numbers
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.results.comparison import Comparison
    from evals.samples.graded import Asked

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("grade")(grade)
app.command("flips")(flips)
app.command("similarity")(similarity)
app.command("temperature")(temperature)
app.command("bias")(bias)


class Clustering(TypedDict):
    """What counts as the same solution, as asked for."""

    similarities: list[str] | None
    thresholds: list[float] | None
    linkage: str
    tokens: str


Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="A B", help="B - A by problem: 95 % interval, p (bootstrap)."),
]


Thresholds = Annotated[
    str | None, typer.Option(metavar="T[,T]", help="Same from here on; default: .9 tfidf, .8 others.")
]
Show = Annotated[str | None, typer.Option("--show", metavar="ID", help="Texts of one problem's largest clusters.")]


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
        str | None, typer.Option(metavar="maj,g-pass,cover", help="Also: maj@k, G-Pass@k, Cover@tau.")
    ] = None,
    tau: Annotated[
        str | None, typer.Option(metavar="T[,T]", help="Right share g-pass, cover ask for; default 0.5.")
    ] = None,
    compare: Compare = None,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    per_problem: PerProblem = False,
    label: Label = None,
    regrade: Regrade = False,
    policy: Policy = None,
    extraction: Extraction = None,
    grader: Grader = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Pass@k: the chance that at least one of k samples is right, unbiased from n samples a problem.

    \b
    Examples:
      quatro eval passk runs/quickstart-quatro-0 -b countdown --k 1,8,64 --ci --json
      quatro eval passk --compare base.jsonl tuned.jsonl --k 1,256
    """
    from evals.errors import UsageError
    from evals.metrics.comparing import compare_passk
    from evals.metrics.passk_ucc import check_beside_pass, passk_result
    from quatro_cli.commands.eval.tables import show_rows

    metrics = names(also, "--also") or []
    if tau is not None and not {"g-pass", "cover"} & set(metrics):
        raise UsageError(f"--tau {tau} concerns G-Pass@k and Cover@tau; add --also g-pass (or cover), or leave it out")
    taus = numbers(tau, "--tau", float) or [0.5]
    ks = numbers(k, "--k", int)
    asked = asked_for(policy, extraction, grader, regrade=regrade)
    check_beside_pass(metrics, taus)
    check_out(out)
    if compare is not None:
        _refuse_beside("--compare", files=files, ci=ci, per_problem=per_problem, label=label)
        a, b, _ = read_two_graded(compare, benchmarks, asked)
        sides = (str(compare[0]), str(compare[1]))
        _say_difference(compare_passk(a, b, names=sides, ks=ks, also=metrics, taus=taus, seed=seed), json=json, out=out)
        return
    samples, about = read_graded(files, benchmarks, asked, label=label)
    result = passk_result(samples, ks=ks, also=metrics, taus=taus, ci=ci, seed=seed, per_problem=per_problem, **about)
    say_and_write(result, json=json, out=out)
    if not json:
        show_rows(result.rows)


@app.command("ucc")
def ucc(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    similarity: Similarity = None,
    threshold: Thresholds = None,
    linkage: Linkage = "components",
    tokens: Tokens = "math",
    also: Annotated[
        str | None,
        typer.Option(metavar="vendi,distinct", help="Also: Vendi score, clusters of k right answers."),
    ] = None,
    compare: Compare = None,
    show: Show = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes to use.")] = 1,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    per_problem: PerProblem = False,
    label: Label = None,
    regrade: Regrade = False,
    policy: Policy = None,
    extraction: Extraction = None,
    grader: Grader = None,
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
    from evals.metrics.counting import clustering_settings
    from evals.metrics.passk_ucc import check_beside_ucc, ucc_result
    from quatro_cli.commands.eval.tables import show_rows

    ks = numbers(k, "--k", int)
    similarities = names(similarity, "--similarity")
    thresholds = numbers(threshold, "--threshold", float)
    clustering_settings("", similarities, thresholds, linkage, tokens)  # before any file is read
    further = names(also, "--also") or []
    check_beside_ucc(further, similarities)
    how: Clustering = {"similarities": similarities, "thresholds": thresholds, "linkage": linkage, "tokens": tokens}
    asked = asked_for(policy, extraction, grader, regrade=regrade)
    check_out(out)
    if show is not None:
        _refuse_beside(
            "--show", compare=compare, ks=ks, also=also, ci=ci, per_problem=per_problem, label=label, out=out
        )
        _clusters(files, benchmarks, asked, show, how, json=json)
        return
    if compare is not None:
        _refuse_beside("--compare", files=files, also=also, ci=ci, per_problem=per_problem, label=label)
        _say_difference(_compared(compare, benchmarks, asked, how, ks=ks, seed=seed, jobs=jobs), json=json, out=out)
        return
    samples, about = read_graded(files, benchmarks, asked, label=label)
    with progress("clustering") as tell:
        result = ucc_result(
            samples,
            **how,
            also=further,
            ks=ks,
            ci=ci,
            seed=seed,
            per_problem=per_problem,
            jobs=jobs,
            on_progress=tell,
            **about,
        )
    say_and_write(result, json=json, out=out)
    if not json:
        show_rows(result.rows)


def _clusters(files: list[Path], benchmarks: list[str], asked: Asked, id: str, how: Clustering, *, json: bool) -> None:
    """Prints the largest clusters of the problem called ``id``."""
    from evals.studies.clusters import clusters_of_problem
    from quatro_cli.commands.eval.tables import LARGEST_CLUSTERS, show_clusters

    samples, _ = read_graded(files, benchmarks, asked, id=id)
    found = clusters_of_problem(samples, id, **how)
    if json:
        output.json({"schema": 1, "problems": [one.document(largest=LARGEST_CLUSTERS) for one in found]})
    else:
        show_clusters(found)


def _compared(
    sides: tuple[Path, Path],
    benchmarks: list[str],
    asked: Asked,
    how: Clustering,
    *,
    ks: list[int] | None,
    seed: int,
    jobs: int,
) -> Comparison:
    """UCC@k of the second samples minus that of the first."""
    from evals.metrics.comparing import compare_ucc

    a, b, _ = read_two_graded(sides, benchmarks, asked)
    names = (str(sides[0]), str(sides[1]))
    with progress("clustering") as tell:
        return compare_ucc(a, b, names=names, **how, ks=ks, seed=seed, jobs=jobs, on_progress=tell)


def _say_difference(comparison: Comparison, *, json: bool, out: Path | None) -> None:
    from quatro_cli.commands.eval.tables import show_comparison

    say_and_write(comparison, json=json, out=out)
    if not json:
        show_comparison(comparison)


def _refuse_beside(option: str, **others: object) -> None:
    """Raises UsageError if one of ``others`` was given: it would be ignored."""
    from evals.errors import UsageError

    for name, value in others.items():
        if value:
            given = "FILES" if name == "files" else "--k" if name == "ks" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{given} has no effect beside {option}; leave one of them out")
