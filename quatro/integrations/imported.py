"""Metrics of another trainer as a run to look at: metrics.jsonl, and imported.json in the place of a config.yaml.

Such a folder can be plotted, reported and listed; it cannot be resumed or sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import DataError, UsageError
from evals.files.strict_json import parse_row, read_document, read_lines, refuse, shown
from evals.files.whole import file_digest, json_line, write_bytes, write_json
from quatro.runs.directory import refuse_occupied
from quatro.runs.metrics import IMPORTED
from quatro.runs.status import now

# Trainer -> its name -> ours, where both mean the same; docs/trl.md says where they do not to the last detail.
NAMES: Mapping[str, Mapping[str, str]] = {
    "trl": {
        "reward": "reward/mean",
        "reward_std": "reward/std",
        "entropy": "entropy/token_mean",
        "kl": "kl/reference",
        "clip_ratio/region_mean": "clip_fraction",
        "completions/mean_length": "length/mean",
        "completions/max_length": "length/max",
        "completions/clipped_ratio": "length/truncated_share",
        "grad_norm": "grad/norm",
        "learning_rate": "lr",
    },
    "verl": {
        "critic/score/mean": "reward/mean",
        "actor/entropy": "entropy/token_mean",
        "actor/kl_loss": "kl/reference",
        "actor/ppo_kl": "approx_kl",
        "actor/pg_loss": "loss/policy",
        "actor/pg_clipfrac": "clip_fraction",
        "actor/pg_clipfrac_lower": "clip_fraction_lower",
        "response_length/mean": "length/mean",
        "response_length/max": "length/max",
        "response_length/clip_ratio": "length/truncated_share",
        "actor/grad_norm": "grad/norm",
        "actor/lr": "lr",
        "timing_s/step": "perf/step_s",
        # Those of our plug-in. Its actor/kl/new_old keeps its name: it is measured before steps, not after the last.
        "actor/approx_kl": "approx_kl",
        "actor/clip_fraction": "clip_fraction",
        "actor/clip_fraction_lower": "clip_fraction_lower",
        "actor/clip_fraction_samples": "clip_fraction_samples",
        "actor/ratio/capped_share": "ratio/capped_share",
    },
}
_LARGEST = 1e300  # as `metric_row` has it

_At = tuple[str, Mapping[str, Any]]  # where a record stands, and its metrics with their step


class Imported(NamedTuple):
    """``renamed``: the trainer's names and ours. ``kept`` keep their own names.

    ``num_dropped`` rows were recorded again later, by a run that was continued from an earlier step.
    """

    num_steps: int
    renamed: dict[str, str]
    kept: list[str]
    num_dropped: int


def import_metrics(file: Path, out: Path, *, tool: str) -> Imported:
    """The metrics in ``file`` as a run in ``out``, one row a step.

    ``tool`` is trl, whose file is a trainer_state.json or its log history as JSON lines, or verl, whose file logger
    writes JSON lines. Records of one step are one row; a step that is smaller than the one before it belongs to a run
    that was continued, and what was recorded from there on before is dropped. What is no number is passed over.

    Raises:
        UsageError: the tool is unknown, or ``out`` is occupied.
        DataError: the tool has not written such a file, or it holds no metrics; names the line.
    """
    if tool not in NAMES:
        raise UsageError(f"--from {tool}: expected {' or '.join(NAMES)}")
    refuse_occupied(out)
    names = NAMES[tool]
    rows: dict[int, dict[str, Any]] = {}
    num_dropped = 0
    seen: dict[str, None] = {}  # names of metrics there, in their order
    for step, metrics in _steps(_records(file, tool)):
        if rows and step < max(rows):
            num_dropped += sum(earlier >= step for earlier in rows)
            rows = {earlier: row for earlier, row in rows.items() if earlier < step}
        row = rows.setdefault(step, {"step": step})
        numbers = {name: value for name, value in metrics.items() if value is None or type(value) in (int, float)}
        seen |= dict.fromkeys(numbers)
        for name, value in numbers.items():  # NaN and what is too large are no measurements
            row[names.get(name, name)] = value if value is not None and abs(value) < _LARGEST else None
    if not any(len(row) > 1 for row in rows.values()):
        raise DataError(f"{file} holds no metrics of {tool}; let the run log a step, or see whether --from is right")
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "metrics.jsonl", map(json_line, rows.values()))
    renamed = {name: ours for name, ours in names.items() if name in seen}
    source = {"from": tool, "file": str(file.absolute()), "sha256": file_digest(file).hexdigest(), "time": now()}
    # Last: a directory with this file is an imported run.
    write_json(out / IMPORTED, {"schema": 1, **source, "renamed": renamed})
    return Imported(len(rows), renamed, [name for name in seen if name not in names], num_dropped)


def _records(file: Path, tool: str) -> Iterable[_At]:
    if file.is_dir():
        raise DataError(
            f"{file} is a folder; name the file, such as {file / 'checkpoint-100' / 'trainer_state.json'} of TRL or "
            "the .jsonl of verl's file logger"
        )
    if tool == "trl" and file.suffix == ".json":
        return _log_history(file)
    return _lines(file, is_nested=tool == "verl")


def _log_history(file: Path) -> Iterator[_At]:
    try:
        history = read_document(file, allow_non_finite=True).get("log_history")
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    if type(history) is not list or not all(type(record) is dict for record in history):
        refuse(
            f"{file}:1", "no log_history, a list of objects in the trainer_state.json that TRL writes at a checkpoint"
        )
    for number, record in enumerate(history):
        yield f"{file}: log_history[{number}]", record


def _lines(file: Path, *, is_nested: bool) -> Iterator[_At]:
    for number, line, is_whole in read_lines(file):
        at = f"{file}:{number}"
        record = parse_row(line, at, may_be_torn=not is_whole, allow_non_finite=True)
        if record is None:  # it is being written at this moment
            return
        if is_nested and type(record.get("data")) is not dict:
            refuse(at, 'no object "data", which a line of verl\'s file logger has; --from trl reads flat lines')
        yield at, {**record["data"], "step": record.get("step")} if is_nested else record


def _steps(records: Iterable[_At]) -> Iterator[tuple[int, dict[str, Any]]]:
    for at, record in records:
        step = record.get("step")
        if not isinstance(step, (int, float)) or not 0 <= step < _LARGEST or step % 1:
            refuse(at, f"step is {shown(step)}, expected the number of a step")
        yield int(step), {name: value for name, value in record.items() if name != "step"}
