"""Counts of large samples files, kept in the user's cache so that the next command need not read and cluster again.

Each entry is a file of its own in ``$QUATRO_CACHE/counts``. Its name is a hash of all that decides what it holds: the
contents of the samples files, how they were graded, the code that counts, and what was counted. So an entry is never
changed, only written once, and files of other names beside the samples mean nothing. Its first line is a hash of its
name and its content; an entry that is damaged, or has another one's name, is counted again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from evals.benchmarks.catalogue import registry
from evals.files.whole import write_bytes
from evals.samples.graded import FileState, Reading, file_state

_log = logging.getLogger(__name__)

# Reading and clustering less than this takes about as long as starting Python.
LEAST_BYTES = 1 << 20
# What decides about grades, similarities and clusters besides our own code.
_PACKAGES = ("numpy", "scipy", "rapidfuzz", "mpmath")


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
