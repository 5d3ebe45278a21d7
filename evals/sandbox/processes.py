"""How processes of this package are started, and the folders that they get."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

# Where this package is imported from.
ROOT = str(Path(__file__).parents[2])
# The same order of sets in every worker; no other word of the caller's environment reaches it.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def interpreter(module: str) -> list[str]:
    """The command that runs `main` of a module of this package, without the caller's paths."""
    start = f"import sys; sys.path.insert(0, {ROOT!r}); from evals.sandbox.{module} import main; main()"
    return [sys.executable, "-s", "-P", "-c", start]


def scratch_folder() -> str:
    """A new folder for one worker."""
    return tempfile.mkdtemp(prefix="sandbox-")


def remove_scratch(folder: str) -> None:
    """Removes a worker's folder with what a killed worker left there."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        return
    shutil.rmtree(folder, ignore_errors=True)
