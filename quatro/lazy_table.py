"""A table of classes by name, each imported when it is looked up."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class LazyTable(Mapping[str, T]):
    """``locations[name]`` is ``package.module:Class``; one line more is one name more."""

    def __init__(self, locations: dict[str, str]) -> None:
        self.locations = locations

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self.locations[name].partition(":")
        found: T = getattr(importlib.import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    def __contains__(self, name: object) -> bool:
        return name in self.locations
