"""Reads the status.json and environment.json of a run."""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from evals.errors import DataError
from evals.files.strict_json import read_document, refuse, shown

logger = logging.getLogger(__name__)

# What readers take for granted of a key that is there.
_STATUS: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("step", "steps"), int),
    **dict.fromkeys(("status", "reason", "started", "updated"), str | None),
}
_ENVIRONMENT: Mapping[str, type | UnionType] = {"time": str, "argv": list, "packages": dict, "resumed": list}


def read_status(run: Path) -> dict[str, Any]:
    """status.json as it stands; empty where there is none, and, with a warning, where it is damaged."""
    return _informative(run / "status.json", _STATUS)


def read_environment(run: Path) -> dict[str, Any]:
    """environment.json as it stands; empty where there is none, and, with a warning, where it is damaged."""
    return _informative(run / "environment.json", _ENVIRONMENT)


def _informative(path: Path, types: Mapping[str, type | UnionType]) -> dict[str, Any]:
    """The content of a file on which no result depends: damage is worth a warning, not an error."""
    if not path.exists():
        return {}
    try:
        document = read_document(path)
        for key, expected in types.items():
            if key in document and not isinstance(document[key], expected):
                refuse(str(path), f"{key} is {shown(document[key])}")
    except DataError as error:
        logger.warning("%s; the file only informs, so it counts as absent until it is written anew", error)
        return {}
    return document
