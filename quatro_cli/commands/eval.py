"""`quatro eval`: Pass@k and UCC@k of samples files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from quatro_cli.commands.grade import grade
from quatro_cli.options import Benchmarks, Json, split
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.comparing import Comparison
    from evals.records import Samples
    from evals.results import About, Result

Number = TypeVar("Number", int, float)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("grade")(grade)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES",
        help="Samples (.jsonl, .jsonl.gz) or run directories.",
        default_factory=list,
        show_default=False,
    ),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="A B", help="B minus A on the same problems: interval and p, paired bootstrap."),
]
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
    taus = _numbers(tau, "--tau", float) or [0.5]
    ks = _numbers(k, "--k", int)
    if compare is not None:
        _refuse_beside("--compare", files=files, ci=ci, per_problem=per_problem, label=label)
        a, b = (_read([path], benchmarks) for path in compare)
        names = (str(compare[0]), str(compare[1]))
        _finish(
            compare_passk(a, b, names=names, ks=ks, also=metrics, taus=taus, seed=seed, regrade=regrade),
            json=json,
            out=out,
        )
        return
    samples = _read(files, benchmarks)
    about = _about(samples, label, regrade=regrade)
    result = passk_result(
        samples, ks=ks, also=metrics, taus=taus, ci=ci, seed=seed, per_problem=per_problem, regrade=regrade, **about
    )
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
    """UCC@k: how many different right solutions k samples hold; UCR: clusters per sample drawn.

    Clusters are components of similarity >= threshold, and components chain as n grows: compare models at
    equal n only. A threshold does not mean the same for two similarities.

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

    ks = _numbers(k, "--k", int)
    similarities = split([similarity]) if similarity is not None else None
    thresholds = _numbers(threshold, "--threshold", float)
    if show is not None:
        _refuse_beside("--show", compare=compare, ks=ks, ci=ci, per_problem=per_problem, label=label, out=out)
        found = clusters_of_problem(
            _read(files, benchmarks),
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
        a, b = (_read([path], benchmarks) for path in compare)
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
    samples = _read(files, benchmarks)
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
        **_about(samples, label, regrade=regrade),
    )
    _finish(result, json=json, out=out)


def _refuse_beside(option: str, **others: object) -> None:
    """Raises UsageError if one of ``others`` was given: it would be ignored."""
    from evals.errors import UsageError

    for name, value in others.items():
        if value:
            given = "FILES" if name == "files" else "--k" if name == "ks" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{given} has no effect beside {option}; leave one of them out")


def _read(files: list[Path], benchmarks: list[str]) -> Samples:
    from evals.errors import UsageError
    from evals.records import read_samples

    if not files:
        raise UsageError("no samples given; name .jsonl files or run directories, such as runs/quickstart-quatro-0")
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
