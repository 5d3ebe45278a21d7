"""Names that tell several samples files apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evals.errors import UsageError


def labels_of(paths: Sequence[Path], given: Sequence[str] = ()) -> list[str]:
    """A name for each path: the one ``given``, else the part in which the paths differ.

    These parts are `base` and `tuned` for ``base/samples/math500.jsonl`` and ``tuned/samples/math500.jsonl``.

    Raises:
        UsageError: the number of names is not that of the paths, or a name or path occurs twice.
    """
    if given and len(given) != len(paths):
        raise UsageError(f"{len(given)} --label for {len(paths)} files; give one for each file, in the same order")
    for names in (given, [str(path.resolve()) for path in paths]):
        twice = [name for name in names if list(names).count(name) > 1]
        if twice:
            raise UsageError(f"{twice[0]} is named twice; name each once")
    return list(given) if given else _distinguishing(paths)


def _distinguishing(paths: Sequence[Path]) -> list[str]:
    parts = [[*path.resolve().parts[:-1], _stem(path.resolve().name)] for path in paths]
    if len({one[-1] for one in parts}) == len(parts):
        return [one[-1] for one in parts]
    while all(len(one) > 1 and one[-1] == parts[0][-1] for one in parts):
        parts = [one[:-1] for one in parts]
    while all(len(one) > 1 and one[0] == parts[0][0] for one in parts):
        parts = [one[1:] for one in parts]
    return ["/".join(one) for one in parts]


def _stem(name: str) -> str:
    for ending in (".gz", ".jsonl", ".json"):
        name = name.removesuffix(ending)
    return name
