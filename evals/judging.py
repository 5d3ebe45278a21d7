"""Which samples are correct: the rows' own word, or a grader chosen by the benchmark's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from evals.errors import DataError, UsageError
from evals.records import Sample, Samples
from evals.strict_json import shown

if TYPE_CHECKING:
    from evals.grading.compare import Policy
    from evals.grading.extraction import ExtractionPolicy

Grade = Callable[[Sample], bool]


class Judged(NamedTuple):
    """A problem with ``n`` samples, and the completions of the ``correct`` ones by ascending sample index."""

    benchmark: str
    id: str
    answer: str | int | float | None
    n: int
    completions: list[str]

    @property
    def correct(self) -> int:
        return len(self.completions)


def judge(
    samples: Samples, *, grade: Grade | None = None, regrade: bool = False, allow_infra_errors: bool = False
) -> list[Judged]:
    """Every problem with its correct completions.

    A row's ``correct`` decides where it stands, unless ``regrade``; other rows go to ``grade`` (default
    `grader_by_benchmark`), once for each different completion of a problem.

    Raises:
        DataError: a row says outcome `infra_error` (the machine failed, not the model) and that was not allowed.
    """
    judge_sample = grade or grader_by_benchmark()
    judged = []
    for benchmark, id, rows in samples.problems():
        verdicts: dict[str, bool] = {}
        correct = []
        for row in rows:
            if not allow_infra_errors and row.extra.get("outcome") == "infra_error" and not regrade:
                raise DataError(
                    f"sample {row.sample_index} of {shown(id)} ({benchmark}) has outcome infra_error: grading failed "
                    "on this machine, so it is neither right nor wrong; grade the file again with `quatro eval grade`"
                )
            verdict = row.correct if not regrade else None
            if verdict is None:
                if row.completion not in verdicts:
                    verdicts[row.completion] = judge_sample(row)
                verdict = verdicts[row.completion]
            if verdict:
                correct.append(row.completion)
        judged.append(Judged(benchmark, id, rows[0].answer, len(rows), correct))
    return judged


def grader_by_benchmark(
    *, policy: Policy = "strict", extraction: ExtractionPolicy = "boxed", grader: str | None = None
) -> Grade:
    """A grader that looks up each sample's benchmark: the registry's choice, maths for an unknown name.

    ``grader`` ("math" or "countdown") overrides the registry; ``policy`` and ``extraction`` concern maths.
    """
    if grader not in (None, "math", "countdown"):
        raise UsageError(f"unknown grader {grader!r}; choose math or countdown (code: `quatro eval grade`)")

    def judge_sample(sample: Sample) -> bool:
        kind = grader or grader_name(sample.benchmark)
        if kind == "countdown":
            from evals.countdown import verify

            try:
                return verify(str(sample.answer), sample.completion)
            except ValueError as error:
                raise DataError(f"{shown(sample.id)} of {sample.benchmark}: {error}") from error
        if kind != "math" or sample.answer is None:
            raise DataError(
                f"{sample.benchmark} {shown(sample.id)} sample {sample.sample_index} has no `correct` and is code; "
                "run its tests with `quatro eval grade FILES` first"
            )
        from evals.grading import grade

        verdict = grade(sample.completion, str(sample.answer), policy=policy, extraction=extraction)
        if verdict.outcome == "infra_error":
            raise DataError(f"sample {sample.sample_index} of {shown(sample.id)} could not be graded: infra_error")
        return verdict.correct

    return judge_sample


def grader_name(benchmark: str) -> str:
    """`math`, `countdown`, or another name of the registry."""
    if is_countdown(benchmark):
        return "countdown"
    from evals.benchmarks import registry

    known = registry().get(benchmark)
    return known.grader if known is not None else "math"


def is_countdown(benchmark: str) -> bool:
    return benchmark == "countdown" or benchmark.startswith("countdown-")
