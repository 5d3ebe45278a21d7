"""Problems of a benchmark, read from rows that name their columns in different ways."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import DataError
from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.text import visible

PROBLEM_FIELDS = ("problem", "question", "prompt")
# How the names of files of problems end.
FILE_ENDINGS = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet")
# What of `Problem.extra` decides a grade.
GRADED_BY = ("entry_point", "tests", "reasoning_gym")
# What a copy of the problems names itself.
_OURS = ("id", "problem", "answer")
# Of references: a number, a sign and a number; a stroke or point twice, since 3/4 and 0.5 are nothing special.
_ODD = re.compile(r"\d[^\w:–—-]*[:–—-]\W*\d|\d([/.])\d+\1\d")
_READ_AS = {
    "date": "year {}, month {}, day {}",
    "ratio": "a ratio (equal to its quotient)",
    **{kind: f"a {kind} (equal to the same {kind} only)" for kind in ("range", "time")},
}
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")


@dataclass(frozen=True)
class Problem:
    """One problem. ``answer`` is the raw reference answer as the grader reads it; it is None only for code.

    ``extra`` holds the other columns of its row as JSON values. Of code these are the `tests`, the `entry_point` and
    whatever else its loader kept (`evals/benchmarks/code.py`).
    """

    benchmark: str
    id: str
    problem: str
    answer: str | None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Columns:
    """The names under which a row may keep each value; the first name that the row has is used.

    ``solution`` is a text whose last box is the answer, for rows without an answer column. If ``answer_after`` is set,
    the answer is what follows its last occurrence in the column. ``skip_empty_answer`` leaves out rows without a
    reference answer, which are an error otherwise. ``is_code``: rows hold tests in place of an answer, in one of the
    forms of `evals.benchmarks.code`.
    """

    problem: tuple[str, ...] = PROBLEM_FIELDS
    answer: tuple[str, ...] = ("answer",)
    solution: tuple[str, ...] = ("solution",)
    id: tuple[str, ...] = ("id",)
    answer_after: str = ""
    is_copy: bool = False  # a local one, where the answer may stand without what comes before it
    skip_empty_answer: bool = False
    is_code: bool = False


Row = tuple[int, str, dict[str, Any]]  # its number, its place for messages (`file:line` or the like), and its values


class ReadProblems(NamedTuple):
    """Usable problems, and the number of rows before those without an answer or tests were left out."""

    problems: list[Problem]
    num_rows: int


def benchmark_name(source: str) -> str:
    """What the problems of ``source`` are called: a file by its name without the ending, all else as it is."""
    ending = next((end for end in FILE_ENDINGS if source.endswith(end)), None)
    return source if ending is None else Path(source).name.removesuffix(ending)


def content_hash(problems: Iterable[Problem]) -> str:
    """SHA-256 of problems, answers and tests; the order of rows and white space in the first two do not matter."""
    return hashlib.sha256("\x1e".join(sorted(map(_content, problems))).encode("utf-8", "surrogatepass")).hexdigest()


def _content(row: Problem) -> str:
    parts = [" ".join(text.split()) for text in (row.problem, row.answer or "")]
    graded_by = {name: row.extra[name] for name in GRADED_BY if name in row.extra}
    return "\x1f".join([*parts, json.dumps(graded_by, sort_keys=True)] if graded_by else parts)


def shared_problems(some: Sequence[Problem], others: Sequence[Problem]) -> list[tuple[Problem, Problem]]:
    """The problems of ``some`` that ``others`` hold too, each with that one; case, blanks and punctuation are ignored.

    Ids may only count rows. So equal ids mean one problem only where nearly all have equal answers, and not all one.
    """
    texts = {_plain(one): one for one in others}
    found = {one.id: (one, same) for one in some if (same := texts.get(_plain(one)))}
    ids = {one.id: one for one in others}
    named = {one.id: (one, ids[one.id]) for one in some if one.id in ids}
    answers = [[_content(replace(one, problem="")) for one in pair] for pair in named.values()]
    if len({one for one, _ in answers}) > 1 and sum(one == other for one, other in answers) >= 0.9 * len(named):
        found = named | found
    return list(found.values())


def _plain(problem: Problem) -> str:
    """The text without what may differ between two copies; a prime or a sign in a formula makes another problem."""
    return " ".join([word.rstrip(".,;:?") for word in re.sub('[$"`“”]', "", problem.problem.casefold()).split()])


def odd_references(problems: Sequence[Problem], graders: Sequence[str]) -> list[str]:
    """A line on how maths, if among the ``graders``, reads references such as `3/4/2024`, `10:30`, `5-7` and `3:1`."""
    texts = [one.answer for one in problems if one.answer and _ODD.search(one.answer)] if "math" in graders else []
    if not texts:
        return []
    from evals.grading import readings
    from evals.grading.read import range_or_time, read

    nodes = {text: range_or_time(text) or read(text)[0].node for text in texts}
    odd = [text for text in texts if nodes[text].op in _READ_AS or not re.search(r"[^\s\d:/.–—-]", text)]
    examples = [
        f"'{visible(text, keep='')}' as {_READ_AS.get(kind, readings(text)).format(*nodes[text].args)}"
        for kind, text in {nodes[text].op: text for text in reversed(odd)}.items()
    ]
    return [
        f"{len(odd)} of the {len(problems)} references of {problems[0].benchmark} look like dates, times, ranges or "
        f"scores; the grader reads {', '.join(examples)}. If another thing is meant, change the reference"
    ][: len(odd)]


def read_problem_file(file: Path, benchmark: str, columns: Columns) -> ReadProblems:
    """Problems of a file whose name has one of `FILE_ENDINGS`; any other is read as `.jsonl`.

    A row without an id is called by its line number, in parquet by its number from 1.

    Raises:
        MissingError: parquet without pyarrow.
        DataError: the file is missing, empty or holds a bad row (`file:line`).
    """

    def rows() -> Iterable[Row]:
        from evals.files.frames import csv_rows, parquet_rows

        if file.name.endswith((".csv", ".csv.gz")):
            yield from ((number, f"{file}:{number}", dict(values)) for number, values in csv_rows(file))
            return
        if file.suffix == ".parquet":
            yield from ((number, f"{file}, row {number}", values) for number, values in parquet_rows(file))
            return
        for number, line, _ in read_lines(file):
            at = f"{file}:{number}"
            values = parse_row(line, at, allow_non_finite=columns.is_code)  # evalplus's inputs hold infinities
            assert values is not None  # only a reader that allows a torn last line gets None
            yield number, at, values

    found = problems_of(rows(), benchmark, columns)
    if not found.problems:
        is_json = file.name.endswith((".jsonl", ".jsonl.gz"))
        expected = "a JSON object on each line, with" if is_json else "rows with the columns"
        raise DataError(f"{file}: no problems; expected {expected} `problem` and `answer`")
    return found


def problems_of(rows: Iterable[Row], benchmark: str, columns: Columns, *, id_prefix: str = "") -> ReadProblems:
    """The rows as problems; rows without an id are called ``id_prefix`` and their number.

    Raises DataError, which starts with the row's `at`, if a row lacks a column, or an id occurs twice.
    """
    problems: list[Problem] = []
    line_of: dict[str, int] = {}
    num_rows = 0
    for number, at, values in rows:
        num_rows += 1
        if columns.is_code or ("tests" in values and values.get("answer") is None):
            from evals.benchmarks.code import row_of

            values = row_of(values, at)
            if values["tests"] is None:
                if columns.skip_empty_answer:
                    continue
                refuse(at, "has no tests, so nothing can be right; remove the row, or give its `tests`")
        problem = _problem_of(values, benchmark, f"{id_prefix}{number}", at, columns)
        if problem.id in line_of:
            refuse(at, f"id {shown(problem.id)} was already used on line {line_of[problem.id]}")
        line_of[problem.id] = number
        if problem.answer == "":
            if columns.skip_empty_answer:
                continue
            refuse(at, "the reference answer is empty; remove the row, or give its `answer`")
        problems.append(problem)
    return ReadProblems(problems, num_rows)


def _problem_of(row: dict[str, Any], benchmark: str, default_id: str, at: str, columns: Columns) -> Problem:
    field = _first(columns.problem, row)
    if field is None:
        refuse(at, f"has no problem; expected a field named {', '.join(columns.problem)}, found {shown(list(row))}")
    text = row[field]
    if type(text) is not str:
        refuse(at, f"{field} must be a string, found {shown(text)}")
    if not text.strip():
        refuse(at, f"{field} is empty")
    id_field = _first(columns.id, row)
    id = default_id if id_field is None else row[id_field]
    if type(id) not in (str, int):
        refuse(at, f"id must be a string or an integer, found {shown(id)}")
    id = str(id)
    if not id or id != id.strip() or _ZERO_WIDTH.search(id):
        refuse(at, f"id {shown(id)} is empty, has white space at an end or holds a zero-width character")
    answer, answer_field = _answer_of(row, at, columns)
    used = {*_OURS, field, id_field, answer_field}
    extra = {name: value for name, value in row.items() if name not in used and _is_json(value)}
    return Problem(benchmark, id, text, answer, extra)


def _answer_of(row: dict[str, Any], at: str, columns: Columns) -> tuple[str | None, str]:
    """The answer, and the name of its column."""
    field = _first(columns.answer, row)
    if field is not None:
        answer = row[field]
        if answer is not None and type(answer) not in (str, int, float):
            refuse(at, f"{field} must be a string or a number, found {shown(answer)}")
        if answer is None:
            return None, field
        text = str(answer)
        if columns.answer_after:
            _, mark, text = text.rpartition(columns.answer_after)
            text = text if mark or columns.is_copy else ""
        return text.strip(), field
    field = _first(columns.solution, row)
    if field is None:
        wanted = " or ".join(
            [
                *(f"`{name}`" for name in columns.answer),
                *(f"a `{name}` with a last \\boxed" for name in columns.solution),
            ]
        )
        refuse(at, f"lacks {wanted}, found {shown(list(row))}")
    if type(row[field]) is not str:
        refuse(at, f"{field} must be a string, found {shown(row[field])}")
    from evals.grading import last_boxed  # here: a run whose answers need no grader does not wait for it

    return last_boxed(row[field]) or "", field


def _is_json(value: object) -> bool:
    """Whether the value can be kept; a data set of the Hub may also hold dates and pictures."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _first(names: tuple[str, ...], row: dict[str, Any]) -> str | None:
    return next((name for name in names if name in row), None)
