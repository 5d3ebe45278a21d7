"""What to type for a file of another tool: which tool wrote it, and the `quatro eval import` that reads it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.benchmarks.catalogue import CODE_BENCHMARKS
from evals.errors import QuatroError
from evals.samples.layouts import TOOLS, Fields, Layout, is_list, prompt_text

# What columns are called elsewhere, by what they hold.
_ELSEWHERE = {
    "prompt": ("problem", "question", "query", "input", "instruction"),
    "completion": ("output", "response", "generation", "generated_text", "prediction", "model_output", "text"),
    "answer": ("gold", "target", "reference", "reference_answer", "ground_truth", "expected", "label", "solution"),
}
# Endings of files that hold no JSON lines, whatever is in them.
_TOOL_OF_ENDING = {".csv": "csv", ".csv.gz": "csv", ".tsv": "csv", ".parquet": "parquet", ".eval": "inspect"}
# Keys by which a line of JSON is known to be another tool's.
_KEYS = {
    "lm-eval": [{"doc", "resps"}],
    "evalplus": [{"task_id", "solution"}, {"task_id", "completion"}],
    "verl": [{"input", "output"}],
    "inspect": [{"eval", "samples"}],
}


def import_command(tool: str, file: Path, options: Sequence[str], out: Path) -> str:
    """The command that imports ``file``, as a shell takes it."""
    return shlex.join(["quatro", "eval", "import", "--from", tool, str(file), *options, "-o", str(out)])


def is_code(tool: str, benchmark: str | None, fields: Fields) -> bool:
    """Whether a sample of these ``fields`` needs no reference answer, because there are tests."""
    return tool == "evalplus" or has_tests(fields) or (benchmark or "").lower().startswith(CODE_BENCHMARKS)


def has_tests(fields: Fields) -> bool:
    """Whether a sample of these ``fields`` is a program with its own tests."""
    return fields.get("answer") is None and fields.get("extra", {}).get("tests") is not None


def lacking(
    layout: Layout, row: Fields, fields: Fields, name: str | None, given: Collection[str]
) -> dict[str, list[str]]:
    """What ``fields`` of a ``row`` lack to be a sample of benchmark ``name``, with the option that says where it is.

    ``given`` are the columns that were named.
    """
    found: dict[str, list[str]] = {}
    if name is None:
        found["benchmark"] = ["--benchmark", "NAME"]
    if fields.get("id") is None and prompt_text(fields.get("prompt")) is None:
        found["id or prompt"] = _column("prompt" if _elsewhere("prompt", row) else "id", row)
    if fields.get("completion") is None:
        found["completion"] = _column("completion", row)
    if fields.get("answer") is None and "correct" not in given and not is_code(layout.tool, name, fields):
        found["reference answer" + (" in this row" if "answer" in row else "")] = _column("answer", row)
    return found


def refusal_by_name(file: Path) -> str:
    """Why a file is no samples file, by the ending of its name, and what to type; empty for other endings."""
    tool = next((tool for ending, tool in _TOOL_OF_ENDING.items() if file.name.lower().endswith(ending)), None)
    if file.suffix.lower() in (".xlsx", ".xls", ".ods"):
        command = import_command("csv", file.with_suffix(".csv"), [], Path(f"{file.stem}-samples.jsonl"))
        return f"a spreadsheet; save it as CSV (in Excel: `CSV UTF-8`), then `{command}`"
    if tool == "parquet" and TOOLS["lighteval"].default_benchmark(file.name):
        tool = "lighteval"
    return f"no samples file (.jsonl); import it first: `{_whole_command(tool, file)}`" if tool is not None else ""


def import_hint(file: Path, row: Mapping[str, Any]) -> str:
    """What to add to the refusal of a ``row`` that is no sample; it begins with a semicolon."""
    tool = next((tool for tool, known in _KEYS.items() if any(keys <= row.keys() for keys in known)), "jsonl")
    return f"; if another program wrote it: `{_whole_command(tool, file)}`"


def document_hint(file: Path) -> str:
    """`import_hint` of a `.json` file that is no JSON lines: a list of rows, or else a log."""
    keys = () if is_list(file.read_bytes()[:1000]) else _KEYS["inspect"][0]
    return import_hint(file, dict.fromkeys(keys))


def _whole_command(tool: str, file: Path) -> str:
    """The command with every option that the first row of ``file`` asks for."""
    layout, options = TOOLS[tool], []
    try:
        _, row = next(layout.rows(file))
        fields = layout.read(row, str(file))
        named = fields.get("benchmark")
        name = named if isinstance(named, str) and named else layout.default_benchmark(file.name)
        options = [word for words in lacking(layout, row, fields, name, ()).values() for word in words]
    except (QuatroError, StopIteration):  # the import says what is wrong
        pass
    stem = file.name.removesuffix(".gz").rpartition(".")[0] or file.name
    return import_command(tool, file, options, Path(f"{stem}-samples.jsonl"))


def _elsewhere(name: str, row: Fields) -> str | None:
    return next((key for key in row if key.lower() in _ELSEWHERE.get(name, ())), None)


def _column(name: str, row: Fields) -> list[str]:
    return ["--column", f"{name}={_elsewhere(name, row) or 'FIELD'}"]
