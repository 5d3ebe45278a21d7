"""The result document: what `quatro eval ... --json` prints, `-o` writes and `quatro table` reads."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evals.errors import DataError
from evals.files.belonging import refuse_other_run, refuse_other_tag
from evals.files.frames import FRAME_SUFFIXES, TEXT, frame_of, other_columns, write_frame
from evals.files.strict_json import parse_row, read_document, read_lines, shown
from evals.files.whole import write_whole
from evals.similarity.catalogue import SIMILARITIES

if TYPE_CHECKING:
    from pandas import DataFrame

AVERAGE = "average"  # what stands in place of a benchmark's name in rows of the unweighted mean over benchmarks
# Metrics that count solutions, up to k or up to n; the others are shares.
_COUNTS_OF_K = ("ucc@k", "ucc@k reclustered", "distinct@k")
_COUNTS_OF_N = ("num_clusters", "effective_number", "vendi")


# Columns of `Result.frame` and their dtypes: what the head says, then the fields of a row.
HEAD_COLUMNS = {
    **dict.fromkeys(("label", "model", "method"), TEXT),
    "seed": "Int64",
    **dict.fromkeys(("temperature", "top_p"), "float64"),
}
ROW_COLUMNS = {
    **dict.fromkeys(("metric", "benchmark"), TEXT),
    "k": "Int64",
    "value": "float64",
    **dict.fromkeys(("num_problems", "n"), "int64"),
    "similarity": TEXT,
    "threshold": "float64",
    "linkage": TEXT,
    "tokens": TEXT,
    **dict.fromkeys(("tau", "ci_low", "ci_high", "draws_se", "share_of_all_solutions"), "float64"),
}

# Of the keys that only some rows have, those that tables, figures and data frames read.
_TEXTS = ("label", "model", "method", "bucket")
_NUMBERS = ("seed", "temperature", "top_p", "num_pairs", "num_clusters")

_SIMILARITY = f"{', '.join(SIMILARITIES)}, or your own as module:function; only if samples were clustered"


# Of a garbled file, too, sums and the integers of a data frame stay in range.
Count = Annotated[int, Field(ge=0, le=2**53)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Document(BaseModel):
    """A frozen JSON document: no coercion, no NaN, and keys that it does not know are kept."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="allow", populate_by_name=True)


class FileDocument(Document):
    """A document that is a file of its own."""

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
    """How the samples were drawn; null means unknown."""

    n: int | None = Field(None, description="samples per problem")
    temperature: float | None = Field(None, description="softmax temperature")
    top_p: float | None = Field(None, description="nucleus mass; 1 keeps every token")
    top_k: int | None = Field(None, description="how many of the most likely tokens are kept; 0 keeps every token")
    max_tokens: int | None = Field(None, description="longest response in tokens, the stop token included")
    prompt: str | None = Field(None, description="name of the prompt template")
    stop: list[str] | None = Field(None, description="strings before which responses end")


class GraderInfo(Document):
    """Who graded the samples; null if the rows came with `correct`. Code has a `sandbox`, its tier and version."""

    version: str | None = Field(None, description="version of the grader")
    policy: str | None = Field(None, description="strict or simko")


class About(TypedDict, total=False):
    """What is known for the head of a result; `sample_seed` becomes the document's `seed`."""

    label: str | None
    model: str | None
    method: str | None
    sample_seed: int | None
    source_digest: str | None
    sampling: SamplingInfo
    grader: GraderInfo


class Row(Document):
    """One number: a metric of a benchmark at one k."""

    metric: str = Field(description="pass@k, ucc@k, ucr, num_clusters, effective_number, maj@k, cover, vendi, ...")
    benchmark: str = Field(description="name, or `average`: the unweighted mean over benchmarks")
    k: Count | None = Field(description="number of draws; null if the metric has none")
    value: float = Field(description="the number; a share in [0, 1], or a count: ucc@k is in [0, k]")
    num_problems: Count = Field(description="number of problems in the average, unsolved ones included")
    n: Count = Field(ge=1, description="samples per problem; the smallest number if they differ")
    similarity: str | None = Field(None, description=_SIMILARITY)
    threshold: float | None = Field(
        None, description="two samples that are at least this similar count as the same solution"
    )
    linkage: str | None = Field(None, description="components, complete, average or greedy")
    tokens: str | None = Field(None, description="math, sklearn, whitespace or code")
    tau: float | None = Field(None, description="g-pass@k: share of the k draws that must be correct")
    ci_low: float | None = Field(
        None,
        description="lower end of the 95 % interval over problems: by bootstrap, or exact if all have the same value",
    )
    ci_high: float | None = Field(None, description="upper end of this interval")
    draws_se: float | None = Field(
        None, description="ucc@k reclustered: standard error of the value over its random draws"
    )
    share_of_all_solutions: float | None = Field(
        None,
        description="countdown with exact: mean share of a problem's distinct solutions that occur in its samples",
    )

    @model_validator(mode="after")
    def _check_further(self) -> Self:
        """Keys that only some rows have are kept; those that name or place a row are texts or numbers."""
        for key, value in (self.model_extra or {}).items():
            if key in _TEXTS and not isinstance(value, str | None):
                raise ValueError(f"{key} is {shown(value)}, expected a text or null")
            if key in _NUMBERS and type(value) not in (int, float, type(None)):
                raise ValueError(f"{key} is {shown(value)}, expected a number or null")
        return self


def largest_value(metric: str, k: int | None, n: int | None) -> int | None:
    """The largest value that a metric of rows can have; None if it is the k or n, and that is not known."""
    if metric in _COUNTS_OF_K:
        return k
    return n if metric in _COUNTS_OF_N else 1


class ProblemEntry(Document):
    """One problem under one setting."""

    benchmark: str = Field(description="its benchmark")
    id: str = Field(description="the problem, as in the samples")
    n: int = Field(description="number of samples")
    correct: int = Field(description="number of correct samples")
    clusters: list[int] | None = Field(None, description="sizes of the clusters of correct samples, descending")
    similarity: str | None = Field(None, description=_SIMILARITY)
    threshold: float | None = Field(
        None, description="two samples that are at least this similar count as the same solution"
    )
    linkage: str | None = Field(None, description="components, complete, average or greedy")
    tokens: str | None = Field(None, description="math, sklearn, whitespace or code")


class Result(FileDocument):
    """A result document. ``warnings`` are for the caller to print and are not part of the document."""

    schema_version: Literal[1] = Field(1, alias="schema", description="version of the format: 1")
    metric: str = Field(description="the main metric, such as pass@k; each row names its own")
    label: str | None = Field(
        None, description="name of the result in tables; null: the file's name without its extension"
    )
    model: str | None = Field(None, description="the model that the samples were drawn from; null: unknown")
    method: str | None = Field(
        None, description="the method that trained it, such as `quatro delta=0.01`; null: unknown or none"
    )
    seed: Seed | None = Field(None, description="seed of the samples")
    source_digest: str | None = Field(
        None, description="digest of the settings of the run that was sampled, or of the model; null: unknown"
    )
    sampling: SamplingInfo = SamplingInfo()
    grader: GraderInfo = GraderInfo()
    rows: list[Row] = Field(description="the numbers, see below")
    problems: list[ProblemEntry] | None = Field(None, description="see below; only with --per-problem")
    warnings: list[str] = Field([], exclude=True)

    def document(self) -> dict[str, Any]:
        """The document as plain JSON values; optional keys that were never set are left out."""
        head = self.model_dump(by_alias=True, exclude={"rows", "problems"})
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


def results_frame(results: Sequence[Result]) -> DataFrame:
    """`Result.frame` of several results, one after the other."""
    rows = []
    for result in results:
        heads = (result.model_dump(include=set(HEAD_COLUMNS)), result.sampling.model_dump(include=set(HEAD_COLUMNS)))
        rows += [{**heads[0], **heads[1], **row.model_dump()} for row in result.rows]
    dtypes = HEAD_COLUMNS | ROW_COLUMNS
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
    try:
        document = read_document(Path(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    except DataError:
        _refuse_samples(Path(path))
        raise
    if "rows" not in document:
        _refuse_samples(Path(path))
        raise DataError(f"{path}: not a result document (no `rows`); make one with `quatro eval passk FILES -o {path}`")
    try:
        result = Result.model_validate(document)
    except ValidationError as error:
        raise DataError(f"{path}: {first_error(error)}") from None
    if not result.rows:
        raise DataError(f"{path}: it has no rows, so nothing was measured; make it again: `quatro eval ... -o {path}`")
    refuse_other_run(Path(path), result.source_digest)
    refuse_other_tag(Path(path), result.sampling.model_dump())
    return result


def _refuse_samples(path: Path) -> None:
    """Raises DataError if ``path`` is a samples file."""
    try:
        first = next((parse_row(line, str(path)) for _, line, _ in read_lines(path)), None)
    except DataError:
        return
    if first is not None and {"completion", "sample_index"} <= first.keys():
        raise DataError(
            f"{path} holds samples, not a result: measure them with `quatro eval passk {path} -o passk.json` (or `eval "
            "ucc` and so on), and give that file"
        )


def first_error(error: ValidationError) -> str:
    """The first key that is wrong, what is wrong with it and what was found, in one line."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}, found {shown(first['input'])}"
