"""Samples and results for other programs: inspect-ai, Every Eval Ever (schema 0.3.0) and the Hugging Face Hub.

None of their code is needed. What leaves this machine is chosen key by key, and `known` takes folders out of it.
"""

import hashlib
import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from evals.benchmarks.catalogue import JUDGED_AS, find_benchmark
from evals.errors import DataError, UsageError
from evals.files.frames import grouped
from evals.files.strict_json import shown
from evals.files.whole import file_stem
from evals.intervals import PROBLEMS
from evals.results.document import AVERAGE, About, Document, Result, Row, largest_value
from evals.results.reading import Labelled
from evals.results.shown import metric_at, number_cell
from evals.samples.types import Sample, Samples
from evals.similarity import setting_of

Files = Mapping[Path, bytes]  # by the path below the folder that they are for
Source = tuple[str, str]  # a data set of the Hub, and the task there
Group = tuple[Result, Source | None, list[Row]]
OURS = "quatro"  # the scorer in inspect-ai's logs, and the key of metadata for what these have no place for
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_SETTING = ("k", "n", "similarity", "threshold", "linkage", "tokens", "tau", "checker", "num_seeds")
_TRAINED = ("method", "checkpoint")
_SOLUTIONS = (JUDGED_AS, "entry_point")  # columns that decide what is the same solution; others may hold anything
_STOPS = {"stop": "stop", "length": "max_tokens", None: "unknown"}
_ON_HUB = re.compile(r"([\w-][\w.-]*)/([\w-][\w.-]*)", re.ASCII)
_FOLDERS = re.compile(r"(?<![\w/.-])(~[\w.-]*|\.{1,2}|[A-Za-z]:)?[/\\]([^/\\\s:]+[/\\])+")
logger = logging.getLogger(__name__)


def known(document: Document, names: Sequence[str]) -> dict[str, Any]:
    """What ``document`` says of these fields, without folders: `embed:minilm` for `embed:/home/me/minilm`."""
    found = {name: value for name in names if (value := getattr(document, name)) is not None}
    return {name: _FOLDERS.sub("", value) if isinstance(value, str) else value for name, value in found.items()}


def name_of(row: Row) -> str:
    """`pass@8` for the row of pass@k at k = 8."""
    return metric_at(row.metric, row.k)


def inspect_logs(samples: Samples, results: Sequence[Result], *, created: datetime, model: str | None = None) -> Files:
    """A log of each benchmark: its epochs are the samples of a problem, its metrics those of ``results``."""
    about, files = results[0], {}
    model = model or known(about, ["model"]).get("model", "unknown")
    for name, rows in grouped(samples.rows, lambda row: row.benchmark).items():
        measured = {name_of(row): row for result in results for row in result.rows if row.benchmark == name}
        metrics = {
            key: {"name": key, "value": one.value, "params": known(one, _SETTING)} for key, one in measured.items()
        }
        ids = list(dict.fromkeys(row.id for row in rows))
        head = {"created": created.isoformat(), "task": name, "model": model, "metadata": known(about, _TRAINED)}
        head["dataset"] = {"name": name, "samples": len(ids), "sample_ids": ids}
        head["config"] = {"epochs": max(row.sample_index for row in rows) + 1}
        head["model_generate_config"] = known(about.sampling, _SAMPLING)
        scores = [{"name": OURS, "scorer": OURS, "metrics": metrics}]
        found = {"total_samples": len(rows), "completed_samples": len(rows), "scores": scores}
        parts = [_inspect_sample(row, model, created) for row in rows]
        listed = [{key: one[key] for key in ("id", "epoch", "input", "target", "scores")} for one in parts]
        contents: dict[str, Any] = {f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in parts}
        contents["summaries.json"] = [{**one, "completed": True} for one in listed]
        contents["header.json"] = {"version": 2, "status": "success", "eval": head, "results": found}
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for path, one in contents.items():  # dated 1980, as the clock would change the bytes
                archive.writestr(zipfile.ZipInfo(path), json.dumps(one), zipfile.ZIP_DEFLATED)
        files[Path(f"{file_stem(name)}.eval")] = stream.getvalue()
    return files


def _inspect_sample(row: Sample, model: str, created: datetime) -> dict[str, Any]:
    asked, response = {"role": "user", "content": row.prompt or ""}, {"role": "assistant", "content": row.completion}
    output = {"model": model, "choices": [{"message": response, "stop_reason": _STOPS[row.finish_reason]}]}
    call = {"event": "model", "timestamp": created.isoformat(), "model": model, "input": [asked], "output": output}
    metadata = {name: row.extra[name] for name in _SOLUTIONS if name in row.extra}
    return {
        "id": row.id,
        "epoch": row.sample_index + 1,
        "input": row.prompt or "",
        "target": "" if row.answer is None else str(row.answer),
        "messages": [asked, response],
        "output": output,
        "events": [{**call, "tools": [], "tool_choice": "none", "config": {}}],
        "scores": {OURS: {"value": "C" if row.correct else "I"}},
        "metadata": {OURS: {"answer": row.answer, "correct": row.correct}, **metadata},
    }


def hub_results(results: Sequence[Labelled], *, date: datetime | None = None, dataset: str | None = None) -> Files:
    """`.eval_results/BENCHMARK.yaml` for each benchmark with Pass@1 that is on the Hub; the others are logged.

    Values are percentages, as on the leaderboards there. What else was measured stands in the notes, at the largest k.

    Raises:
        UsageError: ``dataset`` is not OWNER/NAME[:TASK], or the results are of several benchmarks.
        DataError: a value is not one that its metric can have.
    """
    files: dict[Path, list[dict[str, Any]]] = {}
    for about, source, rows in _by_benchmark(results, dataset):
        name, first = rows[0].benchmark, next((row for row in rows if name_of(row) == "pass@1"), None)
        if first is None or source is None:
            logger.info(f"{shown(name)} is left out: .eval_results need Pass@1 (--k 1), and a data set (--dataset)")
            continue
        entry, num = find_benchmark(name), first.num_problems
        if entry is not None and entry.count - entry.num_left_out > num:
            logger.warning(
                f"{name} has {entry.count} problems, and the result is of {num}: it does not compare with others"
            )
        largest = [row for row in rows if row is first or row.k == max(one.k or 0 for one in rows)]
        notes = [f"Pass@k in %, {num} problems, {first.n} samples each"]
        notes += known(about, ["checkpoint"]).values()
        notes += [f"{key} {value:g}" for key, value in known(about.sampling, _SAMPLING[:2]).items()]
        notes += [f"{name_of(row)} {number_cell(row)} ({setting_of(row)})".removesuffix(" ()") for row in largest]
        found = {"dataset": {"id": source[0], "task_id": source[1]}, "value": round(100 * first.value, 2)}
        found |= {"date": f"{date:%Y-%m-%d}"} if date else {}
        path = Path(".eval_results", f"{file_stem(name)}.yaml")
        files.setdefault(path, []).append({**found, "notes": _FOLDERS.sub("", "; ".join(notes))})
    return {path: yaml.safe_dump(own, sort_keys=False, width=1000).encode() for path, own in files.items()}


def every_eval_ever(
    results: Sequence[Labelled], date: datetime, *, model: str | None, by: str | None = None, dataset: str | None = None
) -> Files:
    """A record for each benchmark and way of sampling: data/BENCHMARK/OWNER/NAME/UUID.json, the last by its content.

    ``by`` is who measured. Raises as `hub_results`, and UsageError for a ``model`` that is not OWNER/NAME.
    """
    named = _ON_HUB.fullmatch(model or "")
    if named is None:
        raise UsageError(f"--model {model or ''}: Every Eval Ever needs the model's name on the Hub, OWNER/NAME")
    relation = "first_party" if by == named[1] else "third_party" if by else "other"
    who = {"source_organization_name": by or "unknown", "evaluator_relationship": relation}
    files = {}
    for about, source, rows in _by_benchmark(results, dataset):
        details = {"deployment_type": "unknown", "model_availability": "unknown", **known(about, _TRAINED)}
        grader = {f"grader_{key}": value for key, value in known(about.grader, ("version", "policy")).items()}
        record: dict[str, Any] = {
            "schema_version": "0.3.0",
            "evaluation_timestamp": date.isoformat(),
            "retrieved_timestamp": f"{date.timestamp():.0f}",
            "source_metadata": {"source_type": "evaluation_run", **who},
            "eval_library": {"name": "quatro", "version": "unknown", "additional_details": grader},
            "model_info": {"name": model, "id": model, "developer": named[1], "additional_details": details},
            "evaluation_results": [_evaluation(row, about, source) for row in rows],
        }
        uuid = UUID(bytes=hashlib.sha256(json.dumps(record).encode()).digest()[:16], version=4)
        record["evaluation_id"] = f"{rows[0].benchmark}/{model}/{uuid}"
        path = Path("data", file_stem(rows[0].benchmark), named[1], named[2], f"{uuid}.json")
        files[path] = json.dumps(record, indent=2).encode() + b"\n"
    return files


def _evaluation(row: Row, about: About, source: Source | None) -> dict[str, Any]:
    """A number as Every Eval Ever has it, with what it was made of and its interval."""
    score: dict[str, Any] = {"score": row.value}
    if row.ci_low is not None and row.ci_high is not None:
        over = f"Student's t on the logit scale, over {row.ci_over or PROBLEMS}"
        ends = {"lower": row.ci_low, "upper": row.ci_high, "confidence_level": 0.95, "method": over}
        score["uncertainty"] = {"confidence_interval": ends, "num_samples": row.num_problems}
    data = {"source_type": "other"} if source is None else {"source_type": "hf_dataset", "hf_repo": source[0]}
    return {
        "evaluation_name": row.benchmark,
        "source_data": {"dataset_name": row.benchmark, **data},
        "metric_config": {
            "metric_id": "pass_at_k" if row.metric == "pass@k" else f"{OURS}.{row.metric}",
            "metric_name": name_of(row),
            "metric_parameters": known(row, _SETTING),
            "lower_is_better": row.metric in ("false_share", "unknown_share"),
            "score_type": "continuous",
            "min_score": 0,
            "max_score": largest_value(row.metric, row.k, row.n),
        },
        "score_details": score,
        "generation_config": {"generation_args": known(about.sampling, _SAMPLING)},
    }


def _by_benchmark(results: Sequence[Labelled], dataset: str | None) -> Iterator[Group]:
    """The rows of each benchmark whose samples were drawn and graded alike, after one of their documents."""
    measured = [one for one in results if one.result.metric in ("pass@k", "ucc@k")]
    pairs = [(one, row) for one in measured for row in one.result.rows if row.benchmark != AVERAGE]
    for one, row in pairs:
        largest = largest_value(row.metric, row.k, row.n)
        if largest is None or not 0 <= row.value <= largest:
            raise DataError(f"{one.path}: {name_of(row)} is {row.value}, expected a number in [0, {largest}]")
    id, _, task = (dataset or "").partition(":")
    if dataset is not None and (not _ON_HUB.fullmatch(id) or len({row.benchmark for _, row in pairs}) > 1):
        raise UsageError(f"--dataset {dataset!r}: expected OWNER/NAME[:TASK] on the Hub, and results of one benchmark")
    head = set(About.model_fields) - {"label"}
    groups = grouped(pairs, lambda pair: (pair[1].benchmark, str(pair[0].result.model_dump(include=head))))
    for (name, _), own in groups.items():
        entry = find_benchmark(name)
        source = (entry.hub[0].id, entry.hub_task) if entry is not None and entry.hub else None
        yield own[0][0].result, (id, task or "default") if id else source, [row for _, row in own]
