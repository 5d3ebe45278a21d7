"""The result document: what `quatro eval ... --json` prints, `-o` writes and `quatro table` reads.

docs/files.md says what each key means. That of `quatro eval compare` says how much better the second samples do, and
whether that may be chance.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evals.errors import DataError
from evals.files.belonging import refuse_other_run, refuse_other_tag
from evals.files.frames import FRAME_SUFFIXES, TEXT, DataFrame, frame_of, grouped, other_columns, write_frame
from evals.files.strict_json import read_document, shown
from evals.files.whole import write_whole
from evals.intervals import PROBLEMS
from evals.text import Grid, Shown

AVERAGE = "average"  # what stands in place of a benchmark's name in rows of the unweighted mean over benchmarks
# Metrics that count solutions, up to k or up to n; the others are shares.
COUNTS_OF_K = ("ucc@k", "distinct@k")
_COUNTS_OF_N = ("num_clusters", "vendi")
VALID = "valid-"  # before a metric: of the right answers without those whose derivation is false

# What a data frame says of the samples, before the fields of rows.
_OF_HEAD, _OF_SAMPLING = ("label", "model", "method", "seed"), ("temperature", "top_p")
_DTYPES = {"string": TEXT, "number": "float64", "integer": "int64"}

# Of a garbled file, too, sums and the integers of a data frame stay in range.
Count = Annotated[int, Field(ge=0, le=2**53)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Document(BaseModel):
    """A frozen JSON document: no coercion, no NaN, and keys that it does not know are kept."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="allow", populate_by_name=True)

    @classmethod
    def read_from(cls, values: dict[str, Any], source: Path) -> Self:
        """The document of JSON ``values``; raises DataError, which names ``source`` and the first key that is wrong."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise DataError(f"{source}: {place}: {first['msg']}, found {shown(first['input'])}") from None


def _columns(model: type[Document], *names: str) -> dict[str, str]:
    """The dtypes of a data frame's columns for these fields of ``model``; integers that may be unknown are Int64."""
    fields = model.model_json_schema()["properties"]
    kinds = {name: [one["type"] for one in fields[name].get("anyOf", [fields[name]])] for name in names}
    return {name: "Int64" if kind == ["integer", "null"] else _DTYPES[kind[0]] for name, kind in kinds.items()}


class FileDocument(Shown, Document):
    """A document that is a file of its own. ``warnings`` are for the caller to print and are not part of it."""

    schema_version: Literal[1] = Field(1, alias="schema")
    warnings: list[str] = Field([], exclude=True)

    def document(self) -> dict[str, Any]:
        """The document as plain JSON values."""
        return self.model_dump(by_alias=True)

    @abstractmethod
    def frame(self) -> DataFrame:
        """Its rows as a data frame, one row each."""

    def to_json(self) -> str:
        # Plain ASCII: whatever an id holds, neither a terminal nor a locale can trip over it.
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"

    def write(self, path: str | Path) -> None:
        """Writes the document as JSON, or only its rows if the name ends in .csv or .parquet (`write_frame`).

        Readers see the old file or the new one.
        """
        if Path(path).suffix in FRAME_SUFFIXES:
            write_frame(self.frame(), path)
        else:
            write_whole(Path(path), [self.to_json().encode("utf-8")])


class SamplingInfo(Document):
    """How the samples were drawn; None: unknown."""

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    prompt: str | None = None
    stop: list[str] | None = None


class GraderInfo(Document):
    """Who graded the samples; None if the rows came with `correct`. Code has a `sandbox`, its tier and version."""

    version: str | None = None
    policy: str | None = None


class About(Document):
    """What is known of the samples that a result is of: its head, most of which `sampling.json` says."""

    label: str | None = None
    model: str | None = None
    method: str | None = None
    seed: Seed | None = None
    source_digest: str | None = None
    base_digest: str | None = None
    checkpoint: str | None = None
    sampling: SamplingInfo = SamplingInfo()
    grader: GraderInfo = GraderInfo()


UNKNOWN = About()


class Row(Document):
    """One number: a metric of a benchmark at one k."""

    metric: str
    benchmark: str
    k: Count | None
    value: float
    num_problems: Count
    n: Count = Field(ge=1)
    similarity: str | None = None
    threshold: float | None = None
    linkage: str | None = None
    tokens: str | None = None
    tau: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    share_of_all_solutions: float | None = None
    coverage: float | None = None
    checker: str | None = None
    ci_over: str | None = None
    num_seeds: Count | None = None
    bucket: str | None = None


def largest_value(metric: str, k: int | None, n: int | None) -> int | None:
    """The largest value that a metric of rows can have; None if it is the k or n, and that is not known."""
    metric = metric.removeprefix(VALID)
    if metric.partition("/")[0] in COUNTS_OF_K:  # or a part of one
        return k
    if metric == "effective_number" and n is not None:
        return 2 * n * n  # n solutions, each of which was met once, are estimated to be up to 1.4 n^2
    return n if metric in _COUNTS_OF_N else 1


class ProblemEntry(Document):
    """One problem under one setting."""

    benchmark: str
    id: str
    n: Annotated[int, Field(ge=1, le=10**6)]
    correct: int
    clusters: list[int] | None = None
    similarity: str | None = None
    threshold: float | None = None
    linkage: str | None = None
    tokens: str | None = None


class Result(FileDocument, About):
    """A result document."""

    metric: str
    rows: list[Row]
    problems: list[ProblemEntry] | None = None

    def document(self) -> dict[str, Any]:
        """The document as plain JSON values; optional keys that were never set are left out."""
        head = {"schema": self.schema_version, "metric": self.metric}
        head |= self.model_dump(exclude={"schema_version", "metric", "rows", "problems"})
        head["rows"] = [row.model_dump(exclude_unset=True) for row in self.rows]
        if self.problems is not None:
            head["problems"] = [problem.model_dump(exclude_unset=True) for problem in self.problems]
        return head

    def frame(self) -> DataFrame:
        """A data frame with one row for each of ``rows``; unknown values are NA.

        Columns: label, model, method, seed, temperature and top_p of the samples, then the fields of `Row`, then any
        other texts and numbers of the rows, such as the `bucket` of `quatro eval flips`.
        """
        return results_frame([self])

    def grids(self) -> Iterable[Grid]:
        """The rows as `quatro eval` prints them: a table for each metric, benchmarks down, k across."""
        from evals.results.shown import grids_of_rows

        return grids_of_rows(self.rows)


def results_frame(results: Sequence[Result]) -> DataFrame:
    """`Result.frame` of several results, one after the other."""
    rows = []
    for result in results:
        head = result.model_dump(include=set(_OF_HEAD)) | result.sampling.model_dump(include=set(_OF_SAMPLING))
        rows += [{**row.model_dump(), **head} for row in result.rows]
    of_row = [name for name in Row.model_fields if name != "bucket"]  # which has a column where it is known
    dtypes = _columns(Result, *_OF_HEAD) | _columns(SamplingInfo, *_OF_SAMPLING) | _columns(Row, *of_row)
    return frame_of(rows, dtypes | other_columns(rows, dtypes))


def read_result(path: str | Path) -> Result:
    """The result document in ``path``, a file that `quatro eval ... -o FILE.json` wrote.

        >>> frame = quatro.read_result("passk.json").frame()
        >>> frame[frame["benchmark"] == "countdown"]["k"].tolist()
        [1, 2]

    Raises:
        DataError: names the file and the first key that is wrong, or says that it has no rows; or it lies in a run, and
            is not of that run.
    """
    if Path(path).name.endswith((".jsonl", ".jsonl.gz")):
        raise DataError(
            f"{path} holds samples, not a result: measure them with `quatro eval passk {path} -o passk.json` (or `eval "
            "ucc` and so on), and give that file"
        )
    try:
        document = read_document(Path(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    if "rows" not in document:
        made = f"make one with `quatro eval passk FILES -o {path}`"
        raise DataError(f"{path}: not a result document (no `rows`); {made}")
    result = Result.read_from(document, Path(path))
    if not result.rows:
        raise DataError(f"{path}: it has no rows, so nothing was measured; make it again: `quatro eval ... -o {path}`")
    refuse_other_run(Path(path), result.source_digest)
    refuse_other_tag(Path(path), result.sampling.model_dump())
    return result


class DifferenceRow(Document):
    """``difference`` is b - a of one metric at one k, averaged over the problems of a benchmark, or over benchmarks.

    Its 95 % interval is that of `average_paired_differences`, over problems or over seeds too (``ci_over``), ``p`` its
    two-sided p-value, and ``p_adjusted`` that of `holm` among all rows (None: an earlier file). ``n`` is the smallest
    number of samples of a problem, the same for a and b. ``samples_b`` names b where several are compared with a.
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
    p_adjusted: float | None = None
    num_problems: Count
    n: Count
    ci_over: str = PROBLEMS
    samples_b: str | None = Field(None, pattern=r"^[^\x00]+$")


class Comparison(FileDocument):
    """What `quatro eval compare A B --json` prints."""

    metric: str
    a: str = Field(pattern=r"^[^\x00]*$")
    b: str = Field(pattern=r"^[^\x00]*$")
    bootstrap_seed: int = 0  # of no effect: intervals were drawn once
    rows: list[DifferenceRow]

    def frame(self) -> DataFrame:
        """A data frame with one row for each of ``rows``, after the names of both samples."""
        heads = {"samples_a": self.a, "samples_b": self.b}
        rows = [{**heads, **row.model_dump(exclude_none=True)} for row in self.rows]
        fields = [name for name in DifferenceRow.model_fields if name not in heads]
        return frame_of(rows, dict.fromkeys(heads, TEXT) | _columns(DifferenceRow, *fields))

    @property
    def num_adjusted(self) -> int:
        """How many comparisons ``p_adjusted`` is adjusted for: those of all B."""
        return sum(row.p_adjusted is not None for row in self.rows)

    def grids(self) -> Iterable[Grid]:
        """The differences as `quatro eval compare` prints them, a line each."""
        from evals.results.shown import grids_of_comparison

        return [grid for one in self.each() for grid in grids_of_comparison(one, self.num_adjusted)]

    def each(self) -> list[Comparison]:
        """A comparison for every B, where there are several: their rows name them (``samples_b``)."""
        rows = grouped(self.rows, lambda row: row.samples_b or self.b)
        return [self.model_copy(update={"b": name, "rows": own}) for name, own in rows.items()]


def read_comparison(path: Path) -> Comparison | None:
    """The comparison in ``path``, None for anything else; DataError if a key of it is wrong or it has no rows."""
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
