"""The environment of a run: versions, machine, threads, code."""

import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import quatro

_NOT_COMPARED = ("time", "argv", "packages")


def collect_environment(argv: Sequence[str], extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything about this process that can change a result. ``extra`` comes from the caller (device, threads)."""
    return {
        "time": now(),
        "argv": list(argv),
        "quatro": quatro.__version__,
        "commit": git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        **(extra or {}),
        "packages": dict(sorted({found.name: found.version for found in distributions() if found.name}.items())),
    }


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
