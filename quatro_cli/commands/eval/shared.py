"""What the commands of `quatro eval` share: their options, how they read samples, show rows and write documents."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quatro_cli.help import SIMILARITIES, THRESHOLDS
from quatro_cli.options import checkpoint_step, names, numbers, refuse_loss, repeated, split, usage_error
from quatro_cli.output import Bar, output, visible

if TYPE_CHECKING:
    from evals.metrics.counting import Clustering, Counted
    from evals.results.document import About, Comparison, Result
    from evals.samples.graded import Asked
    from evals.samples.types import Samples
    from evals.text import Grid

Files = Annotated[
    list[Path],
    Argument(
        metavar="FILE",
        help="Samples (.jsonl, .jsonl.gz), folders of them, or run directories.",
        default_factory=list,
        show_default=False,
    ),
]
A = Annotated[Path, Argument(metavar="A", help="Samples to compare with: a file, a folder or a run directory.")]
B = Annotated[Path, Argument(metavar="B", help="Samples of the same problems, with the same n.")]
Ks = Annotated[str | None, Option(metavar="K[,K]", help="Values of k. Default: 1,2,4,...,256, up to n.")]
Also = Annotated[str | None, Option(metavar="NAME[,NAME]", help="maj, g-pass (G-Pass@k) or cover (Cover@tau).")]
Taus = Annotated[
    str | None, Option(metavar="T[,T]", help="Share of correct draws that g-pass and cover require. Default: 0.5.")
]
Interval = Annotated[bool, Option("--ci", help="Add 95 % bootstrap intervals over problems.")]
Step = Annotated[str | None, Option(metavar="N|best", help="Only samples of this checkpoint of a run. Default: all.")]
First = Annotated[int | None, Option("--n", metavar="N", min=1, help="First N samples only: compare at equal n.")]
BootstrapSeed = Annotated[int, Option(metavar="N", min=0, help="Seed of the bootstrap.")]
PerProblem = Annotated[bool, Option("--per-problem", help="Put counts of every problem in --json, -o.")]
Label = Annotated[str | None, Option(metavar="NAME", help="Name of the result in tables.")]
Labels = Annotated[
    list[str], repeated("--label", metavar="NAME", help="Name of each file, in the order of the files; repeatable.")
]
Grader = Annotated[str | None, Option(metavar="NAME", help="math, countdown, code, reasoning-gym or your own.")]
Out = Annotated[
    Path | None, Option("-o", "--out", metavar="FILE", help="Write it too: .json, or rows: .csv, .parquet.")
]
NAMED = f"{SIMILARITIES} or your own module:function."
_WHICH = f"{NAMED} Default: tfidf, or exact for short answers such as countdown's."
Similarities = Annotated[str | None, Option(metavar="NAME[,NAME]", help=_WHICH)]
_SAME = f"Two samples this similar count as one. Default: {THRESHOLDS}; your own has none."
Thresholds = Annotated[str | None, Option(metavar="T[,T]", help=_SAME)]
Threshold = Annotated[float | None, Option(metavar="T", help=_SAME)]
Linkage = Annotated[str, Option(metavar="NAME", help="components, complete, average or greedy.", show_default=False)]
Tokens = Annotated[str | None, Option(metavar="NAME", help="math, sklearn, whitespace; for programs: code.")]
Jobs = Annotated[int | None, Option(metavar="N", min=1, help="Processes. Default: one per usable core.")]
Id = Annotated[str, Option(metavar="ID", help="The problem.")]


def clustering(similarity: str | None, threshold: str | None, linkage: str, tokens: str | None) -> Clustering:
    """What the options mean; raises UsageError for an unknown name before any file is read."""
    from evals.metrics.counting import Clustering

    how = Clustering(names(similarity, "--similarity"), numbers(threshold, "--threshold", float), linkage, tokens)
    how.settings("")
    return how


def beside_pass(also: str | None, tau: str | None) -> tuple[list[str], list[float]]:
    """The metrics beside Pass@k and their taus; raises UsageError for an unknown one, or for taus without a use."""
    from evals.metrics.passk_ucc import check_beside_pass

    metrics = names(also, "--also") or []
    if tau is not None and not {"g-pass", "cover"} & set(metrics):
        raise usage_error(
            f"--tau {tau} is for G-Pass@k and Cover@tau; add --also g-pass (or cover), or leave --tau out"
        )
    taus = numbers(tau, "--tau", float) or [0.5]
    check_beside_pass(metrics, taus)
    return metrics, taus


def one_of(option: str, value: str | None, known: Sequence[str]) -> Any:
    """``value``, which is None where the option was not given; raises UsageError unless it is one of ``known``."""
    if value is not None and value not in known:
        raise usage_error(f"{option} {value!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    return value


def asked_for(grader: str | None = None, *, first: int | None = None, **named: str | None) -> Asked:
    """How to grade, as the options say; raises UsageError for an unknown grader."""
    from evals.benchmarks.catalogue import GRADERS, is_grader
    from evals.samples.graded import Asked

    if not is_grader(grader):
        one_of("--grader", grader, (*GRADERS, "a function of your own as module:function"))
    given = {"grader": grader, **named}
    return Asked({name: value for name, value in given.items() if value is not None}, first=first)


def of_step(files: list[Path], step: str | None, benchmarks: list[str]) -> list[Path]:
    """``files``, or with --step the folder of each run that holds samples of that checkpoint."""
    if (wanted := checkpoint_step(step)) is None:
        return files
    from quatro.sample.folder import samples_of_step

    return [samples_of_step(run, wanted, split(benchmarks, "-b")) for run in files]


def require(files: list[Path]) -> None:
    """Raises UsageError if there are no files."""
    if not files:
        raise usage_error("no samples given; name .jsonl files or run directories, such as runs/quickstart-quatro-0")


def graded_samples(
    files: list[Path],
    benchmarks: list[str],
    *,
    asked: Asked | None = None,
    label: str | None = None,
    id: str | None = None,
) -> tuple[Samples, About]:
    """The samples in ``files`` with a grade on each (of problem ``id`` alone, if given), and a document's head."""
    from evals.samples.about import about_samples
    from evals.samples.graded import read_graded

    require(files)
    wanted = split(benchmarks, "-b") or None
    with progress("grading answers") as tell:
        samples, grader = read_graded(files, benchmarks=wanted, asked=asked, id=id, on_progress=tell)
    return samples, {**about_samples(samples.files), "label": label, "grader": grader}


def counted_samples(
    files: list[Path], benchmarks: list[str], *, asked: Asked, label: str | None = None, jobs: int | None = None
) -> tuple[Counted, About]:
    """`graded_samples` as counts, which may be known from an earlier command."""
    from evals.metrics.counting import count_samples
    from evals.samples.about import about_samples

    require(files)
    wanted = split(benchmarks, "-b") or None
    with progress("grading answers") as tell:
        counted = count_samples(files, benchmarks=wanted, asked=asked, jobs=jobs, on_progress=tell)
    about = about_samples(counted.files)
    if asked.first is not None and "sampling" in about:
        about["sampling"] = about["sampling"].model_copy(update={"n": asked.first})
    return counted, {**about, "label": label, "grader": counted.grader}


def several_counted(paths: Sequence[Path], benchmarks: list[str], **how: Any) -> list[tuple[Counted, About]]:
    """`counted_samples` of each path; raises DataError if their graders differ."""
    from evals.samples.graders import agreed_grader

    found = [counted_samples([path], benchmarks, **how) for path in paths]
    about_of = {path: about for path, (_, about) in zip(paths, found, strict=True)}
    agreed_grader({str(path): about["grader"] for path, about in about_of.items()})
    _warn_of_foreign_grades(about_of)
    return found


def say_whose_grades(about: About) -> None:
    """A note where the grades came with the samples of another program."""
    from evals.samples.about import has_foreign_grades

    if has_foreign_grades(about):
        output.info(
            "the grades are those of the samples file (`correct`), not quatro's: `quatro eval grade FILE -o graded`"
        )


def _warn_of_foreign_grades(about_of: Mapping[Path, About]) -> None:
    """A warning where some sides came with grades of another program and others were graded by quatro."""
    from evals.samples.about import has_foreign_grades

    foreign = [str(path) for path, about in about_of.items() if has_foreign_grades(about)]
    ours = [str(path) for path in about_of if str(path) not in foreign]
    if foreign and ours:
        output.warn(
            f"{', '.join(foreign)}: the grades came with the samples (`correct`), and quatro graded {', '.join(ours)}, "
            "so differences may be those of the graders; have quatro grade all of them: `quatro eval grade "
            f"{shlex.join(foreign)} -o graded`"
        )


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that moves a bar, which is there from its first call on; each total has its own."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        bar_of: dict[int, Bar] = {}

        def tell(done: int, total: int) -> None:
            if total not in bar_of:
                stack.close()
                bar_of.clear()
                bar_of[total] = stack.enter_context(output.progress(description, total))
            bar_of[total](done)

        yield tell


def check_out(out: Path | None, inputs: Sequence[Path]) -> None:
    """Raises, before anything is computed, what writing ``out`` would raise.

    Raises:
        UsageError: it is a folder, one of ``inputs`` or another file that must not be lost (`refuse_loss`).
        MissingError: it is a .parquet file, and pyarrow is not installed.
    """
    from evals.files.frames import FRAME_SUFFIXES, check_frame_file

    if out is not None and out.is_dir():
        raise usage_error(f"-o {out}: that is a folder; name a file, such as {out / 'result.json'}")
    if out is not None and out.suffix in FRAME_SUFFIXES:
        check_frame_file(out)
    refuse_loss(out, inputs)


def check_per_problem(per_problem: bool, *, json: bool, out: Path | None) -> None:
    """Raises UsageError if the counts of every problem were asked for but would be shown nowhere."""
    if per_problem and not json and (out is None or out.suffix != ".json"):
        raise usage_error("--per-problem has no effect on the screen or in rows; add --json, or -o FILE.json")


def say_and_write(result: Result | Comparison, *, json: bool, out: Path | None) -> None:
    """Warnings to stderr, the document to ``out`` and, with ``json``, to stdout."""
    output.warn(*result.warnings)
    if out is not None:
        result.write(out)
        output.info(f"written: {out}")
    if json:
        output.json(result.document())


def show(*grids: Grid) -> None:
    """Tables with their notes."""
    for grid in grids:
        output.table(grid.title, grid.columns, grid.rows)
        for note in grid.notes:
            output.data(visible(note))
