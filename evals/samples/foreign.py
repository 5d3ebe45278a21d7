"""Files of other tools where samples are expected: which tool wrote one, and the import that reads it."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from evals.samples.layouts import TOOLS, is_list

# Endings of files that hold no JSON lines, whatever is in them.
_TOOL_OF_ENDING = {".csv": "csv", ".csv.gz": "csv", ".tsv": "csv", ".parquet": "parquet", ".eval": "inspect"}
# Keys by which a line of JSON is known to be another tool's.
_KEYS = {
    "lm-eval": [{"doc", "resps"}],
    "evalplus": [{"task_id", "solution"}, {"task_id", "completion"}],
    "verl": [{"input", "output"}],
    "inspect": [{"eval", "samples"}],
}


def refusal_by_name(file: Path) -> str:
    """Why a file is no samples file, by the ending of its name, and what to type; empty for other endings."""
    if file.suffix.lower() in (".xlsx", ".xls", ".ods"):
        return f"a spreadsheet; save it as CSV, then {_import('csv', file.with_suffix('.csv'))}"
    tool = next((tool for ending, tool in _TOOL_OF_ENDING.items() if file.name.lower().endswith(ending)), None)
    if tool == "parquet" and TOOLS["lighteval"].default_benchmark(file.name):
        tool = "lighteval"
    return f"no samples file (.jsonl); import it: {_import(tool, file)}" if tool is not None else ""


def import_hint(file: Path, keys: Collection[str]) -> str:
    """What to add to the refusal of a row with ``keys`` that is no sample; it begins with a semicolon."""
    tool = next((tool for tool, known in _KEYS.items() if any(one <= set(keys) for one in known)), "jsonl")
    return f"; if another program wrote it, import it: {_import(tool, file)}"


def document_hint(file: Path) -> str:
    """`import_hint` of a `.json` file that is no JSON lines: a list of rows, or else a log of inspect."""
    return import_hint(file, () if is_list(file.read_bytes()[:1000]) else _KEYS["inspect"][0])


def _import(tool: str, file: Path) -> str:
    stem = file.name.removesuffix(".gz").rpartition(".")[0] or file.name
    words = ["quatro", "eval", "import", "--from", tool, str(file), "-o", f"{stem}-samples.jsonl"]
    return f"`{shlex.join(words)}`"
