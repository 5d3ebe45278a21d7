"""The head of a document about samples: how they were drawn (`sampling.json` beside them), and warnings about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from evals.benchmarks.catalogue import registry
from evals.errors import DataError
from evals.files.strict_json import read_document
from evals.results.document import About, Document, GraderInfo, SamplingInfo, first_error
from evals.samples.places import samples_folder


def about_samples(files: Sequence[Path]) -> About:
    """What all `sampling.json` files beside ``files`` say; nothing if a folder has none.

    For graded copies in a run they lie beside its samples. A value on which two of them differ is unknown.

    Raises:
        DataError: a `sampling.json` is not JSON, or a value in it has the wrong type.
    """
    found = []
    for folder in dict.fromkeys(file.parent for file in files):
        source = samples_folder(folder) / "sampling.json"
        if not source.exists():
            return {}
        try:
            found.append(_SamplingFile.model_validate(read_document(source)))
        except ValidationError as error:
            raise DataError(f"{source} is not in the form that `quatro sample` writes: {first_error(error)}") from None
    if not found:
        return {}
    settings = {name: _agreed([getattr(one.sampling, name) for one in found]) for name in SamplingInfo.model_fields}
    return {
        "model": _agreed([one.model for one in found]),
        "method": _agreed([one.method for one in found]),
        "sample_seed": _agreed([one.seed for one in found]),
        "source_digest": _agreed([one.source_digest for one in found]),
        "sampling": SamplingInfo(**settings),
    }


def has_foreign_grades(about: About) -> bool:
    """Whether the grades came with samples that quatro neither drew nor graded; ``about`` has their grader."""
    return about.get("grader", GraderInfo()).version is None and "sampling" not in about


class _SamplingFile(Document):
    model: str | None = None
    method: str | None = None
    seed: int | None = None
    source_digest: str | None = None
    sampling: SamplingInfo = SamplingInfo()


def _agreed(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None


class Sampled(Protocol):
    """A problem with its number of samples: `GradedProblem`, or its counts."""

    @property
    def benchmark(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def n(self) -> int: ...


def head_of(about: About, problems: Iterable[Sampled]) -> dict[str, Any]:
    """Keyword arguments of `Result` for its head. Unknown values are None; n is counted if all problems have the same.

    ``about`` is what `about_samples` found, with a label and the grader.
    """
    sampling = about.get("sampling", SamplingInfo())
    counts = {problem.n for problem in problems}
    if sampling.n is None and len(counts) == 1:
        sampling = sampling.model_copy(update={"n": counts.pop()})
    return {
        "label": about.get("label"),
        "model": about.get("model"),
        "method": about.get("method"),
        "seed": about.get("sample_seed"),
        "source_digest": about.get("source_digest"),
        "sampling": sampling,
        "grader": about.get("grader", GraderInfo()),
    }


def warnings_of(warnings: Sequence[str], problems: Iterable[Sampled]) -> list[str]:
    """What a reader of numbers about samples must know: their own ``warnings``, and benchmarks that are incomplete."""
    warnings = list(warnings)
    ids: dict[str, set[str]] = {}
    for problem in problems:
        ids.setdefault(problem.benchmark, set()).add(problem.id)
    for name, present in ids.items():
        known = registry().get(name)
        usable = known.count - known.num_left_out if known is not None else 0
        if usable > len(present):
            warnings.append(f"{name} has {usable} problems, but the samples hold only {len(present)} of them")
    return warnings
