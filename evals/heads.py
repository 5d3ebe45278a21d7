"""The head of a result document about one set of samples, and names that tell several sets apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.benchmarks import registry
from evals.errors import DataError, UsageError
from evals.records import Samples
from evals.results import About, GraderInfo, SamplingInfo


def head_of(about: About, samples: Samples) -> dict[str, Any]:
    """Keyword arguments of `Result` for its head; what nobody said is None, n is counted where it is the same for all.

    ``about`` is what `about_samples` found, and a label.
    """
    sampling = about.get("sampling", SamplingInfo())
    counts = {len(problem.samples) for problem in samples.problems()}
    if sampling.n is None and len(counts) == 1:
        sampling = sampling.model_copy(update={"n": counts.pop()})
    return {
        "label": about.get("label"),
        "model": about.get("model"),
        "method": about.get("method"),
        "seed": about.get("sample_seed"),
        "sampling": sampling,
        "grader": about.get("grader", GraderInfo()),
    }


def warnings_of(samples: Samples) -> list[str]:
    """What whoever reads numbers about ``samples`` must know: what was found while reading them, and each benchmark of
    which they hold only a part."""
    warnings = list(samples.warnings)
    ids: dict[str, set[str]] = {}
    for row in samples.rows:
        ids.setdefault(row.benchmark, set()).add(row.id)
    for name, present in ids.items():
        known = registry().get(name)
        usable = known.count - known.num_empty if known is not None else 0
        if usable > len(present):
            warnings.append(f"{name} has {usable} problems, the samples hold {len(present)} of them")
    return warnings


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
