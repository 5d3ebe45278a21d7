"""Converting samples of other tools: lm-evaluation-harness, evalplus, verl, and tables with named columns.

    tool      written by                               completion            answer       id           benchmark
    lm-eval   --log_samples, samples_TASK_TIME.jsonl   resps, every repeat   target       doc_id       TASK
    evalplus  evalplus.codegen, samples.jsonl          solution, completion  null (code)  task_id      of task_id
    verl      rollout_data_dir, validation_data_dir    output                gts          of input     data_source
    parquet,  anyone                                   completion            answer       id           benchmark
    jsonl

Parquet of verl's main_generation needs no names: `responses`, `reward_model.ground_truth`, `extra_info.index` and
`data_source` stand for the last four. verl's dumps carry no ids: problems are told apart by their `input`.

Sample indices count the samples of a problem in file order. A tool's own scores are kept under `source_scores` but
not used, since graders disagree. ``columns={"correct": FIELD}`` takes one of them as the grade.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import DataError, UsageError
from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.files.tabular import parquet_rows
from evals.files.whole import write_whole
from evals.samples.reading import SamplesReader
from evals.samples.types import FIELDS, Sample

Fields = dict[str, Any]

_LM_EVAL_NAME = re.compile(r"samples_(?P<task>.+?)(_\d{4}-\d{2}-\d{2}T[0-9.:-]+)?\.jsonl(\.gz)?")
_EVALPLUS_BENCHMARKS = {"HumanEval": "humaneval", "Mbpp": "mbpp"}


class Imported(NamedTuple):
    """What was imported. The caller prints ``notes``, which say what was left out or made up."""

    path: Path
    num_samples: int
    num_problems: int
    benchmarks: Sequence[str]
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
    columns = dict(columns or {})
    unknown = [name for name in columns if name not in FIELDS]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; a sample has {', '.join(FIELDS)}")
    if benchmark is not None and "benchmark" in columns:
        raise UsageError("the benchmark is given twice; leave out --benchmark or --column benchmark=")
    if out.suffix != ".jsonl":
        raise UsageError(f"{out}: samples are written to a .jsonl file")
    if out.exists():
        raise UsageError(f"{out} exists; name another file, or delete it")
    layout = TOOLS[tool]
    conversion = _Conversion(file, layout, benchmark, columns, answer_after)
    rows = parquet_rows(file) if tool == "parquet" else _jsonl_rows(file)
    write_whole(out, (sample.to_json_line() for sample in conversion.samples(rows)))
    return Imported(out, conversion.num_samples, len(conversion.count_of), sorted(conversion.names), conversion.notes())


@dataclass(frozen=True)
class Layout:
    """How one tool writes a row: the keys that it must have, and the function that reads it.

    ``read`` may return lists, all of one problem. ``default_benchmark`` is made from the file's name.
    """

    tool: str
    required: tuple[tuple[str, ...], ...]
    read: Callable[[Fields, str], Fields]
    default_benchmark: Callable[[str], str | None] = lambda name: None


class _Conversion:
    """Turns rows into samples, and remembers what must be the same for all rows of a problem or of the file."""

    def __init__(
        self, file: Path, layout: Layout, benchmark: str | None, columns: Mapping[str, str], answer_after: str
    ) -> None:
        self.file = file
        self.layout = layout
        self.columns = columns
        self.benchmark = benchmark
        self.answer_after = answer_after
        self.default_benchmark = layout.default_benchmark(file.name)
        # The reader of samples files checks every row, so that nothing is written that it would refuse.
        self.reader = SamplesReader(benchmarks=None, keep_extra=True)
        self.count_of: dict[tuple[str, str], int] = {}
        self.id_of_prompt: dict[tuple[str, str], str] = {}
        self.filter_of: dict[str, str] = {}
        self.step: Any = None
        self.names: set[str] = set()
        self.num_samples = 0
        self.num_other_filters = 0

    def samples(self, rows: Iterator[tuple[int, Fields]]) -> Iterator[Sample]:
        for number, row in rows:
            at = f"{self.file}:{number}"
            for fields in self.expand(row, at):
                sample = self.reader.check(fields, self.file, number)
                self.num_samples += 1
                self.names.add(sample.benchmark)
                yield sample
        if not self.num_samples:
            raise DataError(f"{self.file}: no samples")

    def expand(self, row: Fields, at: str) -> Iterator[Fields]:
        """The samples that one row of the tool holds."""
        for names in self.layout.required:
            if not any(name in row for name in names) and not (set(self.columns) >= {"completion", "answer"}):
                refuse(
                    at,
                    f"not a row of {self.layout.tool}: it has no {' or '.join(map(repr, names))}; found the keys "
                    f"{_keys(row)}. Was --from {self.layout.tool} meant? Else name fields with --column NAME=FIELD",
                )
        fields = self.layout.read(row, at)
        fields.update({name: _field(row, path, name, at) for name, path in self.columns.items()})
        if self.is_other_filter(row, fields):
            return
        self.check_step(row, at)
        name = self.benchmark or fields.get("benchmark") or self.default_benchmark
        if name is None:
            raise UsageError(f"{at}: the benchmark is unknown; name it with --benchmark")
        completions = fields["completion"] if type(fields.get("completion")) is list else [fields.get("completion")]
        prompt = _prompt_text(fields.get("prompt"))
        id = self.id(fields.get("id"), str(name), prompt, at)
        answer = self.answer(fields.get("answer"), at)
        for position, completion in enumerate(completions):
            sample: Fields = {"benchmark": name, "id": id, "completion": completion, "answer": answer}
            index = _at(fields.get("sample_index"), position)
            seen = self.count_of[str(name), id] = self.count_of.get((str(name), id), -1) + 1
            sample["sample_index"] = seen if index is None else index
            if prompt is not None:
                sample["prompt"] = prompt
            if fields.get("finish_reason") is not None:
                sample["finish_reason"] = _at(fields["finish_reason"], position)
            if "correct" in self.columns:
                sample["correct"] = _grade(_at(fields["correct"], position), self.columns["correct"], at)
            elif answer is None and not self.is_code(str(name)):
                refuse(
                    at,
                    "has no reference answer; name one with --column answer=FIELD, or take the tool's grade with "
                    f"--column correct=FIELD; found the keys {_keys(row)}",
                )
            yield {**fields.get("extra", {}), **sample}

    def answer(self, given: Any, at: str) -> str | int | float | None:
        if given is not None and type(given) not in (str, int, float):
            refuse(at, f"answer must be a string or a number, found {shown(given)}; name it: --column answer=FIELD")
        if not self.answer_after or given is None:
            return given
        _, mark, answer = str(given).rpartition(self.answer_after)
        if not mark:
            refuse(at, f"the answer {shown(given)} holds no {shown(self.answer_after)}; change --answer-after")
        return answer.strip()

    def id(self, given: Any, benchmark: str, prompt: str | None, at: str) -> str:
        """The row's id; rows without one get the number of their prompt in order of appearance."""
        if given is not None:
            if type(given) not in (str, int):
                refuse(at, f"the id must be a string or an integer, found {shown(given)}")
            return str(given)
        if prompt is None:
            refuse(at, "has neither an id nor a prompt to tell problems apart; name one: --column id=FIELD")
        return self.id_of_prompt.setdefault((benchmark, prompt), str(len(self.id_of_prompt)))

    def is_other_filter(self, row: Fields, fields: Fields) -> bool:
        """Whether the row repeats another: lm-eval writes a row for each filter of a task, with the same responses."""
        if self.layout.tool != "lm-eval" or "filter" not in row:
            return False
        first = self.filter_of.setdefault(str(fields.get("id")), str(row["filter"]))
        is_other = first != str(row["filter"])
        self.num_other_filters += is_other
        return is_other

    def check_step(self, row: Fields, at: str) -> None:
        if self.layout.tool != "verl" or "step" not in row:
            return
        if self.step is None:
            self.step = row["step"]
        if row["step"] != self.step:
            refuse(
                at,
                f"step {shown(row['step'])} after {shown(self.step)}: other weights; import one file for each step",
            )

    def is_code(self, benchmark: str) -> bool:
        return self.layout.tool == "evalplus" or benchmark.lower().startswith(("humaneval", "mbpp", "apps"))

    def notes(self) -> list[str]:
        notes = []
        if self.num_other_filters:
            notes.append(f"{self.num_other_filters} rows were left out: they repeat responses under another filter")
        if self.id_of_prompt:
            notes.append(f"ids number the {len(self.id_of_prompt)} different prompts in order of appearance")
        return notes


def _lm_eval(row: Fields, at: str) -> Fields:
    answer = row.get("target")
    document = row.get("doc")
    if type(answer) not in (str, int, float) and isinstance(document, dict):
        answer = next((document[name] for name in ("answer", "gold", "target") if name in document), answer)
    metrics = row.get("metrics")
    scores = {name: row[name] for name in metrics if name in row} if isinstance(metrics, list) else {}
    return {
        "id": row.get("doc_id"),
        "completion": _lm_eval_texts(row, at),
        "answer": answer,
        "prompt": _lm_eval_prompt(row.get("arguments")),
        "extra": {"source_scores": scores} if scores else {},
    }


def _lm_eval_texts(row: Fields, at: str) -> list[str]:
    """Responses before any filter: `resps` is [[text, ...]], one inner list a request; a filter keeps answers only."""
    found = row.get("resps", row.get("filtered_resps"))
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    if not isinstance(found, list) or not found or any(type(text) is not str for text in found):
        refuse(
            at, f"resps must hold the texts of one request, found {shown(found)}; multiple choice tasks have no samples"
        )
    return found


def _lm_eval_prompt(arguments: Any) -> str | None:
    """`arguments` is [[prompt, settings]] or {"gen_args_0": {"arg_0": prompt, ...}}, by version."""
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else arguments
    while isinstance(first, list) and first:
        first = first[0]
    if isinstance(first, dict):
        first = first.get("arg_0")
        first = first[0] if isinstance(first, list) and first else first
    return first if type(first) is str else None


def _lm_eval_task(name: str) -> str | None:
    match = _LM_EVAL_NAME.fullmatch(name)
    return match["task"] if match else None


def _evalplus(row: Fields, at: str) -> Fields:
    form = "solution" if row.get("solution") is not None else "completion"
    suite = str(row["task_id"]).partition("/")[0] if "task_id" in row else ""
    return {
        "benchmark": _EVALPLUS_BENCHMARKS.get(suite),
        "id": row.get("task_id"),
        "completion": row.get(form),
        "answer": None,
        # A solution is a whole program; a completion goes on where the prompt ends.
        "extra": {"code": form},
    }


def _verl(row: Fields, at: str) -> Fields:
    known = ("input", "output", "gts", "step", "data_source")
    scores = {name: value for name, value in row.items() if name not in known and type(value) in (bool, int, float)}
    return {
        "benchmark": row.get("data_source"),
        "completion": row.get("output"),
        "answer": row.get("gts"),
        "prompt": row.get("input"),
        "extra": {"source_scores": scores} if scores else {},
    }


def _table(row: Fields, at: str) -> Fields:
    candidates = {
        "benchmark": ("benchmark", "data_source"),
        "id": ("id", "extra_info.index"),
        "sample_index": ("sample_index",),
        "completion": ("completion", "responses"),
        "answer": ("answer", "reward_model.ground_truth"),
        "prompt": ("prompt",),
        "finish_reason": ("finish_reason",),
    }
    fields = {}
    for name, paths in candidates.items():
        found = [value for value in (_look_up(row, path) for path in paths) if value is not None]
        fields[name] = found[0] if found else None
    return fields


TOOLS: dict[str, Layout] = {
    layout.tool: layout
    for layout in (
        Layout("lm-eval", (("doc", "doc_id"), ("resps", "filtered_resps")), _lm_eval, _lm_eval_task),
        Layout("evalplus", (("task_id",), ("solution", "completion")), _evalplus),
        Layout("verl", (("input",), ("output",)), _verl),
        Layout("parquet", (("completion", "responses"),), _table),
        Layout("jsonl", (("completion", "responses"),), _table),
    )
}


def _jsonl_rows(file: Path) -> Iterator[tuple[int, Fields]]:
    for number, line, _ in read_lines(file):
        row = parse_row(line, f"{file}:{number}")
        assert row is not None  # only a reader that allows a torn last line gets None
        yield number, row


def _field(row: Fields, path: str, name: str, at: str) -> Any:
    value = _look_up(row, path)
    if value is None and name != "answer":
        refuse(at, f"has no field {shown(path)} for {name}; found the keys {_keys(row)}")
    return value


def _look_up(row: Any, path: str) -> Any:
    """The value at a field name, or at names joined by dots; None where there is none."""
    if isinstance(row, dict) and path in row:
        return row[path]
    head, dot, rest = path.partition(".")
    return _look_up(row[head], rest) if dot and isinstance(row, dict) and head in row else None


def _at(value: Any, position: int) -> Any:
    """The value of one sample, where a row keeps those of several in a list."""
    return value[position] if isinstance(value, list) and position < len(value) else value


def _grade(value: Any, field: str, at: str) -> bool:
    if value in ("pass", "fail"):  # evalplus
        return bool(value == "pass")
    if type(value) not in (bool, int, float) or value not in (0, 1):
        refuse(
            at,
            f"{field} must say whether the sample is correct (true, false, 0, 1, pass or fail), found {shown(value)}",
        )
    return bool(value)


def _prompt_text(prompt: Any) -> str | None:
    """A prompt as text: chat turns {"role", "content"} are joined by blank lines."""
    if isinstance(prompt, list):
        turns = [turn.get("content") for turn in prompt if isinstance(turn, dict)]
        return "\n\n".join(turn for turn in turns if type(turn) is str) or None
    return prompt if type(prompt) is str else None


def _keys(row: Fields) -> str:
    return ", ".join(shown(key)[1:-1] for key in list(row)[:40]) or "none"
