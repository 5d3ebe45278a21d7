"""The registry of benchmarks, and loading the problems of one from the Hub or from a local file."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from evals import countdown
from evals.errors import DataError, MissingError, UsageError
from evals.grading.extraction import last_boxed
from evals.strict_json import parse_row, read_lines, refuse, shown

PROBLEM_FIELDS = ("problem", "question", "prompt")
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")


@dataclass(frozen=True)
class Problem:
    """One problem. ``answer`` is the raw reference answer (its form is the grader's business); None only for code."""

    benchmark: str
    id: str
    problem: str
    answer: str | None


@dataclass(frozen=True)
class Benchmark:
    """A registry entry.

    ``count`` rows before ``skip_empty_answer`` drops those without a reference answer; ``hub`` ids in order of
    preference; the answer comes from ``answer_field`` or from the last box of ``solution_field``; ``sha256`` as of
    `content_hash`; ``verified`` says that count and hash were computed from the data, not copied from somewhere.
    """

    name: str
    title: str
    count: int
    licence: str
    verified: bool
    sha256: str = ""
    source: Literal["hub", "built-in"] = "hub"
    hub: tuple[str, ...] = ()
    split: str = "test"
    problem_field: str = "problem"
    answer_field: str | None = None
    solution_field: str | None = None
    skip_empty_answer: bool = False
    grader: str = "math"
    template: str = "qwen-boxed"
    note: str = ""


@cache
def registry() -> Mapping[str, Benchmark]:
    """The benchmarks by name."""
    tables = tomllib.loads(resources.files("evals").joinpath("benchmarks.toml").read_text(encoding="utf-8"))
    return {
        name: Benchmark(name=name, **{**table, "hub": tuple(table.get("hub", ()))}) for name, table in tables.items()
    }


def load_problems(
    source: str, *, split: Literal["train", "test"] | None = None, cache: str | Path | None = None
) -> list[Problem]:
    """Problems of a registry name, or of a `.jsonl`/`.jsonl.gz` file, whose stem is then the benchmark's name.

    ``split`` is for `countdown`, which makes both: `test` (the default) or `train`. ``cache`` is the Hub's cache
    folder. A row of a file needs one of problem, question, prompt; `answer`, or a `solution` whose last box is the
    answer; and may have an `id` (otherwise its line number). A file named like a benchmark gets its fixes of rows.

    Raises:
        UsageError: ``source`` is neither a benchmark nor the name of a `.jsonl` file, or has no such ``split``.
        MissingError: the benchmark must be fetched and cannot be.
        DataError: a file is missing, empty or holds a bad row (`file:line`).
    """
    if source == "countdown":
        problems = countdown.problems(split or "test")
        return [Problem("countdown", problem.id, problem.prompt, problem.prompt) for problem in problems]
    if split is not None:
        raise UsageError(
            f"only countdown has a choice of split; {source!r} is what it is, so leave split={split!r} out"
        )
    if source in registry():
        return _fetch(registry()[source], cache)
    if not source.endswith((".jsonl", ".jsonl.gz")):
        raise UsageError(
            f"unknown benchmark {source!r}; expected one of {', '.join(registry())}, or the path of a .jsonl file"
        )
    return _read_file(Path(source))


def content_hash(problems: Iterable[Problem]) -> str:
    """SHA-256 over the sorted (problem, answer) pairs with white space collapsed: the order of rows is left out."""
    pairs = sorted(f"{' '.join(row.problem.split())}\x1f{' '.join((row.answer or '').split())}" for row in problems)
    return hashlib.sha256("\x1e".join(pairs).encode("utf-8", "surrogatepass")).hexdigest()


def _read_file(file: Path) -> list[Problem]:
    benchmark = file.name.removesuffix(".gz").removesuffix(".jsonl")
    entry = registry().get(benchmark)
    problems: list[Problem] = []
    line_of: dict[str, int] = {}
    for number, line, _ in read_lines(file):
        at = f"{file}:{number}"
        row = parse_row(line, at)
        assert row is not None  # only a reader that allows a torn last line gets None
        problem = _problem_of(row, benchmark, number, at)
        if problem.id in line_of:
            refuse(at, f"id {shown(problem.id)} was already used on line {line_of[problem.id]}")
        line_of[problem.id] = number
        if problem.answer == "":
            if entry is not None and entry.skip_empty_answer:
                continue
            refuse(at, "the reference answer is empty; remove the row, or give its `answer`")
        problems.append(problem)
    if not problems:
        raise DataError(f"{file}: no problems; expected one JSON object a line with `problem` and `answer`")
    return problems


def _problem_of(row: dict[str, Any], benchmark: str, number: int, at: str) -> Problem:
    field = next((name for name in PROBLEM_FIELDS if name in row), None)
    if field is None:
        refuse(at, f"lacks the problem; expected a field named {', '.join(PROBLEM_FIELDS)}, found {shown(list(row))}")
    text = row[field]
    if type(text) is not str:
        refuse(at, f"{field} must be a string, found {shown(text)}")
    if not text.strip():
        refuse(at, f"{field} is empty")
    id = row.get("id", number)
    if type(id) not in (str, int):
        refuse(at, f"id must be a string or an integer, found {shown(id)}")
    id = str(id)
    if not id or id != id.strip() or _ZERO_WIDTH.search(id):
        refuse(at, f"id {shown(id)} is empty, has white space at an end or holds a zero-width character")
    return Problem(benchmark, id, text, _answer_of(row, at))


def _answer_of(row: dict[str, Any], at: str) -> str | None:
    if "answer" in row:
        answer = row["answer"]
        if answer is not None and type(answer) not in (str, int, float):
            refuse(at, f"answer must be a string or a number, found {shown(answer)}")
        return None if answer is None else str(answer).strip()
    if "solution" not in row:
        refuse(at, "lacks `answer` (or a `solution` whose last \\boxed is the answer)")
    if type(row["solution"]) is not str:
        refuse(at, f"solution must be a string, found {shown(row['solution'])}")
    return last_boxed(row["solution"]) or ""


def _fetch(benchmark: Benchmark, cache: str | Path | None) -> list[Problem]:
    instead = f"use a local file instead: `-s data.prompts={benchmark.name}.jsonl`"
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingError(
            f"fetching {benchmark.name!r} from the Hugging Face Hub needs the package `datasets` "
            f"(`pip install 'quatro[hub]'`); or {instead}"
        ) from error
    hub_id = benchmark.hub[0]
    try:
        rows = list(load_dataset(hub_id, split=benchmark.split, cache_dir=None if cache is None else str(cache)))
    except Exception as error:  # whatever the Hub client raises offline; there are many kinds of it
        raise MissingError(
            f"cannot fetch {benchmark.name!r} from the Hugging Face Hub ({hub_id}, split {benchmark.split}): "
            f"{type(error).__name__}: {error}; {instead}"
        ) from error
    if len(rows) != benchmark.count:
        raise DataError(f"{hub_id}: {len(rows)} rows in split {benchmark.split}, expected {benchmark.count}; {instead}")
    return _hub_problems(benchmark, rows)


def _hub_problems(benchmark: Benchmark, rows: list[dict[str, Any]]) -> list[Problem]:
    problems = []
    for number, row in enumerate(rows):
        fields = {"id": f"{benchmark.name}/{number}", "problem": row.get(benchmark.problem_field, "")}
        if benchmark.solution_field is not None:
            fields["solution"] = row.get(benchmark.solution_field)
        elif benchmark.answer_field is not None:
            fields["answer"] = row.get(benchmark.answer_field)
        problem = _problem_of(fields, benchmark.name, number, f"{benchmark.hub[0]}:{number}")
        if problem.answer or not benchmark.skip_empty_answer:
            problems.append(problem)
    return problems
