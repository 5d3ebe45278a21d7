"""What comparisons with an earlier commit share: its files, and the words for a ratio of each block."""

from __future__ import annotations

import statistics
import subprocess
import tarfile
from collections.abc import Sequence
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
