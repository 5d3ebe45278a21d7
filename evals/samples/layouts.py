"""How other tools write samples: what a row of each must have, and where its completion, answer and id stand.

`quatro eval import --help` has them as a table. Parquet of verl's main_generation needs no names: `responses`,
`reward_model.ground_truth`, `extra_info.index` and `data_source` are completion, answer, id and benchmark. Checked
against files of lm-evaluation-harness, inspect-ai 0.3.285, lighteval 0.13, verifiers 0.4.0 and TRL 1.16.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.files.frames import csv_rows, parquet_rows
from evals.files.strict_json import read_document, refuse, shown
from evals.samples.fields import (
    ID_CHARS,
    Fields,
    json_rows,
    look_up,
    named_scores,
    object_at,
    objects_in,
    others,
    reply_text,
)
from evals.samples.inspect_logs import inspect_rows

# samples_TASK_TIME.jsonl of lm-eval.
_FILE_NAME = re.compile(r"samples_(.+?)(?:_\d{4}-\d{2}-\d{2}T[0-9.:-]+)?\.jsonl(?:\.gz)?")
_EVALPLUS_BENCHMARKS = {"HumanEval": "humaneval", "Mbpp": "mbpp"}
# What every task of verifiers has; an environment's own fields stand beside it.
_OF_TASKS = {"idx", "id", "name", "description", "prompt", "system_prompt", "answer", "image", "workdir", "agent_user"}
_OF_TASKS |= {"skills", "network_allow", "network_block", "artifacts", "artifact_max_bytes", "timeout", "resources"}
_INSPECT_STOPS = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


@dataclass(frozen=True)
class Layout:
    """How one tool writes a row: the keys that it must have, and the function that reads it.

    ``read`` may return lists, all of one problem, the reason to leave a row out as `skipped`, what to count of a row as
    `remark`, and what to say of the whole file as `note`. ``default_benchmark`` is made from the file's name, ``rows``
    yields (line, row).
    """

    tool: str
    required: tuple[tuple[str, ...], ...]
    read: Callable[[Fields, str], Fields]
    default_benchmark: Callable[[str], str | None] = lambda name: None
    rows: Callable[[Path], Iterator[tuple[int, Fields]]] = json_rows

    def lacks(self, keys: Collection[str]) -> tuple[str, ...]:
        """The names of which a row with ``keys`` has none and must have one; empty if it has all that it needs."""
        return next((names for names in self.required if not any(name in keys for name in names)), ())


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
    if row.get("invalidation"):
        return {**note, "skipped": "were invalidated in the log"}
    choices = look_up(row, "output.choices") or []
    if not choices and (completion := look_up(row, "output.completion")):
        choices = [{"message": {"content": completion}}]
    if not isinstance(choices, list) or not choices:
        return {**note, "skipped": "have no output"}
    target = row.get("target")
    several = isinstance(target, list) and len(target) > 1
    scores = {name: look_up(score, "value") for name, score in object_at(row, "scores").items()}
    ours = object_at(row, "metadata.quatro")  # of `quatro eval export`: an answer that is no text, and our grade
    return {
        **note,
        **({"remark": "have several targets, of which the first was taken"} if several else {}),
        "benchmark": row.get("task"),
        "id": row.get("id"),
        "sample_index": None if len(choices) > 1 or type(row.get("epoch")) is not int else row["epoch"] - 1,
        "completion": [_inspect_text(look_up(choice, "message.content"), at) for choice in choices],
        # Any one of several targets is right for inspect; our graders take one.
        "answer": target[0] if isinstance(target, list) and target else target,
        "prompt": row.get("input") or None,
        "finish_reason": [_INSPECT_STOPS.get(str(look_up(choice, "stop_reason"))) for choice in choices],
        "extra": {
            **others(object_at(row, "metadata"), {"quatro"}),
            "model": row.get("model"),
            "source_scores": named_scores(scores),
        },
        **{name: ours[name] for name in ("answer", "correct") if name in ours},
    }


def _inspect_text(content: Any, at: str) -> str:
    """What the model wrote: a text, or parts of which those of type `text` count."""
    if isinstance(content, list):
        texts = [look_up(part, "text") for part in content if look_up(part, "type") == "text"]
        content = "".join(map(str, texts)) if all(type(text) is str for text in texts) else content
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
    completion = response.get("text")
    extra = {"specific": document["specific"]} if document.get("specific") else {}
    if not isinstance(completion, list) or not completion or any(type(text) is not str for text in completion):
        refuse(at, f"holds no texts of a model, found {shown(completion)}; tasks of log-likelihoods have no samples")
    while isinstance(answer, list) and answer:
        answer = answer[0]
    scores = {name: value for name, value in (row.get("metric") or {}).items() if type(value) in (bool, int, float)}
    task = str(document.get("task_name") or "").split("|")  # `lighteval|aime24|0`: suite, task, examples in the prompt
    return {
        "benchmark": (task[1] if len(task) > 2 else task[0]) or None,
        "id": document.get("id") or None,
        "completion": completion,
        "answer": answer,
        "prompt": document.get("query"),
        "extra": {**extra, **({"source_scores": scores} if scores else {})},
    }


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


def _verifiers_rows(file: Path) -> Iterator[tuple[int, Fields]]:
    """(line, row) of every trace of an episode, and of every rollout, each with its environment and its model.

    An episode, as verifiers 0.4 and prime-rl write them, is a task and a trace for each agent that worked on it. Older
    releases write rollouts, and environment and model into `metadata.json` beside the file.
    """
    beside = file.with_name("metadata.json")
    metadata = read_document(beside, allow_non_finite=True) if beside.is_file() else {}
    for number, row in json_rows(file):
        if "traces" not in row:
            yield (
                number,
                {**row, "benchmark": metadata.get("env_id") or row.get("task"), "model": metadata.get("model")},
            )
            continue
        traces = row["traces"]
        if not isinstance(traces, list) or not all(isinstance(trace, dict) for trace in traces):
            refuse(f"{file}:{number}", f"traces must be a list of objects, found {shown(traces)}")
        env = look_up(row, "env.id") or look_up(row, "env.name")
        work = {f"run.work.{name}": look_up(row, f"run.work.{name}") for name in ("type", "step")}
        for trace in traces or [{"task": row.get("task")}]:  # an episode that failed early has none
            model = look_up(trace, "agent.config.model")
            yield number, {**trace, **work, "benchmark": env, "model": model, "traces": len(traces)}


def _verifiers(row: Fields, at: str) -> Fields:
    """The last reply to the task. A trace is a graph of messages; the model wrote those that are `sampled`."""
    if row.get("error") or ("traces" in row and row.get("ok") is not True):
        return {"skipped": "ended with an error and have no answer"}
    if "traces" not in row:
        reason = "length" if row.get("is_truncated") is True else None
        own = {"id": row["example_id"], "completion": reply_text(row.get("completion")), "finish_reason": reason}
        return _table({**row, **own}, at)
    rewards = {name: look_up(reward, "score") for name, reward in object_at(row, "rewards").items()}
    if row["traces"] > 1 and not rewards:
        return {"skipped": "are of agents without a reward, such as judges"}
    nodes = objects_in(row, "nodes")
    sampled = [place for place, node in enumerate(nodes) if node.get("sampled")]
    if not sampled:
        return {"skipped": "have no response of the model"}
    ends = [call.get("finish_reason") for call in objects_in(row, "calls") if call.get("node") == sampled[-1]]
    data, key = object_at(row, "task.data"), look_up(row, "task.key")
    return {
        "benchmark": row["benchmark"],
        # Without an id of its own a task is known by a hash of its content.
        "id": data.get("id") or (str(key)[:ID_CHARS] if key and key == look_up(row, "task.hash") else key),
        "completion": row.get("root_reply") or look_up(nodes[sampled[-1]], "message.content") or "",
        "answer": data.get("answer"),
        "prompt": [node.get("message") for node in nodes[: sampled[0]]],
        "finish_reason": ends[-1] if ends and ends[-1] in ("stop", "length") else None,
        "extra": {
            **others(data, _OF_TASKS),
            **{k: row[key] for k, key in (("model", "model"), ("step", "run.work.step")) if row[key] is not None},
            "source_scores": named_scores({**rewards, **object_at(row, "metrics")}),
        },
    }


def _trl(row: Fields, at: str) -> Fields:
    """One column a reward function; `answer` and `id` where a reward function has logged them with `log_extra`."""
    given = {name: value for name, value in row.items() if name not in ("completion", "prompt", "advantage", "step")}
    rewards = {name: value for name, value in given.items() if type(value) in (bool, int, float)}
    return {
        "id": row.get("id"),
        "completion": reply_text(row["completion"]),
        "answer": row.get("answer"),
        "prompt": row.get("prompt"),
        "extra": {**others(given, set(rewards)), "step": row.get("step"), "source_scores": rewards},
    }


TOOLS: dict[str, Layout] = {
    layout.tool: layout
    for layout in (
        Layout("lm-eval", (("doc", "doc_id"), ("resps", "filtered_resps")), _lm_eval, _task_in),
        Layout("inspect", (("output",), ("epoch",)), _inspect, rows=inspect_rows),
        Layout("lighteval", (("doc",),), _lighteval, rows=parquet_rows),
        Layout("evalplus", (("task_id",), ("solution", "completion")), _evalplus),
        Layout("verifiers", (("traces", "example_id"),), _verifiers, rows=_verifiers_rows),
        Layout("trl", (("completion",), ("advantage",)), _trl, rows=parquet_rows),
        Layout("verl", (("input",), ("output",)), _verl),
        Layout("parquet", (), _table, rows=parquet_rows),
        Layout("csv", (), _csv, rows=csv_rows),
        Layout("jsonl", (), _table),
    )
}
