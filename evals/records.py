"""Samples files: strict reading with file:line errors, and appending that survives a crash.

One JSON object a line, described by `Sample`. A reader skips nothing silently: whatever could change a number
(a duplicate, a second reference answer, a misspelt benchmark) is an error that names the line, and what is merely odd
(a missing index, a torn last line) is a warning in `Samples.warnings` for the caller to print.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

from evals.errors import DataError, LockedError, UsageError
from evals.file_lock import lock_file
from evals.strict_json import parse_row, read_lines, refuse, shown

FinishReason = Literal["stop", "length"]

CODE_BENCHMARKS = ("humaneval", "mbpp", "apps")
FIELDS = ("benchmark", "id", "sample_index", "prompt", "completion", "answer", "finish_reason", "correct")
REQUIRED_FIELDS = ("benchmark", "id", "sample_index", "completion", "answer")

_NO_EXTRA: Mapping[str, Any] = MappingProxyType({})
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
_DIGITS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled response. ``correct`` None means not judged yet; ``extra`` holds every other key of the row."""

    benchmark: str
    id: str
    sample_index: int
    completion: str
    answer: str | int | float | None
    prompt: str | None = None
    finish_reason: FinishReason | None = None
    correct: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _NO_EXTRA)

    def to_json_line(self) -> bytes:
        """The row as UTF-8 JSON with its newline; raises ValueError for a non-finite number in ``extra``."""
        values = {name: getattr(self, name) for name in FIELDS}
        row = {name: value for name, value in values.items() if value is not None or name in REQUIRED_FIELDS}
        row.update(self.extra)
        try:
            return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
        except UnicodeEncodeError:  # half a surrogate pair has no UTF-8 form, but it has a JSON escape
            return json.dumps(row, allow_nan=False).encode("ascii") + b"\n"


class Problem(NamedTuple):
    """All samples of one (benchmark, id), by ascending ``sample_index``."""

    benchmark: str
    id: str
    samples: Sequence[Sample]


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


@dataclass(frozen=True)
class Samples:
    """Rows sorted by benchmark, id (numbers inside an id by value) and index, so that file order changes no result."""

    rows: Sequence[Sample]
    files: Sequence[Path]
    warnings: Sequence[str] = ()

    def problems(self) -> list[Problem]:
        groups = groupby(self.rows, key=lambda row: (row.benchmark, row.id))
        return [Problem(benchmark, id, list(rows)) for (benchmark, id), rows in groups]

    def judged(self) -> list[Judged]:
        """Every problem with its correct completions, as `evals.verdicts.read_judged` left it.

        Raises:
            DataError: a row has no verdict.
        """
        for row in self.rows:
            if row.correct is None:
                raise DataError(
                    f"sample {row.sample_index} of {shown(row.id)} ({row.benchmark}) has no verdict; grade the samples "
                    "with `quatro eval grade`"
                )
        return [
            Judged(benchmark, id, group[0].answer, len(group), [row.completion for row in group if row.correct])
            for benchmark, id, group in self.problems()
        ]

    def of_problem(self, id: str) -> Samples:
        """The samples of the problem called ``id``, in every benchmark that has one.

        Raises:
            UsageError: there is none; similar ids are named.
        """
        chosen = [row for row in self.rows if row.id == id]
        if not chosen:
            ids = list(dict.fromkeys(row.id for row in self.rows))
            close = get_close_matches(id, ids, n=3) or ids[:3]
            raise UsageError(f"no problem {shown(id)} in these samples; there are {len(ids)}, such as {shown(close)}")
        return replace(self, rows=chosen)


def read_samples(
    paths: Sequence[str | Path],
    *,
    benchmarks: Collection[str] | None = None,
    keep_extra: bool = True,
    instead: Mapping[Path, Path] | None = None,
) -> Samples:
    """Samples of the given `.jsonl`/`.jsonl.gz` files and run directories (their ``samples/**``).

    ``benchmarks`` keeps only those, and `Samples.files` the files that hold them. ``keep_extra`` False forgets the
    unknown keys of a row, which saves memory. ``instead`` maps a samples file to the one to be read in its place.

    Raises:
        DataError: a file is missing, unreadable, empty, or a row breaks the contract (`file:line` in the message).
        UsageError: a file is named twice, or holds none of the ``benchmarks`` asked for.
    """
    reader = SamplesReader(benchmarks=benchmarks, keep_extra=keep_extra)
    for path in map(Path, paths):
        files = [(instead or {}).get(file, file) for file in sample_files(path)]
        for file in files:
            if file in reader.found:
                raise UsageError(f"{file} is named twice; name each samples file once")
            reader.read(file)
        if benchmarks is not None:
            _refuse_other_benchmarks(str(path), {name for file in files for name in reader.found[file]}, benchmarks)
    for name in benchmarks or ():
        _refuse_other_benchmarks(
            ", ".join(map(str, paths)), {found for names in reader.found.values() for found in names}, [name]
        )
    reader.rows.sort(key=lambda row: (row.benchmark, reader.order[row.id], row.sample_index))
    files = [file for file, names in reader.found.items() if benchmarks is None or not names.isdisjoint(benchmarks)]
    return Samples(reader.rows, files, reader.warnings + _reader_warnings(reader))


def sample_files(path: Path) -> list[Path]:
    """The samples files that ``path`` names: itself, or those of a run directory or folder.

    Raises:
        DataError: ``path`` does not exist or holds none.
    """
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
        raise DataError(f"{folder}: no samples (no .jsonl or .jsonl.gz file below it)")
    return files


def _refuse_other_benchmarks(where: str, found: set[str], wanted: Collection[str]) -> None:
    if found.isdisjoint(wanted):
        raise UsageError(
            f"{where} holds samples of {shown(sorted(found))}, none of {shown(sorted(wanted))}; "
            "change -b, or name the files of that benchmark"
        )


def _reader_warnings(reader: SamplesReader) -> list[str]:
    warnings = []
    if reader.invisible:
        count, first_at = len(reader.invisible), reader.invisible[0]
        warnings.append(f"{count} id(s) hold an invisible character, first {first_at}: one problem under two ids?")
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


class _Seen:
    """What was read of one problem so far: its reference answer, its prompt, and where each index stands."""

    __slots__ = ("answer", "answer_at", "benchmark", "id", "kept", "prompt", "prompt_at", "where")

    def __init__(self, benchmark: str, id: str, answer: str | int | float | None, answer_at: str) -> None:
        self.benchmark = benchmark
        self.id = id
        self.answer = answer
        self.answer_at = answer_at
        self.prompt: str | None = None
        self.prompt_at = ""
        self.where: dict[int, tuple[Path, int]] = {}
        self.kept = 0


class SamplesReader:
    """Reads and judges rows one after the other; ``rows`` are those kept, ``found`` the benchmarks in each file."""

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
        self.invisible: list[str] = []

    def read(self, file: Path, *, may_be_empty: bool = False) -> None:
        """Takes in a file; raises DataError with file:line, or without where there is no row at all."""
        self.found[file] = names = set()
        for number, line, ends_in_newline in read_lines(file):
            row = parse_row(line, f"{file}:{number}", may_be_torn=not ends_in_newline)
            if row is None:
                self.warnings.append(_torn_line_warning(file, number))
                break
            sample = self.check(row, file, number)
            names.add(sample.benchmark)
            if self.benchmarks is None or sample.benchmark in self.benchmarks:
                self.rows.append(sample)
                self.problems[sample.benchmark, sample.id].kept += 1
        if not names and not may_be_empty:
            raise DataError(f"{file}: no samples")

    def check(self, row: dict[str, Any], file: Path, number: int) -> Sample:
        """The row as a Sample, after comparing it with every row before it; raises DataError."""
        at = f"{file}:{number}"
        _check_fields(row, at)
        answer, prompt, index = row["answer"], row.get("prompt"), row["sample_index"]
        seen = self.problems.get((row["benchmark"], row["id"]))
        if seen is None:
            seen = self.add_problem(row, at)
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
                f"sample_index {index} of {shown(seen.id)} was already read at {first[0]}:{first[1]}; each (benchmark, "
                "id, sample_index) may stand once (two tags of one run? name the files of one)",
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
            extra or _NO_EXTRA,
        )

    def add_problem(self, row: dict[str, Any], at: str) -> _Seen:
        benchmark, id = row["benchmark"], row["id"]
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
        # Legal and escaped wherever it is printed, but to the eye it is another id.
        if not id.isascii() and any(unicodedata.category(character) == "Cf" for character in id):
            self.invisible.append(f"{shown(id)} at {at}")
        self.order.setdefault(id, _natural_order(id))
        seen = self.problems[benchmark, id] = _Seen(spelling, id, row["answer"], at)
        return seen


def _check_fields(row: dict[str, Any], at: str) -> None:
    for name in REQUIRED_FIELDS:
        if name not in row:
            refuse(at, f"lacks {name!r} (a sample needs {', '.join(REQUIRED_FIELDS)})")
    for name in ("benchmark", "id", "completion"):
        if type(row[name]) is not str:
            refuse(at, f"{name} must be a string, found {shown(row[name])}")
    index = row["sample_index"]
    if type(index) is not int or index < 0:  # type() because a bool is an int to isinstance
        refuse(at, f"sample_index must be an integer of at least 0, found {shown(index)}")
    answer = row["answer"]
    if answer is None:
        if row.get("correct") is None and not row["benchmark"].lower().startswith(CODE_BENCHMARKS):
            refuse(at, "answer is null, which only code benchmarks may have")
    elif type(answer) not in (str, int, float):
        refuse(at, f"answer must be a string or a number, found {shown(answer)}")
    if type(row.get("prompt")) not in (str, type(None)):
        refuse(at, f"prompt must be a string, found {shown(row['prompt'])}")
    if type(row.get("correct")) not in (bool, type(None)):
        refuse(at, f"correct must be true or false, found {shown(row['correct'])}")
    if row.get("finish_reason") not in ("stop", "length", None):
        refuse(at, f"finish_reason must be 'stop' or 'length', found {shown(row['finish_reason'])}")


def _check_name(name: str, which: str, at: str) -> None:
    if not name:
        refuse(at, f"{which} is empty")
    if name != name.strip():
        refuse(at, f"{which} {shown(name)} has white space at an end")
    if _ZERO_WIDTH.search(name):
        refuse(at, f"{which} {shown(name)} holds a zero-width character")


def _composed(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _natural_order(id: str) -> tuple[Any, ...]:
    """A sort key that puts `p9` before `p10`: digits compare by value (without int(), which refuses 4,300 of them)."""
    parts = _DIGITS.split(id)
    digits = [part.lstrip("0") for part in parts[1::2]]
    return tuple((text, len(value), value) for text, value in zip(parts[::2], [*digits, ""], strict=True)), id


def _torn_line_warning(file: Path, number: int) -> str:
    return f"{file}:{number}: the last line is cut off (a crash while writing?) and was dropped"


class SampleWriter:
    """Appends rows to one `.jsonl` file; what is already there is in ``present``, so that sampling draws the rest.

    Opening takes a lock on the file, checks every row in it as `read_samples` would, and cuts off a last line torn by
    a crash (named in ``warnings``). Each `append` reaches the disk whole, or is taken back before OSError is raised.

    Raises:
        DataError: a row of the existing file breaks the contract.
        LockedError: another process is writing this file.
        MissingError: its file system has no locks.
        UsageError: the name does not end in `.jsonl` (a gzip file cannot be mended after a crash).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.suffix != ".jsonl":
            raise UsageError(f"{self.path}: samples are appended to a .jsonl file; compress it when it is complete")
        self.warnings: list[str] = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        try:
            self._lock()
            self._size = self._mend_tail()
            reader = SamplesReader(benchmarks=None, keep_extra=False)
            if self._size:
                reader.read(self.path, may_be_empty=True)
        except BaseException:
            self._file.close()
            raise
        self.present = {(sample.id, sample.sample_index) for sample in reader.rows}

    def _lock(self) -> None:
        try:
            lock_file(self._file.fileno(), self.path, instead="-o DIR")
        except BlockingIOError:
            raise LockedError(f"{self.path}: another process is writing this file; wait for it to end") from None

    def _mend_tail(self) -> int:
        """Ends the last line in a newline, or removes it if it is torn; returns the size in bytes afterwards."""
        size, number, tail = 0, 0, b""
        with self.path.open("rb") as stream:
            for tail in stream:
                number += 1
                size += len(tail)
        if not tail or tail.endswith(b"\n"):
            return size
        if tail.strip() and parse_row(tail, f"{self.path}:{number}", may_be_torn=True) is not None:
            return size + self._write(b"\n", size)
        self._file.truncate(size - len(tail))
        self.warnings.append(_torn_line_warning(self.path, number))
        return size - len(tail)

    def append(self, samples: Iterable[Sample]) -> None:
        """Appends the rows (usually all of one problem) and waits until the disk has them."""
        rows = list(samples)
        keys = [(sample.id, sample.sample_index) for sample in rows]
        twice = [key for key in keys if key in self.present or keys.count(key) > 1]
        if twice:
            raise ValueError(f"sample {twice[0]} stands in {self.path} already; draw only what `present` lacks")
        self._size += self._write(b"".join(sample.to_json_line() for sample in rows), self._size)
        self.present.update(keys)

    def _write(self, data: bytes, size: int) -> int:
        rest = memoryview(data)
        try:
            while rest:  # a raw write may take only a part, near a full disk or a file-size limit
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        return len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
