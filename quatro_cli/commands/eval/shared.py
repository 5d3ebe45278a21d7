"""What the commands of `quatro eval` share: their options, how they read samples, show rows and write documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quatro_cli.help import SIMILARITIES, THRESHOLDS
from quatro_cli.options import Json, checkpoint_step, names, numbers, refuse_idle, refuse_loss, split, usage_error
from quatro_cli.output import Bar, output, visible

if TYPE_CHECKING:
    from evals.results.document import About, Comparison, Result
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
Ks = Annotated[str | None, Option(metavar="K[,K]", help="Values of k. Default: 1,2,4,...,256, up to n.")]
Also = Annotated[str | None, Option(metavar="NAME[,NAME]", help="maj, g-pass (G-Pass@k) or pass^k.")]
Taus = Annotated[str | None, Option(metavar="T[,T]", help="Share of correct draws that g-pass requires. Default: 0.5.")]
OverSeeds = Annotated[bool, Option("--over-seeds", help="Each FILE is a seed of one model: show means.")]
First = Annotated[int | None, Option(metavar="N", min=1, help="First N samples only: compare at equal n.")]
Step = Annotated[str | None, Option(metavar="N|best", help="Only samples of this checkpoint of a run. Default: all.")]
Grader = Annotated[str | None, Option(metavar="NAME", help="math, countdown, code, reasoning-gym or your own.")]
Label = Annotated[str | None, Option(metavar="NAME", help="Name of the result in tables.")]
NAMED = f"{SIMILARITIES}, embed:MODEL or your own module:function."
_WHICH = f"{NAMED} Default: rouge-l; tfidf for code; exact for short answers."
_SAME = f"Two samples this similar count as one. Default: {THRESHOLDS}; your own has none."
Threshold = Annotated[float | None, Option(metavar="T", help=_SAME)]
Linkage = Annotated[str, Option(metavar="NAME", help="components, complete, average or greedy.", show_default=False)]
Tokens = Annotated[str | None, Option(metavar="NAME", help="math, sklearn, whitespace; for programs: code.")]
Partition = Annotated[str | None, Option(metavar="judge:URL", help="A language model says which are the same.")]
Jobs = Annotated[int | None, Option(metavar="N", min=1, help="Processes. Default: one per usable core.")]
Id = Annotated[str, Option(metavar="ID", help="The problem.")]


@dataclass(frozen=True)
class Same:
    """What counts as the same solution."""

    similarity: Annotated[str | None, Option(metavar="NAME[,NAME]", help=_WHICH)] = None
    threshold: Annotated[str | None, Option(metavar="T[,T]", help=_SAME)] = None
    linkage: Linkage = "components"
    tokens: Tokens = None


@dataclass(frozen=True)
class SameOrJudged(Same):
    """The same, or as a language model says."""

    partition: Partition = None
    max_calls: Annotated[int | None, Option(metavar="N", min=0, help="Most calls of the judge. Default: 10000.")] = None


@dataclass(frozen=True)
class Counted:
    """Which samples count, who grades them, and what is shared."""

    n: First = None
    grader: Grader = None
    cluster: Annotated[str | None, Option(metavar="KEY", help="Intervals over families that share this key.")] = None
    jobs: Jobs = None
    seed: Annotated[int, Option(metavar="N", min=0, help="Of no effect.", hidden=True)] = 0


@dataclass(frozen=True)
class Told:
    """What a result holds beside its values."""

    ci: Annotated[bool, Option("--ci", help="Add 95 % intervals.")] = False
    per_problem: Annotated[bool, Option("--per-problem", help="Put counts of every problem in --json, -o.")] = False
    label: Label = None


@dataclass(frozen=True)
class Written:
    """Where a document goes: to stdout, to the file ``out``, both or nowhere."""

    json: Json = False
    out: Annotated[
        Path | None, Option("-o", "--out", metavar="FILE", help="Write it too: .json, or rows: .csv, .parquet.")
    ] = None

    def check(self, inputs: Sequence[Path], *, partition: str | None = None, per_problem: bool = False) -> None:
        """Raises, before anything is computed, what writing would raise, and beside ``out`` the replies of a judge.

        Raises:
            UsageError: it is a folder, one of ``inputs`` or another file that must not be lost (`refuse_loss`); or
                counts of every problem were asked for but would be shown nowhere.
            MissingError: it is a .parquet file, and pyarrow is not installed.
        """
        from evals.files.frames import FRAME_SUFFIXES, check_frame_file

        out = self.out
        if out is not None and out.is_dir():
            raise usage_error(f"-o {out}: that is a folder; name a file, such as {out / 'result.json'}")
        if out is not None and out.suffix in FRAME_SUFFIXES:
            check_frame_file(out)
        refuse_loss(out, inputs)
        replies = None if out is None or partition is None else out.with_suffix(".judge.jsonl").resolve()
        if replies in [path.resolve() for path in inputs]:
            raise usage_error(
                f"-o {out}: the judge's replies would be written to {replies}, which is read; name another"
            )
        if per_problem and not self.json and (out is None or out.suffix != ".json"):
            raise usage_error("--per-problem has no effect on the screen or in rows; add --json, or -o FILE.json")

    def write(self, result: Result | Comparison) -> None:
        """The document where it goes."""
        if self.out is not None:
            result.write(self.out)
            output.info(f"written: {self.out}")
        if self.json:
            output.json(result.document())

    def finish(self, result: Result) -> None:
        """`write`, or without ``json`` also its tables on the screen."""
        self.write(result)
        if not self.json:
            show(*result.grids())


def options(benchmarks: list[str], *typed: Same | Counted, **others: Any) -> dict[str, Any]:
    """What was typed, as keyword arguments of `measure`, `compare` and `clusters`."""
    given: dict[str, Any] = {name: value for one in typed for name, value in vars(one).items()} | others
    partition, max_calls = given.pop("partition", None), given.pop("max_calls", None)
    readers: dict[str, Callable[[Any, str], Any]] = {"similarity": names, "also": names}
    readers |= dict.fromkeys(("threshold", "tau"), partial(numbers, kind=float))
    given |= {name: read(given[name], f"--{name}") for name, read in readers.items() if name in given}
    if partition is None and max_calls is not None:
        raise usage_error("--max-calls is for --partition judge:URL; add it, or leave this out")
    if partition is not None:
        if not partition.startswith("judge:"):
            raise usage_error(f"--partition {partition}: expected judge:URL, as in judge:http://localhost:8000/v1")
        refuse_idle({"--similarity": given["similarity"]}, "--partition")
        from evals.similarity.measures import by_model

        judge = by_model(partition)
        judge.max_calls = judge.max_calls if max_calls is None else max_calls
        given["similarity"] = [judge.name]
    return {"benchmarks": split(benchmarks, "-b") or None, **given}


def measured(files: list[Path], k: str | None, metric: str, **asked: Any) -> Result:
    """`measure` of one metric, with a bar."""
    from evals.metrics.measuring import measure

    return measure(files, numbers(k, "--k", int), metric=metric, progress=progress, **asked)[metric]


def of_step(files: list[Path], step: str | None, benchmarks: list[str]) -> list[Path]:
    """``files``, or with --step the folder of each run that holds samples of that checkpoint."""
    if (wanted := checkpoint_step(step)) is None:
        return files
    from quatro.sample.folder import samples_of_step

    return [samples_of_step(run, wanted, split(benchmarks, "-b")) for run in files]


def graded_samples(
    files: list[Path], benchmarks: list[str], *, label: str | None = None, id: str | None = None
) -> tuple[Samples, About]:
    """The samples in ``files`` with a grade on each (of problem ``id`` alone, if given), and a document's head."""
    from evals.metrics.measuring import paths_of
    from evals.samples.about import about_samples
    from evals.samples.graded import read_graded

    wanted = split(benchmarks, "-b") or None
    with progress("grading answers") as tell:
        samples, grader = read_graded(paths_of(files), benchmarks=wanted, id=id, on_progress=tell)
    return samples, about_samples(samples.files).model_copy(update={"label": label, "grader": grader})


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


def judged(result: Any, partition: str | None, out: Path | None) -> Any:
    """``result`` with what the judge of ``partition``, if any, counted; its replies are written beside ``out``."""
    if partition is None:
        return result
    from evals.similarity.measures import by_model

    counts = by_model(partition).counts(out)
    told = "{judge}: of {pairs} pairs {disagreements} are the same in one order alone; {unclear} replies say neither"
    output.warn(f"{told.format(**counts)}: they count as different. -o FILE writes all replies beside FILE")
    return result.model_copy(update={"judge": counts})


def show(*grids: Grid) -> None:
    """Tables with their notes."""
    for grid in grids:
        output.table(grid.title, grid.columns, grid.rows)
        for note in grid.notes:
            output.data(visible(note))
