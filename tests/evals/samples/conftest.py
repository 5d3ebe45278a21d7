"""Imports a file, and reads what became of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.samples.importing import Imported, import_samples
from evals.samples.reading import read_samples
from evals.samples.types import Sample


@pytest.fixture
def convert() -> Callable[..., tuple[Sequence[Sample], Imported]]:
    """A function of (file, tool) that gives the samples and what the import says of them."""

    def converted(file: Path, tool: str, **options: Any) -> tuple[Sequence[Sample], Imported]:
        imported = import_samples(file, file.parent / "out.jsonl", tool=tool, **options)
        samples = read_samples([imported.path]).rows
        assert imported.num_samples == len(samples)
        assert imported.num_problems == len({(row.benchmark, row.id) for row in samples})
        return samples, imported

    return converted
