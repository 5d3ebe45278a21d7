"""One process per run directory.

The lock is the kernel's (flock), not the file's existence: it ends with the process, however that ends. The file
holds who has it, for the message of whoever comes second.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from evals.errors import LockedError, MissingError
from evals.files.lock import lock_file
from evals.files.strict_json import read_document
from evals.files.whole import naming

# `is_locked` holds the lock for an instant; whoever wants it for good asks again before giving up.
_ATTEMPTS = 5
_WAIT_S = 0.05
_INSTEAD = "-o DIR"


class RunLock:
    """Held from construction to `close`.

    Raises:
        LockedError: another process has it; names process and host.
        MissingError: the file system has no locks.
    """

    def __init__(self, run: Path) -> None:
        path = run / "lock"
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(self._descriptor, run, path)
            owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
            with naming(path):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{owner}\n".encode(), 0)
        except BaseException:
            self.close()
            raise
        # A forked worker that outlives a killed trainer must not keep the run locked.
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def refuse_locked(run: Path) -> None:
    """Raises LockedError if a living process holds the run; names it."""
    if is_locked(run):
        RunLock(run).close()


def is_locked(run: Path) -> bool:
    """Whether a living process holds the run; without a lock file, or where there are no locks, none does."""
    file = run / "lock"
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        lock_file(descriptor, file, instead=_INSTEAD, is_shared=True)
    except BlockingIOError:
        return True
    except MissingError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def held(run: Path) -> Iterator[None]:
    """Nobody else works on the run inside; it writes nothing, since a disk may be full.

    Raises: as `RunLock`.
    """
    descriptor = os.open(run / "lock", os.O_RDWR)
    try:
        _take(descriptor, run, run / "lock")
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, run: Path, path: Path) -> None:
    for attempt in range(_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            lock_file(descriptor, path, instead=_INSTEAD)
            return
        if attempt < _ATTEMPTS - 1:
            time.sleep(_WAIT_S)
    try:
        owner = read_document(path)
        who = f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError):
        who = "another process"
    raise LockedError(f"{run} is in use by {who}: wait until it ends, or stop it")
