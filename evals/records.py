"""Samples files: strict reading with file:line errors, and appending that survives a crash.

One JSON object a line, described by `Sample`. A reader skips nothing silently: whatever could change a number
(a duplicate, a second reference answer, a misspelt benchmark) is an error that names the line, and what is merely odd
(a missing index, a torn last line) is a warning in `Samples.warnings` for the caller to print.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn

from evals.errors import DataError, LockedError, UsageError

FinishReason = Literal["stop", "length"]

# Bounds the memory a hostile file can take; the longest honest completion is thousands of times shorter.
MAX_LINE_BYTES = 64 * 2**20
CODE_BENCHMARKS = ("humaneval", "mbpp", "apps")
FIELDS = ("benchmark", "id", "sample_index", "prompt", "completion", "answer", "finish_reason", "correct")
REQUIRED_FIELDS = ("benchmark", "id", "sample_index", "completion", "answer")

_NO_EXTRA: Mapping[str, Any] = MappingProxyType({})
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
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


@dataclass(frozen=True)
class Samples:
    """Rows sorted by benchmark, id (numbers inside an id by value) and index, so that file order changes no result."""

    rows: Sequence[Sample]
    files: Sequence[Path]
    warnings: Sequence[str] = ()

    def problems(self) -> list[Problem]:
        groups = groupby(self.rows, key=lambda row: (row.benchmark, row.id))
        return [Problem(benchmark, id, list(rows)) for (benchmark, id), rows in groups]


def read_samples(
    paths: Sequence[str | Path], *, benchmarks: Collection[str] | None = None, keep_extra: bool = True
) -> Samples:
    """Samples of the given `.jsonl`/`.jsonl.gz` files and run directories (their ``samples/**``).

    ``benchmarks`` keeps only those. ``keep_extra`` False forgets the unknown keys of a row, which saves memory.

    Raises:
        DataError: a file is missing, unreadable, empty, or a row breaks the contract (`file:line` in the message).
        UsageError: a file is named twice, or holds none of the ``benchmarks`` asked for.
    """
    reader = _Reader(benchmarks=benchmarks, keep_extra=keep_extra)
    for path in map(Path, paths):
        for file in _sample_files(path):
            if file in reader.found:
                raise UsageError(f"{file} is named twice; name each samples file once")
            reader.read(file)
        if benchmarks is not None:
            found = set().union(*(names for file, names in reader.found.items() if file == path or path.is_dir()))
            _refuse_other_benchmarks(str(path), found, benchmarks)
    if benchmarks is not None:
        for name in benchmarks:
            _refuse_other_benchmarks(", ".join(map(str, paths)), set().union(*reader.found.values()), [name])
    reader.rows.sort(key=lambda row: (row.benchmark, reader.order[row.id], row.sample_index))
    return Samples(reader.rows, list(reader.found), reader.warnings + _count_warnings(reader))


def _sample_files(path: Path) -> list[Path]:
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
            f"{where} holds samples of {_shown(sorted(found))}, none of {_shown(sorted(wanted))}; "
            "change -b, or name the files of that benchmark"
        )


def _count_warnings(reader: _Reader) -> list[str]:
    warnings = []
    gaps = [problem for problem in reader.problems.values() if problem.kept and max(problem.where) + 1 != problem.kept]
    if gaps:
        first = gaps[0]
        missing = next(index for index in range(first.kept) if index not in first.where)
        warnings.append(
            f"{len(gaps)} problem(s) have indices that are not contiguous; the first is {_shown(first.id)} of "
            f"{first.benchmark}, which lacks sample_index {missing}: is a shard missing?"
        )
    counts = {problem.kept for problem in reader.problems.values() if problem.kept}
    if len(counts) > 1:
        warnings.append(f"problems hold unequal numbers of samples: smallest n = {min(counts)}, largest {max(counts)}")
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


class _Reader:
    def __init__(self, *, benchmarks: Collection[str] | None, keep_extra: bool) -> None:
        self.benchmarks = benchmarks
        self.keep_extra = keep_extra
        self.rows: list[Sample] = []
        self.warnings: list[str] = []
        self.found: dict[Path, set[str]] = {}
        self.problems: dict[tuple[str, str], _Seen] = {}
        self.order: dict[str, tuple[Any, ...]] = {}
        self.spelling: dict[str, tuple[str, str]] = {}

    def read(self, file: Path) -> None:
        self.found[file] = names = set()
        for number, line, ends_in_newline in _lines(file):
            row = parse_row(line, f"{file}:{number}", may_be_torn=not ends_in_newline)
            if row is None:
                self.warnings.append(_torn_line_warning(file, number))
                break
            sample = self.check(row, file, number)
            names.add(sample.benchmark)
            if self.benchmarks is None or sample.benchmark in self.benchmarks:
                self.rows.append(sample)
                self.problems[sample.benchmark, sample.id].kept += 1
        if not names:
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
            _refuse(at, f"answer {_shown(answer)} contradicts {_shown(seen.answer)} of the same id at {seen.answer_at}")
        if prompt is not None and seen.prompt is None:
            seen.prompt, seen.prompt_at = prompt, at
        if prompt is not None and prompt != seen.prompt:
            _refuse(at, f"prompt {_shown(prompt)} contradicts {_shown(seen.prompt)} of the same id at {seen.prompt_at}")
        first = seen.where.setdefault(index, (file, number))
        if first != (file, number):
            _refuse(
                at,
                f"sample_index {index} of {_shown(seen.id)} was already read at {first[0]}:{first[1]}; each (benchmark, "
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
        spelling, first_at = self.spelling.setdefault(benchmark.casefold(), (benchmark, at))
        if spelling != benchmark:
            _refuse(at, f"benchmark {_shown(benchmark)} differs only in case from {_shown(spelling)} at {first_at}")
        self.order.setdefault(id, _natural_order(id))
        seen = self.problems[benchmark, id] = _Seen(spelling, id, row["answer"], at)
        return seen


def _lines(file: Path) -> Iterator[tuple[int, bytes, bool]]:
    """(line number, line without its end, whether it ended in a newline) of every line that is not blank."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            yield from _split_lines(file, stream)
    except (OSError, EOFError, zlib.error) as error:
        reason = "not a complete gzip file" if file.suffix == ".gz" else "cannot be read"
        raise DataError(f"{file}: {reason} ({getattr(error, 'strerror', None) or error})") from error


def _split_lines(file: Path, stream: Any) -> Iterator[tuple[int, bytes, bool]]:
    # Lines end at b"\n" alone: str.splitlines would also cut at U+2028 inside a string.
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), start=1):
        if len(line) == MAX_LINE_BYTES:
            _refuse(f"{file}:{number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
        if number == 1:
            line = _check_first_bytes(line, f"{file}:1")
        if not line.isspace() and line:
            yield number, line, line.endswith(b"\n")


def _check_first_bytes(line: bytes, at: str) -> bytes:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        _refuse(at, "the file is UTF-16; samples files are UTF-8")
    if line.startswith(b"\x1f\x8b"):
        _refuse(at, "the content is gzip; name the file .jsonl.gz")
    return line.removeprefix(b"\xef\xbb\xbf")


def parse_row(line: bytes, at: str, *, may_be_torn: bool = False) -> dict[str, Any] | None:
    """The JSON object of one line; None when ``may_be_torn`` and the line stops in the middle of its object.

    ``at`` is the `file:line` that starts every message. Refused with DataError: anything but one object, a key
    written twice, NaN and infinities, numbers too long to convert, text that is not UTF-8.
    """
    try:
        row = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        if may_be_torn and error.reason == "unexpected end of data":
            return None
        _refuse(at, f"not UTF-8 text: {error.reason} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            _refuse(at, f"expected one JSON object, found more after column {error.pos} (two writers on one file?)")
        if may_be_torn:
            return None
        _refuse(at, f"not JSON: {error.msg} at column {error.colno}; expected one object a line")
    except RecursionError:
        _refuse(at, "JSON nested too deeply")
    except ValueError as error:
        _refuse(at, str(error))
    if type(row) is not dict:
        _refuse(at, f"expected a JSON object, found {_shown(row)}")
    if b"\\u" in line and _LONE_SURROGATE.search(json.dumps(row, ensure_ascii=False)):
        row = _without_lone_surrogates(row)
    return row


def _without_lone_surrogates(value: Any) -> Any:
    """``value`` with every half of a surrogate pair replaced by U+FFFD, so that no later output can fail on it."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_lone_surrogates(key): _without_lone_surrogates(item) for key, item in value.items()}
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {_shown(twice)} stands twice in one object")
    return row


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {text[:40]} is too large")
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"an integer of {len(text)} digits is too large") from None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON; write null for an unknown number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite_float, parse_int=_integer, parse_constant=_no_constant
)


def _check_fields(row: dict[str, Any], at: str) -> None:
    for name in REQUIRED_FIELDS:
        if name not in row:
            _refuse(at, f"lacks {name!r} (a sample needs {', '.join(REQUIRED_FIELDS)})")
    for name in ("benchmark", "id", "completion"):
        if type(row[name]) is not str:
            _refuse(at, f"{name} must be a string, found {_shown(row[name])}")
    index = row["sample_index"]
    if type(index) is not int or index < 0:  # type() because a bool is an int to isinstance
        _refuse(at, f"sample_index must be an integer of at least 0, found {_shown(index)}")
    answer = row["answer"]
    if answer is None:
        if row.get("correct") is None and not row["benchmark"].lower().startswith(CODE_BENCHMARKS):
            _refuse(at, "answer is null, which only code benchmarks may have")
    elif type(answer) not in (str, int, float):
        _refuse(at, f"answer must be a string or a number, found {_shown(answer)}")
    if type(row.get("prompt")) not in (str, type(None)):
        _refuse(at, f"prompt must be a string, found {_shown(row['prompt'])}")
    if type(row.get("correct")) not in (bool, type(None)):
        _refuse(at, f"correct must be true or false, found {_shown(row['correct'])}")
    if row.get("finish_reason") not in ("stop", "length", None):
        _refuse(at, f"finish_reason must be 'stop' or 'length', found {_shown(row['finish_reason'])}")


def _check_name(name: str, which: str, at: str) -> None:
    if not name:
        _refuse(at, f"{which} is empty")
    if name != name.strip():
        _refuse(at, f"{which} {_shown(name)} has white space at an end")
    if _ZERO_WIDTH.search(name):
        _refuse(at, f"{which} {_shown(name)} holds a zero-width character")


def _natural_order(id: str) -> tuple[Any, ...]:
    """A sort key that puts `p9` before `p10`: digits compare by value (without int(), which refuses 4,300 of them)."""
    parts = _DIGITS.split(id)
    digits = [part.lstrip("0") for part in parts[1::2]]
    return tuple((text, len(value), value) for text, value in zip(parts[::2], [*digits, ""], strict=True)), id


def _shown(value: object) -> str:
    """``value`` for a message: escaped, and cut to a length that a terminal line can hold."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _refuse(at: str, why: str) -> NoReturn:
    raise DataError(f"{at}: {why}")


def _torn_line_warning(file: Path, number: int) -> str:
    return f"{file}:{number}: the last line is cut off (a crash while writing?) and was dropped"
