"""Samples as counts, which are all that Pass@k and UCC@k need: counted now, or kept from an earlier time.

Counts of large samples files are kept in the user's cache, each entry a file of its own in ``$QUATRO_CACHE/counts``.
Its name is a hash of all that decides what it holds: the contents of the samples files, how they were graded, the code
that counts, and what was counted. So an entry is never changed, only written once. Its first line is a hash of its name
and its content; an entry that is damaged, or has another one's name, is counted again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from evals.benchmarks.catalogue import Kind, registry
from evals.files.own_code import is_own
from evals.files.whole import write_bytes
from evals.metrics.beside import wrong_votes
from evals.metrics.counting import Counts, by_benchmark, count_clusters, hash_of
from evals.results.document import GraderInfo
from evals.samples.graded import Asked, FileState, Graded, Reading, file_state, grade_planned, plan_reading
from evals.samples.types import GradedProblem, Samples
from evals.similarity.catalogue import has_vendi_score
from evals.similarity.setting import Setting

_log = logging.getLogger(__name__)

# Reading and clustering less than this takes about as long as starting Python.
LEAST_BYTES = 1 << 20
# What decides about grades, similarities and clusters besides our own code.
_PACKAGES = ("numpy", "scipy", "rapidfuzz", "mpmath")


class Counted:
    """Problems as counts. The samples are read only when something is asked for that is not known yet.

    ``files`` are those that hold the samples, ``warnings`` are about them, ``grader`` is who graded them, and ``kinds``
    say of each benchmark how its answers are judged. What is counted is kept on ``shelf``, if there is one and if it
    would come out the same again.
    """

    files: Sequence[Path]
    warnings: Sequence[str]
    grader: GraderInfo
    problems: list[Counts]
    kinds: dict[str, Kind]

    def __init__(self, read: Callable[[], Graded], shelf: Shelf | None = None) -> None:
        self._read = read
        self._shelf = shelf
        self._clusters: dict[tuple[str, Setting, bool], list[Counts]] = {}
        if not self._take_kept():
            self.files, self.warnings, self.grader = self._samples.files, self._samples.warnings, self._graded.grader
            self.problems = [
                Counts(
                    one.benchmark, one.id, one.n, one.correct, reference=hash_of(one.answer), prompt=hash_of(one.prompt)
                )
                for one in self._problems
            ]
            self.kinds = {one.benchmark: one.kind for one in self._problems}
            self._keep_problems()

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

    @property
    def _samples(self) -> Samples:
        return self._graded.samples

    @cached_property
    def _problems(self) -> list[GradedProblem]:
        return self._samples.graded()

    def with_texts(self) -> dict[tuple[str, str], GradedProblem]:
        """By benchmark and id the problems with their texts, for which the samples are read."""
        return {(problem.benchmark, problem.id): problem for problem in self._problems}

    def with_votes(self) -> list[Counts]:
        """The problems with the votes for wrong answers; raises as `wrong_votes`.

        Answers are taken from completions and compared as the samples were graded.
        """
        if any(problem.wrong is None for problem in self.problems):
            votes = self._kept("votes")
            if votes is None:
                told = self.grader.model_extra or {}
                votes = wrong_votes(
                    list(zip(self._samples.problems(), self._problems, strict=True)),
                    policy="simko" if self.grader.policy == "simko" else "strict",
                    extraction=told.get("extraction") or "boxed",
                )
                self._keep(votes, "votes")
            pairs = zip(self.problems, votes, strict=True)
            self.problems = [problem._replace(wrong=tuple(wrong)) for problem, wrong in pairs]
        return self.problems

    def with_clusters(
        self,
        settings_of: Mapping[str, Sequence[Setting]],
        *,
        jobs: int | None = 1,
        on_progress: Callable[[int, int], None] | None = None,
        with_vendi: bool = False,
    ) -> dict[Setting, list[Counts]]:
        """The problems with their clusters by setting, as `count_clusters` counts them.

        They are kept, but for those by a similarity of the user's own.
        """
        known = self._clusters
        vendi_of = {one: with_vendi and has_vendi_score(one.similarity) for one in chain(*settings_of.values())}

        def is_missing(name: str, setting: Setting) -> bool:
            place = (name, setting, vendi_of[setting])
            if place not in known and (columns := self._kept("clusters", *place)) is not None:
                group = [problem for problem in self.problems if problem.benchmark == name]
                known[place] = [
                    Counts(name, one.id, one.n, one.correct, _sizes_of(runs), share, vendi=vendi)
                    for one, (runs, share, vendi) in zip(group, columns, strict=True)
                ]
            return place not in known

        missing_of = {
            name: [one for one in settings if is_missing(name, one)] for name, settings in settings_of.items()
        }
        if any(missing_of.values()):
            problems = [problem for problem in self._problems if missing_of[problem.benchmark]]
            counts = count_clusters(problems, missing_of, jobs=jobs, on_progress=on_progress, with_vendi=with_vendi)
            for setting, found in counts.items():
                for name, group in by_benchmark(found).items():
                    place = (name, setting, vendi_of[setting])
                    known[place] = group
                    # A similarity of the user's own may change with whatever its function reads.
                    if not is_own(setting.similarity):
                        self._keep(
                            [(_runs_of(one.sizes or ()), one.found_share, one.vendi) for one in group],
                            "clusters",
                            *place,
                        )
        clusters: dict[Setting, list[Counts]] = {}
        for name, settings in settings_of.items():
            for setting in settings:
                clusters.setdefault(setting, []).extend(known[name, setting, vendi_of[setting]])
        return clusters

    def _take_kept(self) -> bool:
        """Whether the problems are kept; takes them then, but for warnings that call the files by other names."""
        kept = self._kept("problems")
        if kept is None or self._shelf is None:
            return False
        files = self._shelf.reading.files
        if kept["warnings"] and kept["names"] != list(map(str, files)):
            return False
        self.files, self.warnings = [files[place] for place in kept["files"]], kept["warnings"]
        self.grader, self.kinds = (
            GraderInfo(**kept["grader"]),
            {name: Kind(*one) for name, one in kept["kinds"].items()},
        )
        self.problems = [
            Counts(name, id, n, correct, reference=reference, prompt=prompt)
            for name, id, n, correct, reference, prompt in kept["problems"]
        ]
        return True

    def _keep_problems(self) -> None:
        files = self._shelf.reading.files if self._shelf is not None else []
        kept = {
            "names": list(map(str, files)),
            "files": [place for place, file in enumerate(files) if file in self.files],
            "warnings": list(self.warnings),
            "grader": self.grader.model_dump(),
            "kinds": self.kinds,
            "problems": [
                (one.benchmark, one.id, one.n, one.correct, one.reference, one.prompt) for one in self.problems
            ],
        }
        self._keep(kept, "problems")

    def _kept(self, *what: object) -> Any:
        return self._shelf.read(*what) if self._shelf is not None else None

    def _keep(self, value: object, *what: object) -> None:
        if self._shelf is not None and self._graded.is_lasting:
            self._shelf.write(value, *what)


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
        shelf_of(plan, benchmarks, {**asked.given, "first": str(asked.first)}),
    )


def _runs_of(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Descending ``sizes`` as runs of (size, how often)."""
    return [(size, len(list(group))) for size, group in groupby(sizes)]


def _sizes_of(runs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The sizes that `_runs_of` was given."""
    return tuple(chain.from_iterable([size] * times for size, times in runs))


class Shelf(NamedTuple):
    """Where counts of these samples files are kept, and the ``key`` under which."""

    key: str
    reading: Reading
    states: Sequence[FileState]

    def read(self, *what: object) -> Any:
        """The JSON value that is kept of ``what`` was counted; None if there is none."""
        with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: this user has no home
            path = self._path(what)
            head, _, body = path.read_bytes().partition(b"\n")
            if head == _checksum(path, body):
                return json.loads(body)
        return None

    def write(self, value: object, *what: object) -> None:
        """Keeps ``value``, unless a samples file has changed since it was looked at or there is no place to keep it."""
        try:
            pairs = zip(self.reading.files, self.states, strict=True)
            if all(state.is_still_that_of(file) for file, state in pairs):
                path = self._path(what)
                path.parent.mkdir(parents=True, exist_ok=True)
                body = json.dumps(value).encode("ascii")
                write_bytes(path, [_checksum(path, body), b"\n", body])
        except RuntimeError:
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                _log.warning("%s: counts are not kept (%s)", _folder().parent, error.strerror)

    def _path(self, what: Sequence[object]) -> Path:
        return _folder() / hashlib.sha256(json.dumps([self.key, what]).encode()).hexdigest()


def _folder() -> Path:
    from evals.benchmarks.fetching import cache_folder

    return cache_folder().parent / "counts"


def _checksum(path: Path, body: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + body).hexdigest().encode()


def shelf_of(reading: Reading, benchmarks: Sequence[str] | None, asked: Mapping[str, str]) -> Shelf | None:
    """Where counts of the files are kept; None if together they are smaller than `LEAST_BYTES`.

    The contents decide, not the times of the files: a file may be changed and its time set back, or be copied and get
    another time. Hashing takes a few hundredths of the time that reading takes.
    """
    if sum(file.stat().st_size for file in reading.files) < LEAST_BYTES:
        return None
    said = {note.file: note for note in reading.notes}
    states = [(said[file].state if file in said else None) or file_state(file) for file in reading.files]
    key = {
        "benchmarks": sorted(benchmarks) if benchmarks is not None else None,
        "asked": dict(asked),
        "graders": [dict(said[file].grader) if file in said else None for file in reading.files],
        "warnings": list(reading.warnings),
        "code": _code(),
        "graded as": {name: [entry.grader, entry.has_short_answers] for name, entry in registry().items()},
        "contents": [[state.size, state.sha256] for state in states],
    }
    return Shelf(json.dumps(key, sort_keys=True), reading, states)


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
