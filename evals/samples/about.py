"""The files beside samples: where they lie, whether they are of these samples, and the head of a document from them.

`sampling.json` says how samples were drawn. Graded copies in a run share it with what they are copies of.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from evals.benchmarks.catalogue import registry
from evals.errors import DataError
from evals.files.belonging import file_sha256, read_or_empty, refuse_other_run, refuse_other_tag
from evals.files.frames import grouped
from evals.files.strict_json import read_document
from evals.files.whole import file_stem
from evals.results.document import About, Document, SamplingInfo
from evals.samples.types import Sampled

SAMPLING = "sampling.json"


class _Drawn(Document):
    sha256: str | None = None


class _SamplingFile(About):
    benchmarks: dict[str, _Drawn] = Field({})


def samples_folder(folder: Path) -> Path:
    """Where the files about the samples in ``folder`` lies: in RUN/samples for a folder of RUN/graded."""
    whole = folder.resolve()
    run = next((parent.parent for parent in (whole, *whole.parents) if parent.name == "graded"), None)
    if (folder / SAMPLING).exists() or run is None:
        return folder
    return run / "samples" / whole.relative_to(run / "graded")


def stem_of(samples: Path) -> str:
    """The name of a samples file without its ending."""
    return samples.name.removesuffix(".gz").removesuffix(".jsonl")


def problems_file(samples: Path) -> Path:
    """The file beside a samples file that holds what is too long for its rows."""
    return samples.with_name(f"{stem_of(samples)}.problems.json")


def note_file(graded: Path) -> Path:
    """The file beside a graded file that says how it was made."""
    return graded.with_name(f"{stem_of(graded)}.grading.json")


def problems_beside(samples: Path) -> Path | None:
    """The `problems_file` of samples or of what they are a graded copy of; None if there is none."""
    beside = problems_file(samples)
    places = beside, samples_folder(samples.parent) / beside.name
    return next((path for path in places if path.is_file()), None)


def refuse_misplaced(samples: Path) -> None:
    """Compare samples, or a graded copy, with their sampling.json, and that with the run that they lie in.

    Samples that are being drawn have no SHA-256 there yet, and those of other programs no sampling.json.

    Raises DataError if they are of another run or were drawn otherwise; both values are named.
    """
    folder = samples_folder(samples.parent)
    source = folder / SAMPLING
    if not (source.is_file() and samples.is_file()):
        return
    said = _SamplingFile.read_from(read_document(source), source)
    refuse_other_run(source, said.source_digest)
    refuse_other_tag(source, said.sampling.model_dump(), said.checkpoint)
    expected = {file_stem(name): one.sha256 for name, one in said.benchmarks.items()}.get(stem_of(samples))
    is_copy = samples.parent != folder
    if expected is None:
        return
    found = read_or_empty(note_file(samples)).get("samples_sha256") if is_copy else file_sha256(samples)
    if found not in (None, expected):
        whose = f"{samples} is a graded copy of" if is_copy else f"{samples} holds"
        raise DataError(
            f"{whose} other samples than were drawn: SHA-256 {found}, and {source} says {expected}; put back what "
            f"belongs there, or move samples that were changed on purpose to a folder of their own, without {SAMPLING}"
        )


def about_samples(files: Sequence[Path]) -> About:
    """What all `sampling.json` files beside ``files`` say; nothing is set if a folder has none.

    For graded copies in a run they lie beside its samples. A value on which two of them differ is unknown.

    Raises DataError if a `sampling.json` is not JSON, or a value in it has the wrong type.
    """
    found = []
    for folder in dict.fromkeys(file.parent for file in files):
        source = samples_folder(folder) / SAMPLING
        if not source.exists():
            return About()
        found.append(_SamplingFile.read_from(read_document(source), source))
    if not found:
        return About()
    same = ("model", "method", "seed", "source_digest", "checkpoint")
    settings = {name: _agreed([getattr(one.sampling, name) for one in found]) for name in SamplingInfo.model_fields}
    return About(
        **{name: _agreed([getattr(one, name) for one in found]) for name in same},
        base_digest=_agreed([one.base_digest or (one.method is None and one.source_digest) or None for one in found]),
        sampling=SamplingInfo(**settings),
    )


def sampled_benchmarks(folder: Path) -> list[str]:
    """The benchmarks that samples of quatro in ``folder`` are of."""
    named = read_or_empty(folder / SAMPLING).get("benchmarks")
    return list(named) if isinstance(named, dict) else []


def has_foreign_grades(about: About) -> bool:
    """Whether the grades came with samples that quatro neither drew nor graded; ``about`` has their grader."""
    return about.grader.version is None and "sampling" not in about.model_fields_set


def _agreed(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None


def head_of(about: About, problems: Iterable[Sampled]) -> dict[str, Any]:
    """Keyword arguments of `Result` from ``about``; n is counted if all problems have the same."""
    sampling, counts = about.sampling, {problem.n for problem in problems}
    if sampling.n is None and len(counts) == 1:
        sampling = sampling.model_copy(update={"n": counts.pop()})
    return {**dict(about), "sampling": sampling}


def warnings_of(warnings: Sequence[str], problems: Iterable[Sampled]) -> list[str]:
    """What a reader of numbers about samples must know: their own ``warnings``, and benchmarks that are incomplete."""
    warnings = list(warnings)
    for name, present in grouped(problems, lambda problem: problem.benchmark).items():
        known = registry().get(name)
        usable = known.count - known.num_left_out if known is not None else 0
        if usable > len(present):
            warnings.append(f"{name} has {usable} problems, but the samples hold only {len(present)} of them")
    return warnings
