"""The run directory of all ranks but the first, which alone writes to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quatro.config import Config
from quatro.runs.directory import RunDir


class FollowedRun(RunDir):
    """A run directory that is only read: every write is left to rank 0."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config
        self.ended_early = None

    def close(self) -> None:
        pass

    def set_status(self, *_: Any, **__: Any) -> None:
        pass

    def add_to_environment(self, extra: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        return {}

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        pass

    @property
    def written(self) -> dict[str, Any]:
        return {}

    def go_back(self, step: int, written: Mapping[str, Any]) -> None:
        pass

    def sync(self) -> None:
        pass

    def write_rollouts(self, step: int, rows: Any) -> Path:
        return self.path
