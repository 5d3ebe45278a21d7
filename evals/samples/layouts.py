"""How other tools write samples: what a row of each must have, and where its completion, answer and id stand.

`quatro eval import --help` has them as a table. Parquet of verl's main_generation needs no names: `responses`,
`reward_model.ground_truth`, `extra_info.index` and `data_source` are completion, answer, id and benchmark. Checked
against files of lm-evaluation-harness, inspect-ai 0.3.285 and lighteval 0.13.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.files.frames import csv_rows, parquet_rows
from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.samples.inspect_logs import inspect_rows
from evals.samples.types import FIELDS

Fields = dict[str, Any]

# samples_TASK_TIME.jsonl of lm-eval.
_FILE_NAME = re.compile(r"samples_(.+?)(?:_\d{4}-\d{2}-\d{2}T[0-9.:-]+)?\.jsonl(?:\.gz)?")
_EVALPLUS_BENCHMARKS = {"HumanEval": "humaneval", "Mbpp": "mbpp"}
# Columns of a table that say what somebody else thought of a sample.
_SCORES = ("correct", "is_correct", "score", "reward", "acc", "accuracy")
_INSPECT_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_INSPECT_STOPS = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


def _jsonl_rows(file: Path) -> Iterator[tuple[int, Fields]]:
    """The rows of JSON lines, or of a `.json` file that is one list of them."""
    content = file.read_bytes().removeprefix(b"\xef\xbb\xbf") if file.suffix == ".json" and file.is_file() else b""
    if content.lstrip().startswith(b"["):
        document = parse_row(b'{"rows": ' + content + b"}", str(file)) or {}
        if list(document) != ["rows"]:
            refuse(str(file), "expected one JSON list, found more after it")
        for number, one in enumerate(document["rows"], start=1):
            if type(one) is not dict:
                refuse(f"{file}:{number}", f"expected a list of JSON objects, found {shown(one)}")
            yield number, one
        return
    for number, line, _ in read_lines(file):
        row = parse_row(line, f"{file}:{number}")
        assert row is not None  # only a reader that allows a torn last line gets None
        yield number, row


@dataclass(frozen=True)
class Layout:
    """How one tool writes a row: the keys that it must have, and the function that reads it.

    ``read`` may return lists, all of one problem, the reason to leave a row out as `skipped`, and what to say of the
    whole file as `note`. ``default_benchmark`` is made from the file's name, ``rows`` yields (line, row).
    """

    tool: str
    required: tuple[tuple[str, ...], ...]
    read: Callable[[Fields, str], Fields]
    default_benchmark: Callable[[str], str | None] = lambda name: None
    rows: Callable[[Path], Iterator[tuple[int, Fields]]] = _jsonl_rows

    def lacks(self, keys: Collection[str]) -> tuple[str, ...]:
        """The names of which a row with ``keys`` has none and must have one; empty if it has all that it needs."""
        return next((names for names in self.required if not any(name in keys for name in names)), ())


def look_up(row: Any, path: str) -> Any:
    """The value at a field name, or at names, and places in a list, joined by dots; None where there is none."""
    if isinstance(row, list):
        row = {str(place): value for place, value in enumerate(row)}
    if isinstance(row, dict) and path in row:
        return row[path]
    head, dot, rest = path.partition(".")
    return look_up(row[head], rest) if dot and isinstance(row, dict) and head in row else None


def prompt_text(prompt: Any) -> str | None:
    """A prompt as text: chat turns {"role", "content"} are joined by blank lines."""
    if isinstance(prompt, list):
        turns = [turn.get("content") for turn in prompt if isinstance(turn, dict)]
        return "\n\n".join(turn for turn in turns if type(turn) is str) or None
    return prompt if type(prompt) is str else None


def others(row: Mapping[str, Any], taken: set[str]) -> Fields:
    """The columns of ``row`` that are neither ``taken`` nor fields of a sample, with scores as `source_scores`."""
    reserved = {*FIELDS, "outcome", "verdicts", "source_scores"}
    extra = {key: value for key, value in row.items() if key not in reserved | taken | set(_SCORES)}
    given = row.get("source_scores")
    scores = dict(given) if isinstance(given, dict) else {}
    for name in _SCORES:
        if name in row and name not in taken:
            value = score_of(row[name])
            scores[name] = row[name] if value is None else value
    return {**extra, **({"source_scores": scores} if scores else {})}


def score_of(value: Any) -> bool | int | float | None:
    """What somebody else's score says, also as a text (`True`, `0`, `pass`); None where it is neither."""
    if isinstance(value, str):
        words = {"true": True, "false": False, "pass": True, "fail": False}
        if value.strip().lower() in words:
            return words[value.strip().lower()]
        try:
            found = float(value)
        except ValueError:
            return None
        return int(found) if found.is_integer() else found
    return value if type(value) in (bool, int, float) else None


def _lm_eval(row: Fields, at: str) -> Fields:
    answers = (look_up(row, path) for path in ("target", "doc.answer", "doc.gold", "doc.target"))
    # [[prompt, settings]] or {"gen_args_0": {"arg_0": prompt, ...}}, by version.
    prompts = (look_up(row, f"arguments.{path}") for path in ("0.0", "0", "gen_args_0.arg_0.0", "gen_args_0.arg_0"))
    document = row.get("doc")
    metrics = row.get("metrics")
    scores = {name: row[name] for name in metrics if name in row} if isinstance(metrics, list) else {}
    return {
        "id": row.get("doc_id"),
        "completion": _lm_eval_texts(row, at),
        "answer": next((one for one in answers if type(one) in (str, int, float)), None),
        "prompt": next((one for one in prompts if type(one) is str), None),
        "extra": {
            **({"doc": document} if document is not None else {}),
            **({"source_scores": scores} if scores else {}),
        },
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


def _task_in(name: str) -> str | None:
    """The task in a file's name."""
    match = _FILE_NAME.fullmatch(name)
    return match[1] if match else None


def _inspect(row: Fields, at: str) -> Fields:
    note = {"note": row.get("unfinished")}
    if row.get("error"):
        return {**note, "skipped": "ended with an error and have no answer"}
    choices = look_up(row, "output.choices") or []
    if not choices and (completion := look_up(row, "output.completion")):
        choices = [{"message": {"content": completion}}]
    if not isinstance(choices, list) or not choices:
        return {**note, "skipped": "have no output"}
    target = row.get("target")
    scores = {}
    for name, score in (row.get("scores") or {}).items():
        value = score.get("value") if isinstance(score, dict) else None
        value = _INSPECT_VALUES.get(value, value) if isinstance(value, str) else value
        if type(value) in (bool, int, float):
            scores[name] = value
    metadata = row.get("metadata") or {}
    return {
        **note,
        "benchmark": row.get("task"),
        "id": row.get("id"),
        "sample_index": None if len(choices) > 1 or type(row.get("epoch")) is not int else row["epoch"] - 1,
        "completion": [_inspect_text(look_up(choice, "message.content"), at) for choice in choices],
        # Any one of several targets is right for inspect; our graders take one.
        "answer": target[0] if isinstance(target, list) and target else target,
        "prompt": row.get("input"),
        "finish_reason": [_INSPECT_STOPS.get(str(look_up(choice, "stop_reason"))) for choice in choices],
        "extra": {**others(metadata, set()), "model": row.get("model"), "source_scores": scores},
    }


def _inspect_text(content: Any, at: str) -> str:
    """What the model wrote: a text, or parts of which those of type `text` count."""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text")
    if type(content) is not str:
        refuse(at, f"message.content must be a text or a list of parts, found {shown(content)}")
    return content


def _lighteval(row: Fields, at: str) -> Fields:
    """Columns doc, model_response and metric."""
    document, response = row["doc"], row.get("model_response") or {}
    if not isinstance(document, dict) or not isinstance(response, dict):
        refuse(at, f"doc and model_response must be objects, found {shown(document)} and {shown(response)}")
    gold = document.get("gold_index")
    first = gold[0] if isinstance(gold, list) and gold else gold
    choices = document.get("choices") or []
    answer = choices[first] if type(first) is int and 0 <= first < len(choices) else None
    completion, prompt = response.get("text"), document.get("query")
    id, task, scores = document.get("id") or None, document.get("task_name"), row.get("metric")
    extra = {"specific": document["specific"]} if document.get("specific") else {}
    if not isinstance(completion, list) or not completion or any(type(text) is not str for text in completion):
        refuse(at, f"holds no texts of a model, found {shown(completion)}; tasks of log-likelihoods have no samples")
    while isinstance(answer, list) and answer:
        answer = answer[0]
    scores = {name: value for name, value in (scores or {}).items() if type(value) in (bool, int, float)}
    return {
        "benchmark": _lighteval_task(task),
        "id": id,
        "completion": completion,
        "answer": answer,
        "prompt": prompt,
        "extra": {**extra, **({"source_scores": scores} if scores else {})},
    }


def _lighteval_task(task: object) -> str | None:
    """`lighteval|aime24|0` is suite, task and number of examples in the prompt."""
    parts = str(task or "").split("|")
    return (parts[1] if len(parts) > 2 else parts[0]) or None


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


def _table(row: Fields, at: str) -> Fields:
    candidates = {
        "benchmark": ("benchmark", "data_source"),
        "id": ("id", "extra_info.index"),
        "sample_index": ("sample_index",),
        "completion": ("completion", "completions", "responses", "output"),
        "answer": ("answer", "reward_model.ground_truth", "gts"),
        "prompt": ("prompt", "problem", "input"),
        "finish_reason": ("finish_reason",),
    }
    fields: Fields = {}
    taken = set()
    for name, paths in candidates.items():
        found = [(path, value) for path in paths if (value := look_up(row, path)) is not None]
        fields[name] = found[0][1] if found else None
        taken |= {path.partition(".")[0] for path, _ in found[:1]}
    return {**fields, "extra": others(row, taken)}


def _verl(row: Fields, at: str) -> Fields:
    """Its own three columns win over any others with the names that a table has."""
    own = {"completion": "output", "answer": "gts", "prompt": "input"}
    others_of_row = {name: value for name, value in row.items() if name not in own.values()}
    return _table({**others_of_row, **{name: row.get(column) for name, column in own.items()}}, at)


def _csv(row: Fields, at: str) -> Fields:
    """Cells are texts: an empty one is none, and an index is a number."""
    fields = _table({name: cell for name, cell in row.items() if cell}, at)
    index = fields["sample_index"]
    return {**fields, "sample_index": int(index) if str(index).isdecimal() else index}


TOOLS: dict[str, Layout] = {
    layout.tool: layout
    for layout in (
        Layout("lm-eval", (("doc", "doc_id"), ("resps", "filtered_resps")), _lm_eval, _task_in),
        Layout("inspect", (("output",), ("epoch",)), _inspect, rows=inspect_rows),
        Layout("lighteval", (("doc",),), _lighteval, rows=parquet_rows),
        Layout("evalplus", (("task_id",), ("solution", "completion")), _evalplus),
        Layout("verl", (("input",), ("output",)), _verl),
        Layout("parquet", (), _table, rows=parquet_rows),
        Layout("csv", (), _csv, rows=csv_rows),
        Layout("jsonl", (), _table),
    )
}
