"""Samples files: strict reading with file:line errors.

One JSON object a line, described by `Sample`. A reader skips nothing silently: whatever could change a number
(a duplicate, a second reference answer, a misspelt benchmark) is an error that names the line, and what is merely odd
(a missing index, a torn last line) is a warning in `Samples.warnings` for the caller to print.
"""

import re
import shlex
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from evals.benchmarks.catalogue import Kind, kind_of
from evals.errors import DataError, UsageError
from evals.files.belonging import read_or_empty
from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.samples.about import problems_beside, refuse_misplaced
from evals.samples.types import FIELDS, NO_EXTRA, REQUIRED_FIELDS, Sample, Samples

_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
_DIGITS = re.compile("([0-9]+)")
_IMPORT = "; what another program wrote: `quatro eval import --from TOOL FILE -o OUT.jsonl` (--help has each TOOL)"


def read_samples(
    paths: Sequence[str | Path], *, benchmarks: Collection[str] | None = None, keep_extra: bool = True
) -> Samples:
    """Samples of the given `.jsonl`/`.jsonl.gz` files and run directories (their ``samples/**``).

    ``benchmarks`` keeps only those, and `Samples.files` only the files that hold them. ``keep_extra`` False forgets the
    unknown keys of rows, which saves memory.

    Raises: as `named_files` and `read_files`.
    """
    return read_files(named_files(list(map(Path, paths))), benchmarks=benchmarks, keep_extra=keep_extra)


def named_files(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """The samples files of each path; raises as `sample_files` and `refuse_misplaced`, UsageError for one twice."""
    files_of: dict[Path, list[Path]] = {}
    named: set[Path] = set()
    for path in paths:
        files = sample_files(path)
        for file in files:
            if file in named:
                raise UsageError(f"{file} is named twice; name each samples file once")
            named.add(file)
            refuse_misplaced(file)
        files_of[path] = files
    return files_of


def read_files(
    files_of: Mapping[Path, Sequence[Path]],
    *,
    benchmarks: Collection[str] | None = None,
    keep_extra: bool = True,
    first: int | None = None,
) -> Samples:
    """`read_samples` of the files of each path; ``first`` keeps the samples of every problem with the smallest indices.

    Raises:
        DataError: a file is unreadable or empty, or a row breaks the contract (`file:line` in the message).
        UsageError: a path holds none of the ``benchmarks`` asked for, or a problem has fewer than ``first`` samples.
    """
    reader = SamplesReader(benchmarks=benchmarks, keep_extra=keep_extra)
    for path, files in files_of.items():
        for file in files:
            reader.read(file)
        if benchmarks is not None:
            _refuse_other_benchmarks(str(path), {name for file in files for name in reader.found[file]}, benchmarks)
    for name in benchmarks or ():
        _refuse_other_benchmarks(
            ", ".join(map(str, files_of)), {found for names in reader.found.values() for found in names}, [name]
        )
    reader.rows.sort(key=lambda row: (row.benchmark, reader.order[row.id], row.sample_index))
    if first is not None:
        reader.keep_first(first)
    files = [file for file, names in reader.found.items() if benchmarks is None or not names.isdisjoint(benchmarks)]
    return Samples(reader.rows, files, reader.warnings + _reader_warnings(reader))


def sample_files(path: Path) -> list[Path]:
    """The samples files that ``path`` names: itself, or those of a folder; raises DataError if there are none."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise DataError(f"{path}: no such file or run directory")
    if not path.is_dir():
        raise DataError(f"{path} is neither a file nor a directory")
    folder = path / "samples"
    if not folder.is_dir():
        if (path / "config.yaml").exists():
            raise DataError(f"{path} holds no samples; draw some with `quatro sample {path} -b BENCHMARK`")
        folder = path
    files = sorted(file for file in folder.rglob("*") if file.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise DataError(
            f"{folder}: no samples (no .jsonl or .jsonl.gz file below it); `quatro eval import` converts other files"
        )
    return files


def _refuse_other_benchmarks(where: str, found: set[str], wanted: Collection[str]) -> None:
    if found.isdisjoint(wanted):
        raise UsageError(
            f"{where} holds samples of {shown(sorted(found))}, none of {shown(sorted(wanted))}; "
            "change -b, or name the files of that benchmark"
        )


def _reader_warnings(reader: "SamplesReader") -> list[str]:
    warnings = []
    gaps = [problem for problem in reader.problems.values() if problem.kept and max(problem.where) + 1 != problem.kept]
    if gaps:
        first = gaps[0]
        missing = next(index for index in range(first.kept) if index not in first.where)
        warnings.append(
            f"{len(gaps)} problem(s) have indices that are not contiguous; the first is {shown(first.id)} of "
            f"{first.benchmark}, which lacks sample_index {missing}: is a shard missing?"
        )
    counts = {problem.kept for problem in reader.problems.values() if problem.kept}
    if len(counts) > 1:
        warnings.append(
            f"problems hold unequal numbers of samples: smallest n = {min(counts)}, largest n = {max(counts)}; "
            "k can be at most the smallest"
        )
    return warnings


@dataclass(slots=True)
class _Seen:
    """What was read of one problem so far: its reference answer, its prompt, and the place of each index."""

    benchmark: str
    id: str
    answer: str | int | float | None
    answer_at: str
    prompt: str | None = None
    prompt_at: str = ""
    where: dict[int, tuple[Path, int]] = field(default_factory=dict)
    kept: int = 0


class SamplesReader:
    """Reads and checks rows one after the other; ``rows`` are those kept, ``found`` the benchmarks in each file."""

    def __init__(self, *, benchmarks: Collection[str] | None, keep_extra: bool) -> None:
        self.benchmarks = benchmarks
        self.keep_extra = keep_extra
        self.rows: list[Sample] = []
        self.warnings: list[str] = []
        self.found: dict[Path, set[str]] = {}
        self.problems: dict[tuple[str, str], _Seen] = {}
        self.order: dict[str, tuple[Any, ...]] = {}
        self.spelling: dict[str, tuple[str, str]] = {}
        self.composed: dict[tuple[str, str], tuple[str, str]] = {}

    def read(self, file: Path, *, may_be_empty: bool = False) -> None:
        """Reads a file; raises DataError with file:line, or with the file alone if it has no row."""
        names: set[str] = set()
        self.found[file] = names
        is_ours = file.name.endswith((".jsonl", ".jsonl.gz"))
        for number, line, ends_in_newline in read_lines(file):
            try:
                row = parse_row(line, f"{file}:{number}", may_be_torn=is_ours and not ends_in_newline)
            except DataError as error:
                if names or is_ours:
                    raise
                _refuse_result(file)
                raise DataError(f"{error}{_IMPORT}") from None
            if row is None:
                torn = "the last line is cut off (a crash while writing?) and was dropped"
                self.warnings.append(f"{file}:{number}: {torn}")
                break
            if not names and (lack := _lack(row)):
                _refuse_result(file)
                refuse(f"{file}:{number}", f"{lack}{_IMPORT}")
            sample = self.check(row, file, number)
            names.add(sample.benchmark)
            if self.benchmarks is None or sample.benchmark in self.benchmarks:
                self.rows.append(sample)
                self.problems[sample.benchmark, sample.id].kept += 1
        if not names and not may_be_empty:
            raise DataError(f"{file}: no samples")

    def keep_first(self, num: int) -> None:
        """Keeps ``num`` rows of every problem, of sorted rows; raises UsageError for a problem that has fewer."""
        for one in self.problems.values():
            if 0 < one.kept < num:
                raise UsageError(
                    f"--n {num}: {shown(one.id)} of {one.benchmark} has n = {one.kept} samples; choose a smaller "
                    "--n, or draw more"
                )
            one.kept = min(one.kept, num)
        groups = groupby(self.rows, key=lambda row: (row.benchmark, row.id))
        self.rows = [row for _, rows in groups for row in islice(rows, num)]
        for one in self.problems.values():
            one.where = dict(sorted(one.where.items())[: one.kept])

    def check(self, row: dict[str, Any], file: Path, number: int) -> Sample:
        """The row as a Sample, after comparing it with every row before it; raises DataError."""
        at = f"{file}:{number}"
        _check_fields(row, at)
        answer, prompt, index = row["answer"], row.get("prompt"), row["sample_index"]
        seen = self.problems.get((row["benchmark"], row["id"]))
        if seen is None:
            seen = self.add_problem(row, file, at)
        # Types are compared too: to a grader "1" and 1 may differ, and 1 == 1.0 would hide it.
        if answer != seen.answer or type(answer) is not type(seen.answer):
            refuse(at, f"answer {shown(answer)} contradicts {shown(seen.answer)} of the same id at {seen.answer_at}")
        if prompt is not None and seen.prompt is None:
            seen.prompt, seen.prompt_at = prompt, at
        if prompt is not None and prompt != seen.prompt:
            refuse(at, f"prompt {shown(prompt)} contradicts {shown(seen.prompt)} of the same id at {seen.prompt_at}")
        first = seen.where.setdefault(index, (file, number))
        if first != (file, number):
            refuse(
                at,
                f"sample_index {index} of {shown(seen.id)} was already read at {first[0]}:{first[1]}; "
                f"{_how_to_choose(first[0], file)}",
            )
        extra = {key: value for key, value in row.items() if key not in FIELDS} if self.keep_extra else None
        # The strings of the problem, not of the row: one copy of a prompt for all of its samples.
        return Sample(
            seen.benchmark,
            seen.id,
            index,
            row["completion"],
            seen.answer,
            seen.prompt if prompt is not None else None,
            row.get("finish_reason"),
            row.get("correct"),
            extra or NO_EXTRA,
        )

    def add_problem(self, row: dict[str, Any], file: Path, at: str) -> _Seen:
        benchmark, id = row["benchmark"], row["id"]
        if row["answer"] is None and row.get("correct") is None:
            # Of code there are tests in place of an answer: in the row, beside its file, or in the benchmark.
            kind = Kind.recorded_in(row) or kind_of(benchmark)
            if "tests" not in row and kind.grader != "code" and problems_beside(file) is None:
                refuse(at, "answer is null, which only code may have; add the `answer`, or for code the `tests`")
        _check_name(benchmark, "benchmark", at)
        _check_name(id, "id", at)
        key = _composed(_composed(benchmark).casefold())
        spelling, first_at = self.spelling.setdefault(key, (benchmark, at))
        if spelling != benchmark:
            how = "case" if _composed(benchmark) != _composed(spelling) else "Unicode form"
            refuse(at, f"benchmark {shown(benchmark)} differs only in {how} from {shown(spelling)} at {first_at}")
        first_id, first_at = self.composed.setdefault((benchmark, _composed(id)), (id, at))
        if first_id != id:
            refuse(at, f"id {shown(id)} is {shown(first_id)} at {first_at} in another Unicode form; write one of them")
        self.order.setdefault(id, _natural_order(id))
        seen = self.problems[benchmark, id] = _Seen(spelling, id, row["answer"], at)
        return seen


def _how_to_choose(first: Path, second: Path) -> str:
    """What to type in place of two files that hold the same sample."""
    if first == second:
        return "each (benchmark, id, sample_index) may occur once"
    runs = [file.parents[2] if file.parent.parent.name in ("samples", "graded") else None for file in (first, second)]
    if runs[0] is not None and runs[0] == runs[1]:
        folders = sorted(str(path) for path in (runs[0] / "samples").glob("*") if path.is_dir())
        return f"the run has samples of several settings or steps; name one folder of {', '.join(folders)}"
    command = shlex.join(["quatro", "eval", "compare", str(first), str(second)])
    return (
        f"these are two sets of samples of the same problems: name one of them, or compare: `{command}`; of several "
        "seeds of one model, `quatro eval passk` and `ucc` show means with --over-seeds"
    )


def _refuse_result(file: Path) -> None:
    """Raises DataError if ``file``, which holds no samples, is a result of quatro: what it has, and what shows it."""
    said = read_or_empty(file) if file.suffix == ".json" else {}
    if {"schema", "metric", "rows"} <= said.keys():
        table = shlex.join(["quatro", "table", str(file)])
        raise DataError(f"{file} is a result ({shown(said['metric'])}) and holds no samples; `{table}` shows it")


def _check_fields(row: dict[str, Any], at: str) -> None:
    if lack := _lack(row):
        refuse(at, lack)
    for name in ("benchmark", "id", "completion"):
        if type(row[name]) is not str:
            refuse(at, f"{name} must be a string, found {shown(row[name])}")
    index = row["sample_index"]
    if type(index) is not int or index < 0:  # type() because a bool is an int to isinstance
        refuse(at, f"sample_index must be an integer of at least 0, found {shown(index)}")
    answer = row["answer"]
    if type(answer) not in (str, int, float, type(None)):
        refuse(at, f"answer must be a string or a number, found {shown(answer)}")
    if type(row.get("prompt")) not in (str, type(None)):
        refuse(at, f"prompt must be a string, found {shown(row['prompt'])}")
    if type(row.get("correct")) not in (bool, type(None)):
        refuse(at, f"correct must be true or false, found {shown(row['correct'])}")
    if row.get("finish_reason") not in ("stop", "length", None):
        refuse(at, f"finish_reason must be 'stop' or 'length', found {shown(row['finish_reason'])}")


def _lack(row: dict[str, Any]) -> str:
    """The first column that a sample needs and ``row`` has not, in words; empty if there is none."""
    name = next((name for name in REQUIRED_FIELDS if name not in row), None)
    return "" if name is None else f"has no {name!r} (a sample needs {', '.join(REQUIRED_FIELDS)})"


def _check_name(name: str, which: str, at: str) -> None:
    if not name:
        refuse(at, f"{which} is empty")
    if name != name.strip() or _ZERO_WIDTH.search(name):
        refuse(at, f"{which} {shown(name)} has white space at an end or a zero-width character; take it out")


def _composed(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _natural_order(id: str) -> tuple[Any, ...]:
    """A sort key that puts `p9` before `p10`: digits compare by value (without int(), which refuses 4,300 of them)."""
    parts = _DIGITS.split(id)
    digits = [part.lstrip("0") for part in parts[1::2]]
    return tuple((text, len(value), value) for text, value in zip(parts[::2], [*digits, ""], strict=True)), id
