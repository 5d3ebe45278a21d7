"""Engines of the user's own, `module:Class`."""

from __future__ import annotations

from typing import Any

from evals.errors import UsageError
from evals.files.own_code import file_of, import_own
from quatro.rollout.engine import EngineKind


def own_engine(spec: str) -> type[EngineKind]:
    """The class that ``spec`` names.

    Raises:
        UsageError: it cannot be imported, or is no engine; names the file to look at.
    """
    kind: Any = import_own(spec, "engine")
    if EngineKind not in getattr(kind, "__mro__", ()) or kind.open is EngineKind.open:
        raise UsageError(
            f"engine {spec!r} is {kind!r:.80}; expected a class with `open` that is derived from "
            f"quatro.rollout.engine.EngineKind. Look at {file_of(spec)}"
        )
    return kind  # type: ignore[no-any-return]
