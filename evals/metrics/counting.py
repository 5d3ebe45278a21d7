"""Samples as counts, which are all that Pass@k and UCC@k need: counted now, or kept from an earlier time.

What was counted of large samples files is kept in the user's cache, each entry a JSON file in ``$QUATRO_CACHE/counts``.
Its name is a hash of all that decides what it holds: the samples files and how they were graded, the code that counts,
and what was counted. So an entry is only written once, and never changed.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from multiprocessing.pool import Pool
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from evals.benchmarks.catalogue import Kind, kind_of, maker_of, registry
from evals.clustering import check_linkage, cluster_sizes, partitions, resolve_threshold, solutions_in
from evals.errors import QuatroError
from evals.estimators import vendi_score
from evals.files.own_code import is_own
from evals.files.whole import file_digest, write_bytes
from evals.metrics.beside import wrong_votes
from evals.results.document import GraderInfo
from evals.samples.graded import Asked, Graded, Reading, grade_planned, plan_reading
from evals.samples.types import GradedProblem, Samples
from evals.similarity import DEFAULT, Setting, has_vendi_score
from evals.similarity.measures import Distinct, check_tokens, similarity_of_distinct
from evals.worker_pool import usable_cores

# Characters of different correct answers from which processes save more than their start costs.
LEAST_SHARED = 4_000_000
# Reading and clustering less than this takes about as long as starting Python.
LEAST_BYTES = 1 << 20
# What decides about grades, similarities and clusters besides our own code.
_PACKAGES = ("numpy", "scipy", "rapidfuzz", "mpmath")


class Counts(NamedTuple):
    """The counts of one problem.

    ``sizes`` are those of its clusters (None before clustering), ``wrong`` the votes of `evals.metrics.beside`.
    ``reference`` and ``prompt`` are hashes, empty where they are not needed.
    """

    benchmark: str
    id: str
    n: int
    correct: int
    sizes: Sequence[int] | None = None
    found_share: float | None = None
    wrong: Sequence[int] | None = None
    vendi: float | None = None
    reference: str = ""
    prompt: str = ""


def hash_of(text: object) -> str:
    """Equal for reference answers, or prompts, that are the same as text; empty for None."""
    if text is None:
        return ""
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Clustering(NamedTuple):
    """What counts as the same solution, as asked for: every combination of similarities and thresholds.

    ``similarities`` None means tfidf, but exact where answers are short, as in the embedded benchmarks; ``thresholds``
    None means each similarity's default; ``tokens`` None means math, but code for programs, which are then compared
    without comments and layout.
    """

    similarities: Sequence[str] | None = None
    thresholds: Sequence[float] | None = None
    linkage: str = "components"
    tokens: str | None = None

    def settings(self, benchmark: str, kind: Kind | None = None) -> list[Setting]:
        """Those for ``benchmark``, of its ``kind`` in the registry if that is None.

        Raises:
            UsageError: an unknown similarity, linkage or tokens; a threshold that its similarity cannot have.
        """
        check_linkage(self.linkage)
        kind = kind or kind_of(benchmark)
        tokens = tokens_for(kind, self.tokens)
        thresholds = self.thresholds or ()
        settings: list[Setting] = []
        for similarity in self.similarities or (["exact"] if kind.has_short_answers else [DEFAULT]):
            resolved = [resolve_threshold(similarity, threshold) for threshold in thresholds]
            for threshold in resolved or [resolve_threshold(similarity, None)]:
                settings.append(Setting(similarity, threshold, self.linkage, tokens))
        return list(dict.fromkeys(settings))


BY_DEFAULT = Clustering()


def tokens_for(kind: Kind, tokens: str | None) -> str:
    """The tokens asked for, or the default of benchmarks of this ``kind``; raises UsageError for unknown ones."""
    if tokens is not None:
        check_tokens(tokens)
        return tokens
    return "code" if kind.grader == "code" else "math"


def solutions(problem: GradedProblem, tokens: str) -> Distinct:
    """The distinct solutions among the correct completions of a problem; see `solutions_in` on ``tokens``."""
    texts = problem.completions
    if problem.kind.grader == "countdown":  # white space around a chain is not another solution
        texts = [text.strip() for text in texts]
    return solutions_in(texts, tokens=tokens, prompt=problem.prompt, entry_point=problem.entry_point)


def labels_by_setting(unique: Distinct, settings: Sequence[Setting]) -> dict[Setting, list[int]]:
    """The cluster of each text under each setting; the thresholds of one measure share its work."""
    labels: dict[Setting, list[int]] = {}
    for measure in dict.fromkeys(setting._replace(threshold=None) for setting in settings):
        thresholds = [one.threshold for one in settings if one._replace(threshold=None) == measure]
        found = partitions(
            unique,
            similarity=measure.similarity,
            thresholds=thresholds,
            linkage=measure.linkage,
            tokens=measure.tokens,
        )
        labels.update({measure._replace(threshold=threshold): found[threshold] for threshold in thresholds})
    return {setting: labels[setting] for setting in settings}


def _cluster_counts(
    problem: GradedProblem, *, settings_of: Mapping[str, Sequence[Setting]], with_vendi: bool
) -> dict[Setting, Counts]:
    """Cluster sizes of the correct completions under each setting, and ``with_vendi`` their Vendi score."""
    counts = {}
    settings = settings_of[problem.benchmark]
    unique = solutions(problem, settings[0].tokens)
    vendi = _vendi_scores(unique, settings) if with_vendi else {}
    for setting, labels in labels_by_setting(unique, settings).items():
        sizes = cluster_sizes(labels)
        is_share_known = setting.similarity == "exact" and problem.kind.grader == "countdown"
        found_share = maker_of("countdown").found_share(str(problem.answer), len(sizes)) if is_share_known else None
        counts[setting] = Counts(
            problem.benchmark,
            problem.id,
            problem.n,
            problem.correct,
            sizes,
            found_share,
            vendi=vendi.get((setting.similarity, setting.tokens)),
        )
    return counts


def _vendi_scores(unique: Distinct, settings: Sequence[Setting]) -> dict[tuple[str, str], float]:
    """Vendi scores by similarity and tokens, the only parts of a setting that change them."""
    return {
        (name, tokens): vendi_score(similarity_of_distinct(name, unique, tokens=tokens), unique.count_U.tolist())
        for name, tokens in dict.fromkeys((setting.similarity, setting.tokens) for setting in settings)
        if has_vendi_score(name)
    }


def count_clusters(
    problems: Sequence[GradedProblem],
    settings_of: Mapping[str, Sequence[Setting]],
    *,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] | None = None,
    with_vendi: bool = False,
) -> dict[Setting, list[Counts]]:
    """Counts of all problems by setting; ``settings_of`` is by benchmark, ``jobs`` a number of processes.

    ``jobs`` None means one a usable core, and one alone where starting more would take longer than they save, or where
    a similarity is the user's own: its function may hold a model, which would be in every process. The
    settings of a benchmark have the same tokens. ``with_vendi`` adds Vendi scores; ``on_progress(done, total)`` counts
    problems.

    Raises:
        UsageError: as `own_matrix`, for a similarity of the user's own.
        QuatroError: a process ended early, as when memory runs out.
    """
    has_own = any(is_own(setting.similarity) for settings in settings_of.values() for setting in settings)
    jobs = min(jobs or (1 if has_own else _useful_jobs(problems)), len(problems))
    count = partial(_cluster_counts, settings_of=settings_of, with_vendi=with_vendi)
    counts: dict[Setting, list[Counts]] = {}
    others = set(multiprocessing.active_children())
    with ExitStack() as stack:
        counted: Iterator[dict[Setting, Counts]] = map(count, problems)
        if jobs > 1:
            # A fork would copy the samples into every worker as soon as it counts its references to them.
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs))
            counted = _counted_by(pool, set(multiprocessing.active_children()) - others, count, problems)
        for done, by_setting in enumerate(counted, start=1):
            for setting, one in by_setting.items():
                counts.setdefault(setting, []).append(one)
            if on_progress is not None:
                on_progress(done, len(problems))
    return counts


def _counted_by(
    pool: Pool,
    workers: Set[BaseProcess],
    count: Callable[[GradedProblem], dict[Setting, Counts]],
    problems: Sequence[GradedProblem],
) -> Iterator[dict[Setting, Counts]]:
    """``count`` of each problem by the ``workers`` of ``pool``.

    Raises:
        QuatroError: a process ended, for whose answer the pool would wait for ever.
    """
    answers = pool.imap(count, problems)
    for _ in problems:
        while True:
            try:
                yield answers.next(timeout=1.0)
                break
            except multiprocessing.TimeoutError:
                if not workers <= set(multiprocessing.active_children()):
                    raise QuatroError(
                        f"one of the {len(workers)} processes that compare answers ended early, perhaps because memory "
                        "ran out; choose fewer with --jobs"
                    ) from None


def _useful_jobs(problems: Sequence[GradedProblem]) -> int:
    """As many processes as cores can be used, but one where there is too little to compare."""
    num_characters = sum(len(text) for problem in problems for text in set(problem.completions))
    return usable_cores() if num_characters >= LEAST_SHARED else 1


class Counted:
    """Problems as counts. The samples are read only when something is asked for that is not kept.

    ``files`` are those that hold the samples, ``warnings`` are about them, ``grader`` is who graded them, ``kinds`` say
    of each benchmark how its answers are judged, and ``problems`` hold no clusters yet.

    ``read`` gives the samples, and ``key`` all that decides what is counted; None where nothing is to be kept.
    """

    def __init__(self, read: Callable[[], Graded], key: Callable[[], str | None] = lambda: None) -> None:
        self._read, self._key_now = read, key
        self._key = key()
        known = self._kept(self._count_problems, "problems")
        self.files = [Path(file) for file in known["files"]]
        self.warnings: list[str] = known["warnings"]
        self.grader = GraderInfo(**known["grader"])
        self.kinds = {name: Kind(*kind) for name, kind in known["kinds"].items()}
        self.problems = [Counts(*problem) for problem in known["problems"]]

    @classmethod
    def of(cls, samples: Samples | Counted, grader: GraderInfo | None = None) -> Counted:
        """The counts of ``samples``, which ``grader`` graded; raises DataError if one has no grade."""
        if isinstance(samples, Counted):
            return samples
        graded = Graded(samples, grader or GraderInfo())
        return cls(lambda: graded)

    @cached_property
    def _graded(self) -> Graded:
        return self._read()

    @cached_property
    def _texts(self) -> list[GradedProblem]:
        return self._graded.samples.graded()

    def _count_problems(self) -> dict[str, Any]:
        samples, grader, _ = self._graded
        return {
            "files": list(map(str, samples.files)),
            "warnings": list(samples.warnings),
            "grader": grader.model_dump(),
            "kinds": {one.benchmark: one.kind for one in self._texts},
            "problems": [
                Counts(
                    one.benchmark, one.id, one.n, one.correct, reference=hash_of(one.answer), prompt=hash_of(one.prompt)
                )
                for one in self._texts
            ],
        }

    def with_texts(self) -> dict[tuple[str, str], GradedProblem]:
        """By benchmark and id the problems with their texts, for which the samples are read."""
        return {(problem.benchmark, problem.id): problem for problem in self._texts}

    def with_votes(self) -> list[Counts]:
        """The problems with the votes for wrong answers; raises as `wrong_votes`.

        Answers are taken from completions and compared as the samples were graded.
        """
        told = self.grader.model_extra or {}
        votes = self._kept(
            lambda: wrong_votes(
                list(zip(self._graded.samples.problems(), self._texts, strict=True)),
                policy="simko" if self.grader.policy == "simko" else "strict",
                extraction=told.get("extraction") or "boxed",
            ),
            "votes",
        )
        return [one._replace(wrong=tuple(wrong)) for one, wrong in zip(self.problems, votes, strict=True)]

    def with_clusters(
        self,
        settings_of: Mapping[str, Sequence[Setting]],
        *,
        jobs: int | None = 1,
        on_progress: Callable[[int, int], None] | None = None,
        with_vendi: bool = False,
    ) -> dict[Setting, list[Counts]]:
        """The problems with their clusters by setting, as `count_clusters` counts them."""

        def count() -> list[tuple[Setting, list[Counts]]]:
            found = count_clusters(self._texts, settings_of, jobs=jobs, on_progress=on_progress, with_vendi=with_vendi)
            return list(found.items())

        # A similarity of the user's own may change with whatever its function reads.
        has_own = any(is_own(one.similarity) for one in chain(*settings_of.values()))
        found = count() if has_own else self._kept(count, "clusters", settings_of, with_vendi)
        return {Setting(*setting): [Counts(*one) for one in group] for setting, group in found}

    def _kept(self, count: Callable[[], Any], *what: object) -> Any:
        """What ``count`` returns, or returned in an earlier process: as JSON holds it, so that tuples are lists."""
        if self._key is None:
            return count()
        path = _folder() / hashlib.sha256(json.dumps([self._key, what]).encode("ascii")).hexdigest()
        with suppress(OSError, ValueError):  # absent or damaged
            digest, text = path.read_bytes().split(b"\n", 1)
            if digest.decode("ascii") == hashlib.sha256(text).hexdigest():
                return json.loads(text)
        value = count()
        if self._is_lasting:
            text = json.dumps(value).encode("ascii")
            with suppress(OSError):  # nothing can be written there
                path.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(path, [hashlib.sha256(text).hexdigest().encode("ascii"), b"\n", text])
        return value

    @cached_property
    def _is_lasting(self) -> bool:
        """Whether the counts would come out the same again, and are those of the files that the key names."""
        return self._graded.is_lasting and self._key_now() == self._key


def count_samples(
    paths: Sequence[Path],
    *,
    benchmarks: Sequence[str] | None = None,
    asked: Asked | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counted:
    """`read_graded` as counts. Those of large files are kept, and looked up next time.

    Raises:
        UsageError, DataError: as `read_graded`.
    """
    asked = asked or Asked()
    plan = plan_reading(paths, asked)
    return Counted(
        lambda: grade_planned(plan, benchmarks=benchmarks, asked=asked, jobs=jobs, on_progress=on_progress),
        lambda: _key_of(plan, benchmarks, asked),
    )


def _key_of(plan: Reading, benchmarks: Sequence[str] | None, asked: Asked) -> str | None:
    """All that decides what is counted of files; None if nothing is kept of them, as they are small.

    The contents decide, not the times of the files: a file may be changed and its time set back, or be copied and get
    another time. Hashing takes a few hundredths of the time that reading takes.
    """
    if sum(file.stat().st_size for file in plan.files) < LEAST_BYTES:
        return None
    try:
        _folder()
    except RuntimeError:  # this user has no home
        return None
    key = {
        "benchmarks": sorted(benchmarks) if benchmarks is not None else None,
        "asked": asdict(asked),
        "graders": [note.grader for note in plan.notes],
        "warnings": plan.warnings,
        "code": _code(),
        "graded as": {name: [entry.grader, entry.has_short_answers] for name, entry in registry().items()},
        "files": [[str(file), file_digest(file).hexdigest()] for file in plan.files],
    }
    return json.dumps(key, sort_keys=True)


@cache
def _code() -> str:
    """A hash of everything that turns samples into counts: our code, the packages that it uses, Python."""
    digest = hashlib.sha256(platform.python_version().encode("ascii"))
    folder = Path(__file__).parents[1]
    for file in sorted(chain(folder.rglob("*.py"), folder.rglob("*.toml"))):
        digest.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}\n".encode("ascii"))
    return digest.hexdigest()


def _folder() -> Path:
    from evals.benchmarks.fetching import cache_folder

    return cache_folder().parent / "counts"
