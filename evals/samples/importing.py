"""Converting samples of other tools, whose layouts stand in `layouts.py`.

Sample indices count the samples of a problem in file order, where the tool has none. Columns that a sample does not
have are kept as they are. A tool's own scores are kept under `source_scores` but not used, since graders disagree:
`quatro eval grade` says how often. ``columns={"correct": FIELD}`` takes one of them as the grade.
"""

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evals.benchmarks.catalogue import CODE_BENCHMARKS, JUDGED_AS, Kind, judged_as
from evals.errors import DataError, UsageError
from evals.files.strict_json import refuse, shown
from evals.files.whole import finite, write_whole
from evals.samples.fields import ID_CHARS, Fields, look_up, prompt_text, score_of
from evals.samples.layouts import TOOLS, Layout
from evals.samples.reading import SamplesReader
from evals.samples.types import FIELDS, Sample

_GSM8K = "####"  # stands between the solution and the answer


class Imported(NamedTuple):
    """What was imported. The caller prints ``notes``, which say what was taken, left out or made up."""

    path: Path
    num_samples: int
    num_problems: int
    notes: Sequence[str]


def import_samples(
    file: Path,
    out: Path,
    *,
    tool: str,
    benchmark: str | None = None,
    columns: Mapping[str, str] | None = None,
    answer_after: str = "",
) -> Imported:
    """Writes the samples of ``file`` to ``out``, whole or not at all.

    ``columns`` names a field for any of `FIELDS`, in place of the tool's own; dots go into objects (`answer=doc.gold`).
    ``answer_after``: the reference answer is what follows the last of these in its field (GSM8K's `####`).

    Raises:
        UsageError: unknown tool or column, ``out`` exists, or no name for the benchmark.
        MissingError: parquet without pyarrow.
        DataError: a row is not of the tool's layout (the keys found are named) or breaks the samples contract.
    """
    if tool not in TOOLS:
        raise UsageError(f"unknown tool {tool!r}; samples are imported from {', '.join(TOOLS)}")
    unknown = [name for name in columns or () if name not in FIELDS]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; a sample has {', '.join(FIELDS)}")
    if benchmark is not None and "benchmark" in (columns or ()):
        raise UsageError("the benchmark is given twice; leave out --benchmark or --column benchmark=")
    if out.suffix != ".jsonl":
        raise UsageError(f"{out}: samples are written to a .jsonl file")
    if out.exists():
        raise UsageError(f"{out} exists; name another file with -o, or delete it (`rm {shlex.quote(str(out))}`)")
    conversion = _Conversion(file, TOOLS[tool], benchmark, columns or {}, answer_after)
    write_whole(out, (sample.to_json_line() for sample in conversion.samples()))
    return Imported(out, conversion.num_of.total(), len(conversion.num_of), conversion.notes())


@dataclass
class _Conversion:
    """Turns rows into samples, and remembers what must be the same for all rows of a problem or of the file."""

    file: Path
    layout: Layout
    benchmark: str | None
    columns: Mapping[str, str]
    answer_after: str
    note: str = ""
    weights: dict[str, Any] = field(default_factory=dict)  # the first model and step
    num_rows: int = 0
    num_taken: int = 0
    told: dict[str, list[int]] = field(default_factory=dict)  # what must be said of rows -> their numbers
    num_of: Counter[tuple[str, str]] = field(default_factory=Counter)  # samples, by benchmark and id
    filter_of: dict[str, str] = field(default_factory=dict)
    prompts_without_id: set[tuple[str, str]] = field(default_factory=set)
    # It checks every row, so that nothing is written that it would refuse.
    reader: SamplesReader = field(default_factory=lambda: SamplesReader(benchmarks=None, keep_extra=True))

    def samples(self) -> Iterator[Sample]:
        for number, row in self.layout.rows(self.file):
            self.num_rows += 1
            for fields in self.expand(row, number):
                yield self.reader.check(fields, self.file, number)
        if not self.num_of:
            raise DataError("; ".join((f"{self.file}: no samples", *self.notes())))

    def expand(self, row: Fields, number: int) -> Iterator[Fields]:
        """The samples that one row of the tool holds."""
        at = f"{self.file}:{number}"
        lacking = self.layout.lacks(row)
        if lacking and not set(self.columns) >= {"completion", "answer"}:
            refuse(
                at,
                f"not a row of {self.layout.tool}: it has no {' or '.join(map(repr, lacking))}; found the keys "
                f"{_keys(row)}. Was --from {self.layout.tool} meant? Else name fields with --column NAME=FIELD",
            )
        fields = self.layout.read(row, at)
        if fields.get("note"):
            self.note = fields["note"]
        if self.is_other_filter(row, fields):
            fields["skipped"] = "repeat responses under another filter"
        for key, lead in (("skipped", "left out: they "), ("remark", "")):
            if key in fields:
                self.told.setdefault(lead + fields[key], []).append(number)
        if "skipped" in fields:
            return
        self.num_taken += 1
        self.check_weights(row, at)
        for column, path in self.columns.items():
            fields[column] = look_up(row, path)
            if fields[column] is None and column != "answer":
                refuse(at, f"has no field {shown(path)} for {column}; found the keys {_keys(row)}")
        if "completion" in self.columns:  # all responses to a problem would stand in each of its samples
            fields["extra"] = {
                key: value for key, value in fields["extra"].items() if key != self.columns["completion"]
            }
        name = self.benchmark or fields.get("benchmark") or self.layout.default_benchmark(self.file.name)
        self.check_whole(row, fields, name, at)
        completions = fields["completion"] if type(fields.get("completion")) is list else [fields.get("completion")]
        prompt = prompt_text(fields.get("prompt"))
        id = self.id(fields.get("id"), str(name), prompt, at)
        answer = self.answer(fields, at)
        judged = judged_as(str(name)) or ({JUDGED_AS: Kind("code", False)._asdict()} if has_tests(fields) else {})
        # As JSON can hold it: not-a-number is null, what JSON does not know (a date) its text.
        extra = json.loads(json.dumps(finite(fields.get("extra", {})), default=str))
        for position, completion in enumerate(completions):
            sample: Fields = {"benchmark": name, "id": id, "completion": completion, "answer": answer}
            index = _at(fields.get("sample_index"), position)
            sample["sample_index"] = self.num_of[str(name), id] if index is None else index
            self.num_of[str(name), id] += 1
            if prompt is not None:
                sample["prompt"] = prompt
            if (reason := _at(fields.get("finish_reason"), position)) is not None:
                sample["finish_reason"] = reason
            if "correct" in fields:
                sample["correct"] = self.grade(fields["correct"], position, len(completions), at)
            yield {**extra, **judged, **sample}
            extra.pop("source_scores", None)  # a score of the row is not one of its other samples

    def check_whole(self, row: Fields, fields: Fields, name: Any, at: str) -> None:
        """Raises UsageError if the benchmark's name is missing, and DataError, which names all of it, if more is."""
        is_code = self.layout.tool == "evalplus" or has_tests(fields) or str(name).lower().startswith(CODE_BENCHMARKS)
        has_answer = fields.get("answer") is not None or "correct" in fields or is_code
        lacks = {
            "benchmark": name is None and "--benchmark NAME",
            "id or prompt": fields.get("id") is None
            and prompt_text(fields.get("prompt")) is None
            and "--column id=FIELD (or prompt=FIELD)",
            "completion": fields.get("completion") is None and "--column completion=FIELD",
            "reference answer": not has_answer
            and "--column answer=FIELD (or take the tool's grade: --column correct=FIELD)",
        }
        missing = {what: option for what, option in lacks.items() if option}
        if not missing:
            return
        words = f"has no {', no '.join(missing)}; found the keys {_keys(row)}; add {', '.join(missing.values())}"
        if list(missing) == ["benchmark"]:
            raise UsageError(f"{at}: {words}")
        refuse(at, words)

    def answer(self, fields: Fields, at: str) -> Any:
        given = fields.get("answer")
        if not self.answer_after and "correct" not in fields and _GSM8K in str(given):
            refuse(
                at,
                f"the answer {shown(given)} is a whole solution as in GSM8K, which no response would equal; add "
                f"--answer-after '{_GSM8K}'",
            )
        if not self.answer_after or given is None:
            return given
        _, mark, answer = str(given).rpartition(self.answer_after)
        if not mark:
            refuse(at, f"the answer {shown(given)} holds no {shown(self.answer_after)}; change --answer-after")
        return answer.strip()

    def grade(self, given: Any, position: int, num: int, at: str) -> bool:
        """The tool's own grade of one of the ``num`` samples in a row."""
        column = self.columns.get("correct", "metadata.quatro.correct")
        if num > 1 and not (isinstance(given, list) and len(given) == num):
            refuse(at, f"{column} is one value for {num} samples, found {shown(given)}; leave --column correct= out")
        value = _at(given, position)
        found = score_of(value, letters=self.layout.tool == "inspect")
        if found not in (0, 1):
            accepted = "true, false, 0, 1, pass or fail"
            refuse(at, f"{column} must say whether the sample is correct ({accepted}), found {shown(value)}")
        return bool(found)

    def id(self, given: Any, benchmark: str, prompt: str | None, at: str) -> str:
        """The row's id; rows without one get a hash of their prompt, so that files of other models agree on it."""
        if given is not None:
            if type(given) not in (str, int):
                refuse(at, f"the id must be a string or an integer, found {shown(given)}")
            return str(given)
        assert prompt is not None  # `check_whole`
        self.prompts_without_id.add((benchmark, prompt))
        return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:ID_CHARS]

    def is_other_filter(self, row: Fields, fields: Fields) -> bool:
        """Whether the row repeats another: lm-eval writes a row for each filter of a task, with the same responses."""
        if self.layout.tool != "lm-eval" or "filter" not in row:
            return False
        return self.filter_of.setdefault(str(fields.get("id")), str(row["filter"])) != str(row["filter"])

    def check_weights(self, row: Fields, at: str) -> None:
        """Raises DataError where samples of another model follow, or those drawn at another step or for training."""
        steps = {"verl": ("step",), "trl": ("step",), "verifiers": ("run.work.type", "run.work.step")}
        for name in ("model", *steps.get(self.layout.tool, ())):
            value = row.get(name)
            first = self.weights.setdefault(name, value)
            if value != first:
                refuse(
                    at,
                    f"{name} {shown(value)} after {shown(first)}: samples of other weights, or drawn for other work; "
                    "write the rows of each to a file of their own first",
                )

    def notes(self) -> list[str]:
        notes = [f"warning: {self.note}"] if self.note else []
        for words, numbers in self.told.items():
            notes.append(f"{len(numbers)} of {self.num_rows} rows {words} (first: {self.file.name}:{numbers[0]})")
        if num := len(self.prompts_without_id):
            notes.append(f"the rows have no ids, so the {num} different prompts got hashes as theirs")
        if self.num_of:
            names = ", ".join(sorted({benchmark for benchmark, _ in self.num_of}))
            each = " to ".join(map(str, sorted({min(self.num_of.values()), max(self.num_of.values())})))
            found = f"{self.num_of.total()} samples of {len(self.num_of)} problems of {names}, {each} of each"
            notes.append(f"{found}, from {self.num_taken} of {self.num_rows} rows")
        return notes


def has_tests(fields: Fields) -> bool:
    """Whether a sample of these ``fields`` is a program with its own tests."""
    return fields.get("answer") is None and fields.get("extra", {}).get("tests") is not None


def _at(value: Any, position: int) -> Any:
    """The value of one sample, where a row keeps those of several in a list."""
    return value[position] if isinstance(value, list) and position < len(value) else value


def _keys(row: Fields) -> str:
    return ", ".join(shown(key)[1:-1] for key in list(row)[:40]) or "none"
