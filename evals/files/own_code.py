"""Code of the user's own, `module:name`, imported from the current folder, the path, or where it lay before."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from evals.errors import UsageError

_SPEC = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_own(name: str) -> bool:
    """Whether ``name`` has the form `module:name`."""
    return _SPEC.fullmatch(name) is not None


def also_from(folder: str | None) -> None:
    """Look in ``folder`` too, after all others: where a run's own code lay when it began."""
    if folder and Path(folder).is_dir() and folder not in sys.path:
        sys.path.append(folder)


def import_own(spec: str, what: str) -> Any:
    """What ``spec``, `module:name`, names; the current folder comes first. ``what`` it is stands in errors.

    Raises:
        UsageError: it cannot be imported; the message says why, and where it was looked for.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, _, name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a module of the user's own does when it is imported
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        where = f"; there is no {module_name.partition('.')[0]}.py in {here}" if is_absent else ""
        raise UsageError(f"{what} {spec!r} cannot be imported: {type(error).__name__}: {error}{where}") from error
    try:
        return getattr(module, name)
    except AttributeError:
        place = getattr(module, "__file__", None) or module_name
        raise UsageError(f"{what} {spec!r} cannot be imported: {place} has no {name}") from None
