"""What is known of how samples were drawn: the `sampling.json` that `quatro sample` leaves beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evals.errors import DataError
from evals.files.strict_json import read_document
from evals.results.document import About, Document, SamplingInfo, first_error


def about_samples(files: Sequence[Path]) -> About:
    """What every `sampling.json` beside ``files`` says (of graded copies in a run: beside its samples); nothing where a
    folder has none.

    What two of them say differently is unknown.

    Raises:
        DataError: a `sampling.json` is not JSON, or a value in it has the wrong type.
    """
    found = []
    for folder in dict.fromkeys(file.parent for file in files):
        source = _sampling_file(folder)
        if not source.exists():
            return {}
        try:
            found.append(_SamplingFile.model_validate(read_document(source)))
        except ValidationError as error:
            raise DataError(f"{source}: not as `quatro sample` writes it: {first_error(error)}") from None
    if not found:
        return {}
    settings = {name: _agreed([getattr(one.sampling, name) for one in found]) for name in SamplingInfo.model_fields}
    return {
        "model": _agreed([one.model for one in found]),
        "method": _agreed([one.method for one in found]),
        "sample_seed": _agreed([one.seed for one in found]),
        "sampling": SamplingInfo(**settings),
    }


def _sampling_file(folder: Path) -> Path:
    """Where `sampling.json` about the samples in ``folder`` is; of graded copies in RUN/graded, in RUN/samples."""
    beside = folder / "sampling.json"
    whole = folder.resolve()
    run = next((parent.parent for parent in (whole, *whole.parents) if parent.name == "graded"), None)
    if beside.exists() or run is None:
        return beside
    return run / "samples" / whole.relative_to(run / "graded") / "sampling.json"


class _SamplingFile(Document):
    model: str | None = None
    method: str | None = None
    seed: int | None = None
    sampling: SamplingInfo = SamplingInfo()


def _agreed(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None
