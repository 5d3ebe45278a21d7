"""What the commands of `quatro eval` share: their options, and how they read samples and write documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from quatro_cli.options import split
from quatro_cli.output import Bar, output

if TYPE_CHECKING:
    from evals.results.comparison import Comparison
    from evals.results.document import About, Result
    from evals.samples.graded import Asked
    from evals.samples.types import Samples

POLICIES = ("strict", "simko")
EXTRACTIONS = ("boxed", "answer-is", "last-number")

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
Regrade = Annotated[bool, typer.Option("--regrade", help="Grade again, whatever rows and graded/ say.")]
Policy = Annotated[str | None, typer.Option("--policy", help="strict or simko; default: graded/'s, else strict.")]
Extraction = Annotated[
    str | None,
    typer.Option("--extraction", help="boxed, answer-is, last-number; default likewise."),
]
Grader = Annotated[str | None, typer.Option("--grader", help="math or countdown; default: the benchmark's.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="FILE", help="Write it here too: .json, or its rows as .csv or .parquet."),
]
Similarity = Annotated[
    str | None, typer.Option(help="exact, tfidf, rouge-l, jaccard, edit. Default: tfidf (countdown: exact).")
]
Threshold = Annotated[float | None, typer.Option(help="Same solution from here. Default: .9 tfidf, .8 others.")]
Linkage = Annotated[str, typer.Option(help="components, complete, average or greedy.")]
Tokens = Annotated[str, typer.Option(help="math, sklearn or whitespace.")]


def asked_for(policy: str | None, extraction: str | None, grader: str | None, *, regrade: bool) -> Asked:
    """How to grade, as the options say; raises UsageError for an unknown name."""
    from evals.errors import UsageError
    from evals.samples.graded import Asked
    from evals.samples.graders import GRADERS

    for option, value, known in (
        ("--policy", policy, POLICIES),
        ("--extraction", extraction, EXTRACTIONS),
        ("--grader", grader, GRADERS),
    ):
        if value is not None and value not in known:
            raise UsageError(f"{option} {value!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    return Asked(cast(Any, policy), cast(Any, extraction), grader, regrade)


def require(files: list[Path]) -> None:
    """Raises UsageError if there are no files."""
    from evals.errors import UsageError

    if not files:
        raise UsageError("no samples given; name .jsonl files or run directories, such as runs/quickstart-quatro-0")


def read_graded(
    files: list[Path], benchmarks: list[str], asked: Asked, *, label: str | None = None, id: str | None = None
) -> tuple[Samples, About]:
    """The samples in ``files``, a grade on each, and the head of a document about them.

    ``id``: only the samples of this problem need a grade. Raises UsageError if there are no files.
    """
    from evals.samples import graded
    from evals.samples.about import about_samples

    require(files)
    wanted = split(benchmarks, "-b") or None
    with progress("grading") as tell:
        samples, grader = graded.read_graded(files, benchmarks=wanted, asked=asked, id=id, on_progress=tell)
    about = about_samples(samples.files)
    about["label"] = label
    about["grader"] = grader
    return samples, about


def read_two_graded(
    paths: tuple[Path, Path], benchmarks: list[str], asked: Asked, *, label: str | None = None
) -> tuple[Samples, Samples, About]:
    """Both samples, and the head of a document about the second; raises DataError if graders differ."""
    from evals.samples.graded import agreed_grader

    (a, about_a), (b, about_b) = (read_graded([path], benchmarks, asked, label=label) for path in paths)
    agreed_grader({str(path): about["grader"] for path, about in zip(paths, (about_a, about_b), strict=True)})
    return a, b, about_b


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that moves a bar, which is there from its first call on."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        bars: list[Bar] = []

        def tell(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(output.progress(description, total)))
            bars[0].update(done)

        yield tell


def check_out(out: Path | None) -> None:
    """Raises, before anything is computed, UsageError for a folder and MissingError for .parquet without pyarrow."""
    from evals.errors import UsageError
    from evals.files.frames import FRAME_SUFFIXES, check_frame_file

    if out is not None and out.is_dir():
        raise UsageError(f"-o {out}: that is a folder; name a file, such as {out / 'result.json'}")
    if out is not None and out.suffix in FRAME_SUFFIXES:
        check_frame_file(out)


def say_and_write(result: Result | Comparison, *, json: bool, out: Path | None) -> None:
    """Warnings to stderr, the document to ``out`` and, with ``json``, to stdout."""
    for warning in result.warnings:
        output.warn(warning)
    if out is not None:
        result.write(out)
        output.info(f"written: {out}")
    if json:
        output.json(result.document())
