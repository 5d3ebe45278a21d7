"""Counts kept beside samples files, so that the next command need not read and cluster them again.

A file of two lines of JSON: who wrote it and the SHA-256 of the second line, which is `Kept`. It is used only if its
`key` is that of the files as they are: their contents, what was asked for, and the code that counts. What cannot be
used is no error: the samples are read, and the counts are written anew.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import platform
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import NonNegativeInt, PositiveInt

from evals.benchmarks.catalogue import Kind
from evals.files.whole import write_bytes
from evals.results.document import Document, GraderInfo
from evals.samples.graded import Reading
from evals.samples.graded_copies import FileState, file_state

_log = logging.getLogger(__name__)

# Reading and clustering less than this takes about as long as starting Python.
LEAST_BYTES = 1 << 20
MOST_BYTES = 64 << 20
_HEAD = b'{"quatro counts": 1, "sha256": "'
# What decides about grades, similarities and clusters besides our own code.
_PACKAGES = ("numpy", "scipy", "rapidfuzz", "sympy", "math-verify", "latex2sympy2-extended")

Runs = list[tuple[PositiveInt, PositiveInt]]


class KeptClusters(Document, extra="forbid"):
    """Clusters under one setting: for each problem runs of (size, how many clusters have it), in descending order."""

    setting: tuple[str, float | None, str, str]
    sizes: list[Runs]
    vendi: list[float] | None
    found_share: list[float] | None


class KeptProblems(Document, extra="forbid"):
    """The problems of one benchmark, a list entry each; ``wrong`` are votes for wrong answers.

    ``recorded`` is the kind that the samples say, None where they say none and ``kind`` is the registry's.
    """

    benchmark: str
    kind: Kind
    recorded: Kind | None
    id: list[str]
    n: list[PositiveInt]
    correct: list[NonNegativeInt]
    reference: list[str]
    prompt: list[str]
    wrong: list[list[PositiveInt]] | None
    clusters: list[KeptClusters]

    def is_sound(self) -> bool:
        """Whether the columns fit each other."""
        columns: list[Sequence[object]] = [
            self.n,
            self.correct,
            self.reference,
            self.prompt,
            *([self.wrong] if self.wrong is not None else []),
        ]
        for one in self.clusters:
            columns += [one.sizes, *(column for column in (one.vendi, one.found_share) if column is not None)]
            if [sum(size * times for size, times in runs) for runs in one.sizes] != self.correct:
                return False
        is_possible = all(correct <= n for correct, n in zip(self.correct, self.n, strict=False))
        return bool(self.id) and is_possible and all(len(column) == len(self.id) for column in columns)


class Kept(Document, extra="forbid"):
    """What is kept of samples files; ``files`` are the places of those that hold the benchmarks asked for.

    ``names`` are those that ``warnings`` may mention.
    """

    key: dict[str, Any]
    names: list[str]
    files: list[NonNegativeInt]
    grader: GraderInfo
    warnings: list[str]
    problems: list[KeptProblems]


class Shelf(NamedTuple):
    """Where counts of these samples files are kept, and the key under which."""

    path: Path
    key: Mapping[str, Any]
    reading: Reading
    states: Sequence[FileState]

    def read(self) -> Kept | None:
        """What is kept there, if it is whole and of these files as they are."""
        if not self._is_ours():
            return None
        try:
            head, body = self.path.read_bytes().split(b"\n", 1)
            if head != _head(body):
                return None
            kept = Kept.model_validate_json(body)
        except (OSError, ValueError):
            return None
        is_same = kept.key == self.key and (not kept.warnings or kept.names == list(map(str, self.reading.files)))
        return kept if is_same and self._is_sound(kept) else None

    def _is_sound(self, kept: Kept) -> bool:
        names = [one.benchmark for one in kept.problems]
        # A sample takes more than a byte, so numbers that would fill the memory are none of these files.
        is_possible = sum(sum(one.n) for one in kept.problems) <= sum(state.size for state in self.states)
        return (
            bool(names)
            and len(set(names)) == len(names)
            and all(place < len(self.states) for place in kept.files)
            and is_possible
            and all(one.is_sound() for one in kept.problems)
        )

    def write(self, kept: Kept) -> None:
        """Keeps ``kept``, if the files have not changed since they were looked at and the folder can be written to."""
        body = kept.model_dump_json().encode("utf-8") + b"\n"
        try:
            pairs = zip(self.reading.files, self.states, strict=True)
            if len(body) > MOST_BYTES or not all(state.is_still_that_of(file) for file, state in pairs):
                return
            if os.path.lexists(self.path) and not self._is_ours():
                _log.warning("%s is no file of ours, so counts are not kept; remove it, or move the samples", self.path)
                return
            write_bytes(self.path, [_head(body), b"\n", body])
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                _log.warning("%s: counts are not kept (%s)", self.path, error.strerror)

    def _is_ours(self) -> bool:
        """Whether it begins as our files do, also if a crash left only the beginning of one."""
        with suppress(OSError):
            status = self.path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= 2 * MOST_BYTES:
                with self.path.open("rb") as stream:
                    return _HEAD.startswith(stream.read(len(_HEAD)))
        return False


def _head(body: bytes) -> bytes:
    return _HEAD + hashlib.sha256(body).hexdigest().encode("ascii") + b'"}'


def shelf_of(reading: Reading, benchmarks: Sequence[str] | None, asked: Mapping[str, str]) -> Shelf | None:
    """Where counts of the files are kept; None if together they are smaller than `LEAST_BYTES`.

    The contents decide, not the times of the files: a file may be changed and its time set back, or be copied and get
    another time. Hashing takes a few hundredths of the time that reading takes.
    """
    if sum(file.stat().st_size for file in reading.files) < LEAST_BYTES:
        return None
    said = {note.file: note for note in reading.notes}
    states = [(said[file].state if file in said else None) or file_state(file) for file in reading.files]
    chosen = {"benchmarks": sorted(benchmarks) if benchmarks is not None else None, "asked": dict(asked)}
    key = {
        **chosen,
        "graders": [dict(said[file].grader) if file in said else None for file in reading.files],
        "warnings": list(reading.warnings),
        "code": _code(),
        "contents": [[state.size, state.sha256] for state in states],
    }
    first, names = reading.files[0], [file.name for file in reading.files]
    tag = hashlib.sha256(json.dumps([names, chosen]).encode("ascii")).hexdigest()[:8]
    stem = first.name.removesuffix(".gz").removesuffix(".jsonl")
    return Shelf(first.with_name(f"{stem}.{tag}.counts"), key, reading, states)


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


def runs_of(sizes: Sequence[int]) -> Runs:
    """Descending ``sizes`` as runs of (size, how often)."""
    return [(size, len(list(group))) for size, group in groupby(sizes)]


def sizes_of(runs: Runs) -> tuple[int, ...]:
    """The sizes that `runs_of` was given."""
    return tuple(chain.from_iterable([size] * times for size, times in runs))
