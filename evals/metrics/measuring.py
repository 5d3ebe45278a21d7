"""From samples files to results: what `quatro eval passk | ucc | compare` and their functions in Python share."""

from __future__ import annotations

import inspect
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from evals.benchmarks.catalogue import GRADERS, is_grader
from evals.errors import UsageError
from evals.files.frames import DataFrame
from evals.metrics.comparing import compare_passk, compare_ucc
from evals.metrics.counting import Clustering, Counted
from evals.metrics.passk_ucc import BESIDE, check_beside, passk_result, ucc_result
from evals.metrics.valid import checker_of
from evals.results.document import About, Comparison, Result, results_frame
from evals.samples.about import about_samples, has_foreign_grades
from evals.samples.graded import Asked, read_graded
from evals.samples.graders import agreed_grader
from evals.text import Grid, Shown

Source = str | os.PathLike[str] | Iterable["Source"]  # one or several samples files, runs or folders
Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
_Function = TypeVar("_Function", bound=Callable[..., Any])
logger = logging.getLogger(__name__)

# Options that change nothing where only this metric is measured.
_IDLE = {"pass@k": ("similarity", "threshold", "linkage", "tokens", "valid"), "ucc@k": ("tau",)}


class Measured(Shown, dict[str, Result]):
    """What `measure` found: the results by their metric, each its command's document."""

    def __init__(self, results: Iterable[Result]) -> None:
        super().__init__({one.metric: one for one in results})
        self.warnings = list(dict.fromkeys(warning for one in self.values() for warning in one.warnings))

    def grids(self) -> Iterator[Grid]:
        """Those of all results."""
        for one in self.values():
            yield from one.grids()

    def frame(self) -> DataFrame:
        """The rows of all results as a data frame, as `Result.frame` has them."""
        return results_frame(list(self.values()))


@dataclass(frozen=True)
class Options:
    """What `measure` and `compare` take by name, to find these ``metrics``; `measure` says what it means.

    Raises, before a file is read:
        UsageError: an option is unknown, out of range or without effect.
    """

    metrics: Sequence[str]
    _: KW_ONLY
    benchmarks: str | Sequence[str] | None = None
    n: int | None = None
    grader: str | None = None
    similarity: str | Sequence[str] | None = None
    threshold: float | Sequence[float] | None = None
    linkage: str = "components"
    tokens: str | None = None
    also: str | Sequence[str] = ()
    tau: float | Sequence[float] | None = None
    valid: str | None = None
    cluster: str | None = None
    seed: int = 0
    jobs: int | None = 1
    over_seeds: bool = False

    def __post_init__(self) -> None:
        if self.seed:
            logger.warning(f"--seed {self.seed} has no effect here: intervals are computed, not drawn")
        metric, taus = self.metrics[0], ",".join(f"{tau:g}" for tau in self.taus)
        if metric not in BESIDE:
            raise UsageError(f"--metric {metric}: expected {' or '.join(BESIDE)}")
        for name in _IDLE.get(metric, ()) if len(self.metrics) == 1 else ():
            if getattr(self, name) != getattr(Options, name):
                raise UsageError(f"--{name} has no effect beside --metric {metric}; leave one of them out")
        if self.tau is not None and "g-pass" not in (listed(self.also) or ()):
            raise UsageError(f"--tau {taus} is for G-Pass@k; add --also g-pass, or leave --tau out")
        for name in self.metrics:
            check_beside(name, self.beside(name), self.taus)
        if "ucc@k" in self.metrics:
            self.clustering.settings("")
        if self.valid is not None:
            checker_of(self.valid)
        if self.grader is not None and not is_grader(self.grader):
            known = ", ".join(GRADERS)
            raise UsageError(f"--grader {self.grader!r}: expected {known} or a function of your own as module:function")
        if self.n is not None and self.n < 1:
            raise UsageError(f"n = {self.n}: expected a number of samples of each problem, at least 1")

    @property
    def clustering(self) -> Clustering:
        return Clustering(listed(self.similarity), listed(self.threshold), self.linkage, self.tokens)

    @property
    def grading(self) -> Asked:
        return Asked({} if self.grader is None else {"grader": self.grader}, first=self.n)

    @property
    def taus(self) -> list[float]:
        return listed(self.tau) or [0.5]

    def beside(self, metric: str) -> list[str]:
        """The names of ``also`` that are for ``metric``: all but those for another one of the metrics."""
        others = [name for other in self.metrics if other != metric for name in BESIDE[other]]
        return [name for name in listed(self.also) or () if name not in others]


def _naming_options(function: _Function) -> _Function:
    """``function`` with the fields of `Options` in place of ``**options``, as `help` and docs/api.md show it."""
    shown = inspect.signature(function)
    own = [one for one in shown.parameters.values() if one.kind is not one.VAR_KEYWORD]
    parameters = [*own, *list(inspect.signature(Options).parameters.values())[1:]]
    function.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


@_naming_options
def measure(
    samples: Source,
    k: int | Sequence[int] | None = None,
    *,
    metric: str | None = None,
    ci: bool = False,
    per_problem: bool = False,
    label: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Measured:
    """Pass@k and UCC@k of samples: a dict of the results of `quatro eval passk` and `quatro eval ucc`, by metric.

    Each result has `rows`, `warnings`, `frame()`, `document()` (what --json prints) and `write(FILE)`. The `frame()` of
    the dict has the rows of both. Samples without a grade are graded.

        >>> measured = quatro.measure("runs/first", k=[1, 2], ci=True)
        >>> measured["pass@k"] == quatro.measure("runs/first", k=[1, 2], metric="pass@k", ci=True)["pass@k"]
        True
        >>> frame = measured.frame()
        >>> frame[frame["metric"] == "ucc@k"]["k"].unique().tolist()
        [1, 2]

    Args:
        samples: one or several samples files, runs or folders, or results of `draw_samples`; they make one result.
        k: numbers of draws. Default: 1, 2, 4, ..., 256, up to n.
        metric: `pass@k` or `ucc@k` alone. Clustering, which only `ucc@k` needs, may take minutes. Default: both.
        ci: add 95 % intervals (`evals.intervals.mean_intervals`): over problems only, or with ``over_seeds`` over seeds
            and problems. The counts of every problem are added, too.
        per_problem: add the counts of every problem, as `problems` of each result.
        over_seeds: each of ``samples`` is of another seed, on the same problems, and rows are means over seeds.
        label: name of the results in tables.
        benchmarks: only these.
        n: only the first n samples of each problem: compare at equal n.
        grader: `math`, `countdown`, `code`, `reasoning-gym` or your own as `module:function`.
        similarity, threshold, linkage, tokens: as in `ucc_at_k`; several of the first two are combined.
        also: `maj`, `g-pass` or `pass^k` beside Pass@k, `distinct` beside UCC@k.
        tau: the shares of correct draws that `g-pass` requires. Default: 0.5.
        valid: a checker of derivations, `word-problems`, `codegrammar` or your own as `module:function`: UCC@k without
            the right answers that it calls false stands beside the other, and their share.
        cluster: a key of the rows whose value problems of a family share; such problems are not drawn apart.
        jobs: processes; with more than one a script needs `if __name__ == "__main__":`. None: one per usable core.
        progress: opens what shows how far the work is, by its name. Default: a line on a terminal or in a notebook.

    Raises:
        UsageError: an option is unknown, out of range or without effect, or a k is larger than some problem's n.
        DataError: a file is missing or damaged, or files were graded by different graders.
    """
    asked = Options(list(BESIDE) if metric is None else [metric], **options)
    if per_problem and asked.over_seeds:
        raise UsageError("--per-problem has no effect beside --over-seeds; leave one of them out")
    if asked.cluster is not None and not ci:
        raise UsageError(f"--cluster {asked.cluster} is for intervals; add --ci, or leave it out")
    counted, about = counted_samples(paths_of(samples), asked, label=label, progress=progress)
    kept = per_problem or (ci and not asked.over_seeds)  # tables make intervals over seeds and problems from these
    how: dict[str, Any] = {"ks": listed(k), "ci": ci, "per_problem": kept, "about": about}
    results = []
    if "pass@k" in asked.metrics:
        results.append(passk_result(counted, also=asked.beside("pass@k"), taus=asked.taus, **how))
    if "ucc@k" in asked.metrics:
        how |= {"also": asked.beside("ucc@k"), "valid": asked.valid, "jobs": asked.jobs}
        with (progress or progress_line)("clustering problems") as tell:
            results.append(ucc_result(counted, asked.clustering, on_progress=tell, **how))
    if has_foreign_grades(about):
        logger.info("the grades are those of the samples (`correct`), not quatro's: `quatro eval grade FILE -o graded`")
    measured = Measured(results)
    for warning in measured.warnings:
        logger.warning(warning)
    return measured


@_naming_options
def compare(
    a: Source,
    b: Source,
    k: int | Sequence[int] | None = None,
    *,
    others: Sequence[Source] = (),
    metric: str = "pass@k",
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """How much better ``b`` does than ``a`` on the same problems, and whether it may be chance: `quatro eval compare`.

    The comparison has `rows` with `difference` (b minus a), its 95 % interval and `p`; `warnings`, `frame()`,
    `document()` and `write(FILE)` are those of a result. ``a`` and ``b`` are samples; with ``over_seeds`` both have
    the same number of seeds. The options are those of `measure`.

        >>> hotter = quatro.draw_samples("runs/first", "countdown", n=2, temperature=1.5, grade=True)
        >>> found = quatro.compare("runs/first/samples/T1-p1-step000002", hotter, k=1)
        >>> found.rows[0].difference == found.rows[0].b - found.rows[0].a, 0 < found.rows[0].p <= 1
        (True, True)

    Args:
        others: more samples of the same problems, each of which is compared with ``a``. A row names its samples in
            ``samples_b``, and `each()` returns a comparison for each.
        metric: `pass@k`, perhaps with ``also``, or `ucc@k`, which brings its parts, distinct@k, pairs and more.

    Raises:
        UsageError: as `measure`.
        DataError: as `measure`, or the two do not hold the same problems with the same n.
    """
    if metric == "ucc@k" and options.get("also"):
        raise UsageError("--also has no effect beside --metric ucc@k, which brings distinct@k, pairs and more")
    if options.get("valid"):
        raise UsageError("valid is of `measure` and `quatro eval ucc`; measure both sides by it")
    asked = Options([metric], **options)
    sides = [paths_of(a), paths_of(b), *map(paths_of, others)]
    counted = [one for one, _ in several_counted(sides, asked, progress=progress)]
    how: dict[str, Any] = {"names": tuple(map(_name, sides)), "ks": listed(k)}
    if metric == "pass@k":
        return compare_passk(*counted, also=asked.beside(metric), taus=asked.taus, **how)
    with (progress or progress_line)("clustering problems") as tell:
        how |= {"clustering": asked.clustering, "jobs": asked.jobs, "on_progress": tell}
        return compare_ucc(*counted, **how)


def listed(values: Any) -> list[Any] | None:
    """One value or several, also those of an array, as a list; None stays None."""
    return None if values is None else np.atleast_1d(values).tolist()


def paths_of(samples: Source) -> list[Path]:
    """The paths in ``samples``; raises UsageError if there are none."""
    if isinstance(samples, str | os.PathLike):
        return [Path(samples)]
    paths = [path for one in samples for path in paths_of(one)]
    if not paths:
        raise UsageError("no samples given; name .jsonl files or run directories, such as runs/quickstart-quatro-0")
    return paths


def _name(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def counted_samples(
    paths: Sequence[Path], asked: Options, *, label: str | None = None, progress: Progress | None = None
) -> tuple[list[Counted], About]:
    """Samples as counts, together or of each seed, and a document's head."""
    how: dict[str, Any] = {"benchmarks": listed(asked.benchmarks), "asked": asked.grading, "jobs": asked.jobs}
    parts = [[path] for path in paths] if asked.over_seeds else [paths]
    with (progress or progress_line)("grading answers") as tell:
        counted = [Counted(*read_graded(part, on_progress=tell, **how), asked.cluster) for part in parts]
    about = about_samples([file for one in counted for file in one.files])
    graders = {_name(part): one.grader for part, one in zip(parts, counted, strict=True)}
    grader = agreed_grader(graders) if len(counted) > 1 else counted[0].grader
    said: dict[str, Any] = {"label": label, "grader": grader}
    if asked.n is not None and "sampling" in about.model_fields_set:
        said["sampling"] = about.sampling.model_copy(update={"n": asked.n})
    return counted, about.model_copy(update=said)


def several_counted(sides: Sequence[Sequence[Path]], asked: Options, **how: Any) -> list[tuple[list[Counted], About]]:
    """`counted_samples` of each side; a warning is logged if only some came with grades of another program.

    Raises DataError if their graders differ.
    """
    found = [counted_samples(paths, asked, **how) for paths in sides]
    about_of = {_name(paths): about for paths, (_, about) in zip(sides, found, strict=True)}
    agreed_grader({name: about.grader for name, about in about_of.items()})
    foreign = [str(path) for paths in sides if has_foreign_grades(about_of[_name(paths)]) for path in paths]
    ours = [str(path) for paths in sides for path in paths if str(path) not in foreign]
    if foreign and ours:
        logger.warning(
            f"{', '.join(foreign)}: the grades came with the samples (`correct`), and quatro graded {', '.join(ours)}, "
            "so differences may be those of the graders; have quatro grade all of them: `quatro eval grade "
            f"{shlex.join(foreign)} -o graded`"
        )
    return found


@contextmanager
def progress_line(description: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that writes a line on stderr of a terminal or notebook; elsewhere nothing is said."""
    stream, said = sys.stderr, ""
    is_seen = stream is not None and (stream.isatty() or "ipykernel" in sys.modules)

    def tell(done: int, total: int) -> None:
        nonlocal said
        text = f"\r{description}: {100 * done // max(total, 1)} %"
        if is_seen and text != said:
            said = text
            stream.write(text)
            stream.flush()

    try:
        yield tell
    finally:
        if said:
            stream.write("\n")
