"""The document of `quatro eval compare`: how much better the second samples do, and whether that may be chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from evals.errors import DataError
from evals.files.frames import TEXT, frame_of
from evals.files.strict_json import read_document
from evals.results.document import Count, Document, FileDocument

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns of `Comparison.frame` and their dtypes.
COLUMNS = {
    **dict.fromkeys(("samples_a", "samples_b", "metric", "benchmark"), TEXT),
    "k": "Int64",
    **dict.fromkeys(("a", "b", "difference", "ci_low", "ci_high", "p"), "float64"),
    **dict.fromkeys(("num_problems", "n"), "int64"),
}


class DifferenceRow(Document):
    """``difference`` is b - a of one metric at one k, averaged over the problems of a benchmark, or over benchmarks.

    Its 95 % interval is by paired bootstrap over problems; ``p`` is two-sided: how often resampled problems would show
    no difference, or the other sign. ``n`` is the smallest number of samples of a problem, the same for a and b.
    """

    metric: str
    benchmark: str
    k: Count | None
    a: float
    b: float
    difference: float
    ci_low: float
    ci_high: float
    p: float
    num_problems: Count
    n: Count


class Comparison(FileDocument):
    """What `quatro eval compare A B --json` prints."""

    schema_version: Literal[1] = Field(1, alias="schema")
    metric: str
    a: str = Field(pattern=r"^[^\x00]*$")
    b: str = Field(pattern=r"^[^\x00]*$")
    bootstrap_seed: int
    rows: list[DifferenceRow]
    warnings: list[str] = Field([], exclude=True)

    def frame(self) -> DataFrame:
        """A data frame with one row for each of ``rows``, after the names of both samples."""
        rows = [{"samples_a": self.a, "samples_b": self.b, **row.model_dump()} for row in self.rows]
        return frame_of(rows, COLUMNS)


def read_comparison(path: Path) -> Comparison | None:
    """The comparison in ``path``; None if the file holds something else.

    Raises:
        DataError: it is one, and a key is wrong or it has no rows.
    """
    try:
        document = read_document(path)
    except (OSError, DataError):
        return None
    if "bootstrap_seed" not in document:
        return None
    comparison = Comparison.read_from(document, path)
    if not comparison.rows:
        raise DataError(f"{path}: it has no rows, so nothing was compared; make it again: `quatro eval compare A B`")
    return comparison
