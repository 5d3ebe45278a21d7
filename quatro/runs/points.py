"""Which folder is a sweep, and its points, as its sweep.yaml lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.errors import DataError, UsageError
from quatro.config.yaml_reader import load_yaml

SWEEP = "sweep.yaml"
_MAX_NAME = 240  # bytes: file systems take 255, and `.yaml` is added


def is_sweep(folder: Path) -> bool:
    """Whether ``folder`` is the folder of a sweep."""
    return (folder / SWEEP).is_file()


def require_sweep(paths: Sequence[Path], given: Mapping[str, object]) -> None:
    """Raises UsageError if an option of ``given`` has a value and none of ``paths`` is a sweep: it would be ignored."""
    ignored = [option for option, value in given.items() if value is not None]
    if ignored and not any(map(is_sweep, paths)):
        raise UsageError(f"{' and '.join(ignored)}: none of the paths is a sweep (a folder with {SWEEP}); leave it out")


def read_points(sweep: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """The points of a sweep in their order: name -> cell (empty: it has none) and settings, as text.

    Raises:
        DataError: there are none, or they are not in the form that `quatro sweep` writes.
    """
    path = sweep / SWEEP
    try:
        data = load_yaml(path).data
    except UsageError as error:
        raise DataError(f"{error}; repeat the sweep's command, which writes it anew") from error
    points, cells = data.get("points"), data.get("cells") or {}
    if not (isinstance(points, dict) and points and isinstance(cells, dict) and all(map(_is_point, points.items()))):
        raise DataError(
            f"{path} is not in the form that `quatro sweep` writes (it has no points with their settings); repeat its "
            "command"
        )
    return {
        name: (str(cells.get(name, "")), {key: str(value) for key, value in settings.items()})
        for name, settings in points.items()
    }


def _is_point(entry: tuple[str, Any]) -> bool:
    """Whether it is the name of a folder, and settings with a seed or without one."""
    name, settings = entry
    is_name = len(name.encode()) < _MAX_NAME and not set("/\0") & set(name) and name.strip(".") != ""
    return (
        is_name and isinstance(settings, dict) and re.fullmatch("[0-9]{1,19}", str(settings.get("seed", 0))) is not None
    )
