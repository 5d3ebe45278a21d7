"""The document of `--compare`: how much better the second samples do, row by row, and whether that could be chance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from evals.files.strict_json import read_document
from evals.files.whole import write_whole
from evals.results.document import Document


class DifferenceRow(Document):
    """b - a of one metric at one k, averaged over the problems of a benchmark."""

    metric: str
    benchmark: str = Field(description="name, or `average` for the unweighted mean over benchmarks")
    k: int | None
    a: float
    b: float
    difference: float = Field(description="b - a")
    ci_low: float = Field(
        description="lower end of the 95 % interval of the difference, paired bootstrap over problems"
    )
    ci_high: float = Field(description="upper end of it")
    p: float = Field(description="two-sided: how often resampled problems would show no difference, or the other sign")
    num_problems: int
    n: int = Field(description="samples per problem, the smallest where they differ; the same for a and b")


class Comparison(Document):
    """What `--compare A B --json` prints."""

    schema_version: Literal[1] = Field(1, alias="schema")
    metric: str
    a: str = Field(description="the first samples")
    b: str = Field(description="the second samples")
    bootstrap_seed: int
    rows: list[DifferenceRow]
    warnings: list[str] = Field([], exclude=True)

    def document(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)

    def to_json(self) -> str:
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"

    def write(self, path: Path) -> None:
        """Writes the document whole or not at all."""
        write_whole(path, [self.to_json().encode("ascii")])


def read_comparison(path: Path) -> Comparison | None:
    """The document of `--compare` in ``path``; None if it holds another, or none at all."""
    try:
        document = read_document(path)
        return Comparison.model_validate(document) if "bootstrap_seed" in document else None
    except (OSError, ValueError):
        return None
