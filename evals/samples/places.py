"""Where files about samples lie: beside them, and for graded copies in a run beside what they are copies of.

And whether samples are those that these files say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.belonging import DIGEST, file_sha256, read_or_empty, refuse_other_run, refuse_other_tag
from evals.files.strict_json import read_document
from evals.files.whole import file_stem

SAMPLING = "sampling.json"


def samples_folder(folder: Path) -> Path:
    """Where the files about the samples in ``folder`` lies: in RUN/samples for a folder of RUN/graded."""
    whole = folder.resolve()
    run = next((parent.parent for parent in (whole, *whole.parents) if parent.name == "graded"), None)
    if (folder / SAMPLING).exists() or run is None:
        return folder
    return run / "samples" / whole.relative_to(run / "graded")


def problems_file(samples: Path) -> Path:
    """The file beside a samples file that holds what is too long for its rows."""
    return samples.with_name(f"{samples.name.removesuffix('.gz').removesuffix('.jsonl')}.problems.json")


def problems_beside(samples: Path) -> Path | None:
    """The `problems_file` of samples or of what they are a graded copy of; None if there is none."""
    beside = problems_file(samples)
    places = beside, samples_folder(samples.parent) / beside.name
    return next((path for path in places if path.is_file()), None)


def refuse_misplaced(samples: Path) -> None:
    """Compare samples, or a graded copy, with their sampling.json, and that with the run that they lie in.

    Samples that are being drawn have no SHA-256 there yet, and those of other programs no sampling.json.

    Raises:
        DataError: they are of another run or were drawn otherwise; both values are named.
    """
    folder = samples_folder(samples.parent)
    source = folder / SAMPLING
    if not (source.is_file() and samples.is_file()):
        return
    said = read_document(source)
    refuse_other_run(source, _text(said, DIGEST))
    refuse_other_tag(source, _mapping(said.get("sampling")), _text(said, "checkpoint"))
    stem = samples.name.removesuffix(".gz").removesuffix(".jsonl")
    drawn = next((one for name, one in _mapping(said.get("benchmarks")).items() if file_stem(name) == stem), None)
    expected = _text(_mapping(drawn), "sha256")
    note = samples.with_name(f"{stem}.grading.json")
    is_copy = samples.parent != folder
    if expected is None:
        return
    found = _text(read_or_empty(note), "samples_sha256") if is_copy else file_sha256(samples)
    if found not in (None, expected):
        whose = f"{samples} is a graded copy of" if is_copy else f"{samples} holds"
        raise DataError(
            f"{whose} other samples than were drawn: SHA-256 {found}, and {source} says {expected}; put back what "
            f"belongs there, or move samples that were changed on purpose to a folder of their own, without {SAMPLING}"
        )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None
