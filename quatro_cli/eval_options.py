"""What the commands of `quatro eval` share: their options, and how they read samples and write documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli.options import split
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.records import Samples
    from evals.results import About, Result

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES",
        help="Samples (.jsonl, .jsonl.gz) or run directories.",
        default_factory=list,
        show_default=False,
    ),
]
Ks = Annotated[str | None, typer.Option("--k", metavar="1,2,4", help="Default: 1,2,4,...,256 up to n.")]
Interval = Annotated[bool, typer.Option("--ci", help="95 % bootstrap intervals over problems.")]
BootstrapSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")]
PerProblem = Annotated[bool, typer.Option("--per-problem", help="Counts of every problem in the document.")]
Label = Annotated[str | None, typer.Option("--label", help="Name of the result in tables.")]
Labels = Annotated[
    list[str],
    typer.Option(
        "--label",
        metavar="NAME",
        help="A name for each of the files, in their order; repeatable.",
        default_factory=list,
        show_default=False,
    ),
]
Regrade = Annotated[bool, typer.Option("--regrade", help="Judge again, even where the rows say `correct`.")]
Out = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the JSON document here too.")]
Similarity = Annotated[
    str | None, typer.Option(help="exact, tfidf, rouge-l, jaccard, edit. Default: tfidf (countdown: exact).")
]
Threshold = Annotated[float | None, typer.Option(help="Same solution from here. Default: .9 tfidf, .8 others.")]
Linkage = Annotated[str, typer.Option(help="components, complete, average or greedy.")]
Tokens = Annotated[str, typer.Option(help="math, sklearn or whitespace.")]


def read_files(files: list[Path], benchmarks: list[str]) -> Samples:
    """The samples in ``files``; raises UsageError if there are none."""
    from evals.errors import UsageError
    from evals.records import read_samples

    if not files:
        raise UsageError("no samples given; name .jsonl files or run directories, such as runs/quickstart-quatro-0")
    return read_samples(files, benchmarks=split(benchmarks) or None, keep_extra=True)


def about_files(samples: Samples, label: str | None, *, regrade: bool) -> About:
    """The head of the document: what sampling.json says, and who judged."""
    from evals.grading import GRADER_VERSION
    from evals.results import GraderInfo, about_samples

    found = about_samples(samples.files)
    found["label"] = label
    if regrade or any(row.correct is None for row in samples.rows):
        found["grader"] = GraderInfo(version=GRADER_VERSION, policy="strict")
    return found


def say_and_write(result: Result, *, json: bool, out: Path | None) -> None:
    """Warnings to stderr, the document to ``out`` and, with ``json``, to stdout."""
    for warning in result.warnings:
        output.warn(warning)
    if out is not None:
        result.write(out)
        output.info(f"written: {out}")
    if json:
        output.json(result.document())
