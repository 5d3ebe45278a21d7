"""Samples of code: where the tests of a problem are found, and the grades that they get in the sandbox.

What runs programs, and what reads benchmarks, is imported only where samples are of code.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from evals.benchmarks.catalogue import registry
from evals.benchmarks.prompts import THOUGHT
from evals.errors import DataError
from evals.files.strict_json import read_document, refuse, shown
from evals.files.whole import file_digest, file_stem, write_whole
from evals.grading import Grade, OnProgress, Outcome
from evals.samples.about import problems_beside, problems_file
from evals.samples.types import FIELDS, Sample

# A sample carries values of its problem that are at most this long as JSON; longer ones lie beside the file, once.
MOST_CHARS_IN_A_ROW = 200
# Names that mean something else in a row.
_RESERVED = {*FIELDS, THOUGHT, "outcome", "verdicts"}

# A program is refused if its tests cannot be run, which is no fault of the program.
_OUTCOMES: dict[str, Outcome] = {
    "pass": "correct",
    "timeout": "timeout",
    "refused": "error",
    "infra_error": "infra_error",
}

Extra = Mapping[str, Any]


def short_values(extra: Extra) -> dict[str, Any]:
    """What of a problem's ``extra`` stands in each of its samples."""
    return {name: value for name, value in extra.items() if name not in _RESERVED and _is_short(value)}


def _is_short(value: Any) -> bool:
    return len(json.dumps(value)) <= MOST_CHARS_IN_A_ROW


def write_long_values(samples: Path, problems: Iterable[tuple[str, str, Extra]]) -> None:
    """Writes `problems_file` for (id, problem, extra), if anything is too long for a row; other problems there stay.

    Raises DataError if a problem has other content there: the samples are of other problems.
    """
    long = {
        id: {"problem": problem, **{name: value for name, value in extra.items() if not _is_short(value)}}
        for id, problem, extra in problems
        if not all(map(_is_short, extra.values()))
    }
    path = problems_file(samples)
    if not long:
        return
    there = {id: values for (_, id), values in long_values([samples]).items()}
    if any(there.get(id, values) != values for id, values in long.items()):
        raise DataError(f"{path} holds other tests than the benchmark has now; choose another --tag or -o")
    document = {"schema": 1, "problems": {**there, **long}}
    content = (json.dumps(document, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")
    write_whole(path, [content])


def tested_problems(rows: Sequence[Sample], files: Sequence[Path]) -> dict[tuple[str, str], Extra]:
    """The `tests`, `entry_point` and `problem` of every problem of ``rows``, by (benchmark, id).

    They stand in the rows themselves, beside their ``files``, or in this machine's copy of the benchmark.

    Raises:
        DataError: a problem has them in none of these places, has others beside another file, or they cannot be read.
    """
    from evals.benchmarks.code import row_of
    from evals.benchmarks.loading import local_problems

    beside = long_values(files)
    copies: dict[str, dict[str, Extra]] = {}
    found: dict[tuple[str, str], Extra] = {}
    for row in rows:
        key = row.benchmark, row.id
        if key in found:
            continue
        own = {"problem": row.prompt or "", **row.extra, **beside.get((values_file(row.benchmark), row.id), {})}
        if "tests" not in own:
            if row.benchmark not in copies:
                problems = local_problems(row.benchmark)
                copies[row.benchmark] = {one.id: {"problem": one.problem, **one.extra} for one in problems}
            own = {**own, **copies[row.benchmark].get(row.id, {})}
        if "tests" not in own:
            fetch = f"get them with `quatro benchmarks fetch {row.benchmark}`"
            advice = fetch if row.benchmark in registry() else "write them into the rows as `tests` (docs/code.md)"
            raise DataError(
                f"the tests of {row.benchmark} {shown(row.id)} are not here: not in its rows, not in a "
                f"{values_file(row.benchmark)} beside the file, and not in a copy of the benchmark; {advice}"
            )
        found[key] = row_of(own, f"{row.benchmark} {shown(row.id)}")
        if found[key]["tests"] is None:
            raise DataError(f"{row.benchmark} {shown(row.id)} has no tests: nothing can be correct; leave it out")
    return found


def values_file(benchmark: str) -> str:
    """What `problems_file` is called beside the samples of a benchmark."""
    return problems_file(Path(f"{file_stem(benchmark)}.jsonl")).name


def long_values(files: Sequence[Path]) -> dict[tuple[str, str], Extra]:
    """What lies beside ``files``, by its file's name and the problem's id, which two benchmarks may share."""
    found: dict[tuple[str, str], Extra] = {}
    for path in dict.fromkeys(path for path in map(problems_beside, files) if path is not None):
        problems = read_document(path).get("problems")
        if not isinstance(problems, dict) or not all(isinstance(one, dict) for one in problems.values()):
            refuse(str(path), "it is not in the form that `quatro sample` writes")
        for id, values in problems.items():
            if found.setdefault((path.name, id), values) != values:
                refuse(str(path), f"has other tests of {shown(id)} than another {path.name}; grade the files apart")
    return found


BESIDE = "beside"  # the key of the file beside samples in `tests_digests`; the others are names of benchmarks


def tests_digests(file: Path, benchmarks: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the tests that do not stand in the rows of ``file``, as far as they are here.

    They are those beside it, and those of this machine's copies of ``benchmarks``.
    """
    from evals.benchmarks.loading import local_problems
    from evals.benchmarks.problems import content_hash

    beside = problems_beside(file)
    found = {BESIDE: file_digest(beside).hexdigest()} if beside is not None else {}
    return found | {name: content_hash(problems) for name in benchmarks if (problems := local_problems(name))}


def looked_up(rows: Sequence[Sample], file: Path) -> list[str]:
    """The benchmarks whose copies on this machine hold tests of ``rows``: neither these nor a file beside them do."""
    beside = long_values([file])
    open_rows = [row for row in rows if "tests" not in row.extra]
    return sorted({row.benchmark for row in open_rows if (values_file(row.benchmark), row.id) not in beside})


def sandbox_here() -> str:
    """What programs are isolated by on this machine; see `evals.code.grading.isolation`."""
    from evals.code.grading import isolation

    return isolation()


def grade_code(rows: Sequence[Sample], files: Sequence[Path], jobs: int | None, on_progress: OnProgress) -> list[Grade]:
    """A grade for each row: its program must pass all tests. One that crashes, or needs too much, is incorrect.

    Raises as `tested_problems`, and MissingError if programs cannot be isolated on this machine.
    """
    from evals.code.grading import Answer, CodeGrader

    problems = tested_problems(rows, files)
    answers = []
    for row in rows:
        problem = problems[row.benchmark, row.id]
        answers.append(Answer((row.benchmark, row.id), row.completion, problem, problem["problem"] or row.prompt))
    with closing(CodeGrader(workers=jobs or 0)) as grader:
        found = grader.grade(answers, on_progress)
    grades = []
    for one in found:
        verdicts = {name: verdict.status for name, verdict in one.verdicts.items()}
        if one.program is None:
            grades.append(Grade(False, "no_answer", None, "extraction", "no program in the completion"))
        elif one.failed is None:
            grades.append(Grade(True, "correct", one.program, "sandbox", verdicts=verdicts))
        else:
            name, verdict = one.failed
            detail = f"{name}: {verdict.status}: {verdict.detail}"
            outcome = _OUTCOMES.get(verdict.status, "incorrect")
            grades.append(Grade(False, outcome, one.program, "sandbox", detail, verdicts))
    return grades
