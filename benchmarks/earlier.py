"""What benchmarks share: files of an earlier commit, a made-up graded file, costs, and the words for a ratio."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def unpack(revision: str, folder: Path) -> Path:
    """``folder``, which then holds the files of commit ``revision``."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", revision], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def told(values: Sequence[float], digits: int = 2) -> str:
    """The median of ``values``, and the least and the greatest."""
    median, least, greatest = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least}-{greatest})"


def write_graded(path: Path, samples: Iterable[tuple[str, int, str]], random: Callable[[], float]) -> None:
    """A graded file of (problem, index, text), of which three in ten are correct."""
    with path.open("w", encoding="utf-8") as file:
        for id, index, text in samples:
            row = {"benchmark": "made-up", "id": id, "sample_index": index, "completion": text}
            file.write(json.dumps({**row, "answer": "42", "correct": bool(random() < 0.3)}) + "\n")


def children_cpu_s() -> float:
    """CPU seconds of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    """The most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
