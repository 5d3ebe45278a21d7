"""The types of samples: one response, all responses to a problem, and those of many problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, Self

from evals.benchmarks.catalogue import Kind, kind_of
from evals.errors import DataError, UsageError
from evals.files.frames import TEXT, DataFrame, frame_of
from evals.files.strict_json import shown
from evals.files.whole import strict_json_line

FinishReason = Literal["stop", "length"]

FIELDS = ("benchmark", "id", "sample_index", "prompt", "completion", "answer", "finish_reason", "correct")
REQUIRED_FIELDS = ("benchmark", "id", "sample_index", "completion", "answer")

NO_EXTRA: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled response. ``correct`` None means not graded yet; ``extra`` holds every other key of the row."""

    benchmark: str
    id: str
    sample_index: int
    completion: str
    answer: str | int | float | None
    prompt: str | None = None
    finish_reason: FinishReason | None = None
    correct: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: NO_EXTRA)

    def to_json_line(self) -> bytes:
        """The row as UTF-8 JSON with its newline; raises ValueError for a non-finite number in ``extra``."""
        values = {name: getattr(self, name) for name in FIELDS}
        row = {name: value for name, value in values.items() if value is not None or name in REQUIRED_FIELDS}
        return strict_json_line({**row, **self.extra})


class Sampled(Protocol):
    """A problem with its number of samples: `GradedProblem`, or its counts."""

    @property
    def benchmark(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def n(self) -> int: ...


class Problem(NamedTuple):
    """All samples of one (benchmark, id), by ascending ``sample_index``."""

    benchmark: str
    id: str
    samples: Sequence[Sample]


class GradedProblem(NamedTuple):
    """A problem with ``n`` samples. ``completions`` are those of the correct ones, by ascending sample index.

    ``entry_point`` is the function that a program must define, and ``recorded`` how the answers are judged, if the rows
    say so. Problems of one ``family`` were not drawn apart.
    """

    benchmark: str
    id: str
    answer: str | int | float | None
    n: int
    completions: list[str]
    prompt: str | None = None
    entry_point: str | None = None
    recorded: Kind | None = None
    family: str | None = None

    @property
    def kind(self) -> Kind:
        return self.recorded or kind_of(self.benchmark)

    @property
    def correct(self) -> int:
        return len(self.completions)


@dataclass(frozen=True)
class Samples:
    """Rows sorted by benchmark, id (numbers inside an id by value) and index, so that file order changes no result."""

    rows: Sequence[Sample]
    files: Sequence[Path]
    warnings: Sequence[str] = ()

    def problems(self) -> list[Problem]:
        groups = groupby(self.rows, key=lambda row: (row.benchmark, row.id))
        return [Problem(benchmark, id, list(rows)) for (benchmark, id), rows in groups]

    def graded(self) -> list[GradedProblem]:
        """Every problem with its correct completions; raises DataError unless each row has a grade (`read_graded`)."""
        for row in self.rows:
            if row.correct is None:
                raise DataError(
                    f"sample {row.sample_index} of {shown(row.id)} ({row.benchmark}) has no grade; grade the samples "
                    "with `quatro eval grade`"
                )
        return [graded_of(problem) for problem in self.problems()]

    def frame(self) -> DataFrame:
        """A data frame with one row a sample and the columns of `FIELDS`; `correct` is NA where nobody graded.

        `sample_index` is int64, `correct` boolean, and the others, `answer` included, are texts.
        """
        rows = [{name: getattr(row, name) for name in FIELDS} for row in self.rows]
        return frame_of(rows, dict.fromkeys(FIELDS, TEXT) | {"sample_index": "int64", "correct": "boolean"})

    def of_problem(self, id: str) -> Self:
        """The samples of problem ``id`` in every benchmark; raises UsageError with similar ids if there are none."""
        chosen = [row for row in self.rows if row.id == id]
        if not chosen:
            ids = list(dict.fromkeys(row.id for row in self.rows))
            close = get_close_matches(id, ids, n=3) or ids[:3]
            raise UsageError(f"no problem {shown(id)} in these samples; there are {len(ids)}, such as {shown(close)}")
        return replace(self, rows=chosen)


def graded_of(problem: Problem) -> GradedProblem:
    """The problem with its correct completions; what has no grade is none."""
    first, right = problem.samples[0], [row for row in problem.samples if row.correct]
    completions = [row.completion for row in right]
    named = first.extra.get("entry_point")
    entry_point = named if isinstance(named, str) else None
    recorded = next(filter(None, (Kind.recorded_in(row.extra) for row in problem.samples)), None)
    head = (problem.benchmark, problem.id, first.answer, len(problem.samples))
    return GradedProblem(*head, completions, first.prompt, entry_point, recorded)
