"""What a run says of itself: its status.json and environment.json, and its lock, for one process works on a run.

The lock is the kernel's (flock), not the file's existence: it ends with the process, however that ends. The file
holds who has it, for the message of whoever comes second.
"""

import contextlib
import json
import logging
import os
import platform
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from types import UnionType
from typing import Any

from evals.errors import DataError, LockedError, MissingError
from evals.files.strict_json import read_document, refuse, shown
from evals.files.whole import lock_file

logger = logging.getLogger(__name__)

# What readers take for granted of a key that is there, in either file.
_TYPES: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("step", "steps", "metrics_bytes", "prompts", "prompts_left_out"), int),
    **dict.fromkeys(("run_digest", "metrics_sha256", "time", "folder"), str),
    **dict.fromkeys(("status", "reason", "started", "updated", "model_digest"), str | None),
    "argv": list,
    "packages": dict,
    "resumed": list,
}
_WARNING = re.compile(r"(?:warning: |\S+ \S+ WARNING [\w.]+: )(.*)")  # as the terminal has it, and as log.txt
_NOT_COMPARED = ("time", "argv", "folder", "packages")
# `is_locked` holds the lock for an instant; whoever wants it for good asks again before giving up.
_ATTEMPTS = 5
_WAIT_S = 0.05
_INSTEAD = "-o DIR"


def read_status(run: Path) -> dict[str, Any]:
    """status.json as it stands; empty where there is none, and, with a warning, where it is damaged."""
    return _informative(run / "status.json")


def read_environment(run: Path) -> dict[str, Any]:
    """environment.json as `read_status` reads status.json."""
    return _informative(run / "environment.json")


def warnings_in(*logs: Path) -> tuple[str, ...]:
    """The warnings in ``logs``, each once, in the order of the files; a log that is not there has none."""
    lines = [line for log in logs for line in log_lines(log)]
    return tuple(dict.fromkeys(found[1] for line in lines if (found := _WARNING.match(line))))


def log_lines(log: Path) -> list[str]:
    """The lines of a log; none where it is not there."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []


def _informative(path: Path) -> dict[str, Any]:
    """The content of a file on which no result depends: damage is worth a warning, not an error."""
    if not path.exists():
        return {}
    try:
        document = read_document(path)
        for key, expected in _TYPES.items():
            if key in document and not isinstance(document[key], expected):
                refuse(str(path), f"{key} is {shown(document[key])}")
    except DataError as error:
        logger.warning("%s; the file only informs, so it counts as absent until it is written anew", error)
        return {}
    return document


def collect_environment(argv: Sequence[str]) -> dict[str, Any]:
    """Everything about this process that can change a result, before its parts are built."""
    installed = packages()
    return {
        "time": now(),
        "argv": list(argv),
        "folder": os.getcwd(),
        "quatro": installed.get("quatro"),
        "commit": git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "packages": installed,
    }


def processor() -> str:
    """The name of the processor: another type rounds otherwise."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor()


def packages() -> dict[str, str]:
    """The version of each installed package."""
    heads = (one.metadata for one in distributions())  # read once each, unlike with `one.name` and `one.version`
    return dict(sorted((head["Name"], head["Version"]) for head in heads if head["Name"]))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Keys of ``after`` that were different before, packages one by one; time and arguments do not count."""

    def flat(environment: Mapping[str, Any]) -> dict[str, Any]:
        packages = {f"packages.{name}": version for name, version in environment.get("packages", {}).items()}
        others = {key: environment[key] for key in environment if key in after and key not in _NOT_COMPARED}
        return {**others, **packages}

    left, right = flat(before), flat(after)
    keys = [*left, *(key for key in right if key not in left)]
    return {key: (left.get(key), right.get(key)) for key in keys if left.get(key) != right.get(key)}


def git_commit() -> str | None:
    """The commit of the checkout that this code runs from, with `-dirty` after it if files differ; None outside."""
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        ran = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip()


def now() -> str:
    """UTC, to the second: 2026-11-20T13:57:00+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunLock:
    """Held from construction to `close`.

    Raises LockedError, with process and host, if another has it, and MissingError if the file system has no locks.
    """

    def __init__(self, run: Path) -> None:
        path = run / "lock"
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(self._descriptor, run, path)
        except BaseException:
            self.close()
            raise
        owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
        with contextlib.suppress(OSError):  # on a full disk it is held all the same, and nobody is told by whom
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{owner}\n".encode(), 0)
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
