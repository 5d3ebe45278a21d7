"""What benchmarks share: files of an earlier commit, costs, and the words for a ratio."""

import resource
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

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


def cpu_s(work: Callable[[], T], repeats: int = 1) -> tuple[float, T]:
    """CPU seconds of the fastest of ``repeats`` runs, which a busy machine slowed the least, and the result."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        found = work()
        spent.append(time.process_time() - start)
    return min(spent), found


def children_cpu_s() -> float:
    """CPU seconds of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def status_mb(pid: int, field: str) -> float:
    """A line of /proc/PID/status in MiB: VmRSS and VmHWM of resident memory, RssAnon without mapped files."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in text.splitlines() if line.startswith(f"{field}:")).split()[1]) / 1024


def children(pid: int) -> list[int]:
    """The processes that this one started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(number) for path in tasks for number in path.read_text(encoding="ascii").split()]


def peak_mb() -> float:
    """The most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
