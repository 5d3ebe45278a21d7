"""Where files about samples lie: beside them, and for graded copies in a run beside what they are copies of."""

from __future__ import annotations

from pathlib import Path


def samples_folder(folder: Path) -> Path:
    """Where the files about the samples in ``folder`` lies: in RUN/samples for a folder of RUN/graded."""
    whole = folder.resolve()
    run = next((parent.parent for parent in (whole, *whole.parents) if parent.name == "graded"), None)
    if (folder / "sampling.json").exists() or run is None:
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
