"""Several sets of samples: the grader that they share, and names that tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evals.errors import DataError, UsageError
from evals.results import GraderInfo


def agreed_grader(said_by: Mapping[str, GraderInfo]) -> GraderInfo:
    """The one grader of all files (by name); those of whom it is unknown are passed over.

    Raises:
        DataError: two differ; both files and what they say are named.
    """
    known = [(file, grader) for file, grader in said_by.items() if grader.version is not None]
    for file, grader in known[1:]:
        if grader != known[0][1]:
            raise DataError(
                f"{known[0][0]} ({_words(known[0][1])}) and {file} ({_words(grader)}) were judged differently, so "
                "their numbers do not compare; grade them alike with `quatro eval grade`, or add --regrade"
            )
    return known[0][1] if known else GraderInfo()


def labels_of(paths: Sequence[Path], given: Sequence[str] = ()) -> list[str]:
    """A name for each path: those ``given``, else the part in which the paths differ (`base`, `tuned` of
    ``base/samples/math500.jsonl`` and ``tuned/samples/math500.jsonl``).

    Raises:
        UsageError: other names than paths were given, one of them twice, or a path stands twice.
    """
    if given and len(given) != len(paths):
        raise UsageError(f"{len(given)} --label for {len(paths)} files; give one for each, in their order")
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


def _words(grader: GraderInfo) -> str:
    return ", ".join(f"{name} {value}" for name, value in grader.model_dump().items())


def _stem(name: str) -> str:
    for ending in (".gz", ".jsonl", ".json"):
        name = name.removesuffix(ending)
    return name
