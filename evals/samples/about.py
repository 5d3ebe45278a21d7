"""The head of a document about samples: how they were drawn (`sampling.json` beside them), who graded them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from evals.benchmarks.catalogue import registry
from evals.errors import DataError
from evals.files.strict_json import read_document
from evals.results.document import About, Document, GraderInfo, SamplingInfo, first_error
from evals.samples.graders import GradingSettings
from evals.samples.places import samples_folder

GRADED_HERE = ", graded here"  # follows the name of a file that had no grades


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


def agreed_grader(said_by: Mapping[str, GraderInfo]) -> GraderInfo:
    """The one grader of all files. ``said_by`` has the grader of each by name; unknown ones are passed over.

    A file without code has no sandbox, and goes with any; so does one that no grader of the user's own judged.

    Raises:
        DataError: two differ; both files and what they say are named.
    """
    agreed: dict[str, Any] = {}
    sources: dict[str, str] = {}
    first = ""
    for file, grader in said_by.items():
        own = grader.model_dump()
        if grader.version is None:
            continue
        for spec, digest in (own.pop("own_graders", None) or {}).items():
            if sources.setdefault(spec, digest) != digest:
                raise DataError(
                    f"{first} and {file} were graded by two versions of {spec}, so their numbers do not compare; grade "
                    "them alike with `quatro eval grade FILES -o DIR`"
                )
        sandbox = agreed.get("sandbox", own.get("sandbox"))
        if first and {**own, "sandbox": own.get("sandbox", sandbox)} != {**agreed, "sandbox": sandbox}:
            raise DataError(
                f"{first} ({_words(agreed)}) and {file} ({_words(own)}) were graded differently, so "
                f"their numbers do not compare; grade them alike: `{_alike((first, file), (agreed, own))}`"
            )
        agreed, first = {**own, **agreed}, first or file
    return GraderInfo(**agreed | ({"own_graders": sources} if sources else {}))


def _alike(names: Sequence[str], graders: Sequence[Mapping[str, str | None]]) -> str:
    """The command that grades two files alike: with each setting that one of them has and that is not the default."""
    defaults = {**GradingSettings().recorded(), "thinking": None}
    chosen = {
        setting: next((value for one in graders if (value := one.get(setting)) not in (None, usual)), None)
        for setting, usual in defaults.items()
    }
    options = [word for setting, value in chosen.items() if value is not None for word in (f"--{setting}", value)]
    files = [name.removesuffix(GRADED_HERE) for name in names]
    return shlex.join(["quatro", "eval", "grade", *files, *options, "-o", "graded-alike"])


def grader_info(grader: Mapping[str, Any]) -> GraderInfo:
    """The head's entry: version, policy, and the settings that are not the default."""
    defaults = {"extraction": "boxed", "grader": None, "thinking": None, "sandbox": None, "own_graders": None}
    unusual = {key: grader[key] for key, value in defaults.items() if grader.get(key, value) != value}
    return GraderInfo(version=grader["version"], policy=grader["policy"], **unusual)


def _words(grader: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {value}" for name, value in grader.items())


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
