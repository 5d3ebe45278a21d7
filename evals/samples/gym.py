"""Grades of samples that answer tasks of reasoning-gym, by the library's own checkers."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from evals.benchmarks.catalogue import USER_FILE, find_benchmark
from evals.benchmarks.gym import COLUMN, Reference, as_key, reference_of
from evals.benchmarks.gym.items import form_of
from evals.benchmarks.gym.scoring import Asked, GymGrader
from evals.errors import DataError
from evals.files.strict_json import shown
from evals.grading import Grade, OnProgress
from evals.samples.code import long_values, values_file
from evals.samples.types import Sample


def grade_tasks(
    rows: Sequence[Sample], files: Sequence[Path], jobs: int | None, on_progress: OnProgress
) -> list[Grade]:
    """A grade for each row, of which `reasoning_gym` says the item that it answers; correct is the whole score.

    Raises:
        DataError: a row does not say it, or says another task or other settings than its benchmark has.
        MissingError: the library is not installed, or a checker needs a sandbox and there is none.
        UsageError: the installed library makes other items.
    """
    beside = long_values(files)
    task_of = {benchmark: _task_of(benchmark) for benchmark in {row.benchmark for row in rows}}
    asked = []
    for row in rows:
        values = {**row.extra, **beside.get((values_file(row.benchmark), row.id), {})}
        reference = _reference(row, values.get(COLUMN), task_of[row.benchmark])
        asked.append(Asked(reference, row.completion, row.finish_reason == "length"))
    with closing(GymGrader(workers=jobs or 0)) as grader:
        return [grade for _, grade in grader.score(asked, on_progress)]


_Task = tuple[str, str, str]


def _task_of(benchmark: str) -> _Task | None:
    """Task, settings and compact form of a benchmark; None of one that is no task of reasoning-gym."""
    if form := form_of(benchmark):
        return form.task, as_key(form.settings), benchmark
    entry = find_benchmark(benchmark)
    return None if entry is None or not entry.reasoning_gym else (entry.reasoning_gym, as_key(entry.settings), "")


def _reference(row: Sample, value: object, task: _Task | None) -> Reference:
    found = reference_of(value)
    if found is not None and (found.task, found.settings, found.form) != task:
        # A samples file alone never chooses what the library does: some settings take all memory, or read files.
        raise DataError(
            f"sample {row.sample_index} of {shown(row.id)} says that it answers the task {shown(found.task)} of "
            f"reasoning-gym with the settings {found.settings}, which is not what the benchmark {shown(row.benchmark)} "
            f"is here; add an entry [{row.benchmark}] with this task and these settings to ./{USER_FILE} if you trust "
            "the file"
        )
    if found is None:
        raise DataError(
            f"sample {row.sample_index} of {shown(row.id)} ({row.benchmark}) has {COLUMN} = {shown(value)}, which does "
            "not say which item of reasoning-gym it answers; draw the samples with `quatro sample`, or copy that "
            "column from the problem"
        )
    return found
