"""Rollouts of verifiers and completions of TRL: what their own programs wrote, and what may be wrong with it.

The files of verifiers are what `vf-eval` of 0.4.0 (single agent, and best-of-n) and `vf-eval -s` of 0.1.14 wrote for an
environment of two sums whose model, a server, answered with fixed texts. One request failed. Only the names of folders
were changed. tests/trl imports files that TRL has written.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.errors import DataError, QuatroError, UsageError
from evals.metrics.passk_ucc import passk_result
from evals.samples import importing
from evals.samples.fields import json_rows
from evals.samples.importing import Imported, import_samples
from evals.samples.layouts import TOOLS
from evals.samples.types import Sample, Samples
from tests.kit import says, write_rows

Convert = Callable[..., tuple[Sequence[Sample], Imported]]
HERE = Path(__file__).parent
BAD = Path(os.environ.get("QUATRO_BAD_INPUTS", "nowhere")) / "samples"


@pytest.fixture
def copied(tmp_path) -> Callable[[str], Path]:
    """A function that gives a file of this folder, beside its metadata, in a folder that may be written to."""

    def copy_of(name: str) -> Path:
        for file in (HERE / name).parent.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        return tmp_path / Path(name).name

    return copy_of


# ---- verifiers


def test_every_rollout_of_verifiers_is_kept_but_those_that_failed(copied, convert):
    rows, imported = convert(copied("verifiers-0.4.0/traces.jsonl"), "verifiers")
    assert [(row.benchmark, row.sample_index, row.completion, row.answer, row.finish_reason) for row in rows] == [
        ("sums", 0, "It is 0 and three, way 0.", "3", "length"),
        ("sums", 1, "\\boxed{3}", "3", "stop"),
        ("sums", 2, "\\boxed{3}", "3", "stop"),
        ("sums", 0, "It is 1 and three, way 3.", "4", "stop"),
        ("sums", 1, "\\boxed{4}", "4", "length"),
    ]
    assert {(row.id, row.prompt) for row in rows} == {
        ("b8dfe2d488a9", "Be brief.\n\nWhat is 0 + 3?"),
        (rows[-1].id, "Be brief.\n\nWhat is 1 + 3?"),
    }
    assert rows[1].extra == {
        "model": "mock/model",
        "source_scores": {"correct": 1.0, "short": 1.0, "characters": 9.0},
    }
    left_out, taken = imported.notes
    says(left_out, "1 of 6 rows", "left out", "error", "traces.jsonl:6")
    says(taken, "5 samples of 2 problems of sums, 2 to 3 of each", "5 of 6 rows")


def test_a_reward_of_verifiers_is_a_grade_where_it_is_asked_for(copied, convert):
    file = copied("verifiers-0.4.0/traces.jsonl")
    rows, _ = convert(file, "verifiers", columns={"correct": "rewards.correct.score"})
    assert [row.correct for row in rows] == [False, True, True, False, True]
    (file.parent / "out.jsonl").unlink()
    with pytest.raises(DataError) as refusal:
        convert(file, "verifiers", columns={"correct": "metrics.characters"})
    says(refusal, "traces.jsonl:1", key="metrics.characters", value=25.0)


def test_each_attempt_of_an_episode_is_a_sample(copied, convert):
    rows, _ = convert(copied("verifiers-0.4.0/best_of_3.jsonl"), "verifiers")
    assert [(row.benchmark, row.sample_index, row.extra["source_scores"]["best"]) for row in rows] == [
        ("best-of-n+sums", 0, 0.0),
        ("best-of-n+sums", 1, 1.0),
        ("best-of-n+sums", 2, 1.0),
    ]
    assert len({row.id for row in rows}) == 1


def test_older_results_have_their_environment_and_model_beside_them(copied, convert):
    """And what verifiers itself says of them, its Pass@k and share of k that are all correct, is what quatro finds."""
    file = copied("verifiers-0.1.14/results.jsonl")
    rows, _ = convert(file, "verifiers", columns={"correct": "metrics.correct"})
    assert {(row.benchmark, row.extra["model"]) for row in rows} == {("sums0", "mock/model")}
    right, *_ = (row for row in rows if row.correct)
    assert (right.id, right.prompt, right.completion) == ("0", "Be brief.\n\nWhat is 0 + 3?", "\\boxed{3}")
    assert right.extra["info"] == {"level": 0}
    assert right.extra["metrics"] == {"correct": 1.0, "short": 1.0, "num_turns": 1.0}
    assert right.extra["source_scores"] == {"reward": 1.5, "correct": 1.0}
    assert [row.finish_reason for row in rows].count("length") == 2  # as the server said
    theirs = json.loads((file.parent / "metadata.json").read_text(encoding="utf-8"))
    found = passk_result(Samples(rows, []), ks=[1, 2, 4], also=["pass^k"]).rows
    for metric, key in (("pass@k", "pass_at_k"), ("pass^k", "pass_all_k")):
        ours = {str(row.k): row.value for row in found if (row.metric, row.benchmark) == (metric, "sums0")}
        assert ours == pytest.approx(theirs[key], abs=1e-15)


def test_without_metadata_the_benchmark_must_be_named(copied, convert):
    file = copied("verifiers-0.1.14/results.jsonl")
    (file.parent / "metadata.json").unlink()
    with pytest.raises(UsageError) as refusal:
        convert(file, "verifiers")
    says(refusal, "results.jsonl:1", advice="--benchmark NAME")


def episode(*traces: dict[str, Any], **more: Any) -> dict[str, Any]:
    (row,) = (row for number, row in json_rows(HERE / "verifiers-0.4.0/traces.jsonl") if number == 2)
    return {**row, "traces": [{**row["traces"][0], **trace} for trace in traces], **more}


def test_judges_and_episodes_without_an_agent_are_left_out_and_counted(tmp_path, convert):
    judge = {"rewards": {}, "agent": {"config": {"model": "another"}}}
    rows = [episode({}, judge), episode(ok=False), episode({"nodes": []})]
    file = write_rows(tmp_path / "f.jsonl", rows) or tmp_path / "f.jsonl"
    samples, imported = convert(file, "verifiers")
    assert [row.extra["model"] for row in samples] == ["mock/model"]
    for note, reason, at in zip(imported.notes, ("judges", "error", "no response"), (1, 2, 3), strict=False):
        says(note, "1 of 4 rows", reason, f"f.jsonl:{at}")


def test_of_several_turns_the_last_counts_with_how_it_ended(tmp_path, convert):
    """It may be empty, as where a model thought until its tokens were spent."""
    (trace,) = episode({})["traces"]
    *before, reply = trace["nodes"]
    tool = {"parent": 2, "message": {"role": "tool", "content": "3"}, "sampled": False}
    calls = [{**trace["calls"][0], "node": node, "finish_reason": end} for node, end in ((4, "length"), (2, "stop"))]
    rows = []
    for text in ("the end", None):
        last = {**reply, "parent": 3, "message": {"role": "assistant", **({"content": text} if text else {})}}
        rows.append(episode({"nodes": [*before, reply, tool, last], "calls": calls}))
    write_rows(tmp_path / "f.jsonl", rows)
    samples, _ = convert(tmp_path / "f.jsonl", "verifiers")
    assert [(row.prompt, row.completion, row.finish_reason) for row in samples] == [
        ("Be brief.\n\nWhat is 0 + 3?", "the end", "length"),
        ("Be brief.\n\nWhat is 0 + 3?", "", "length"),
    ]


# The files of prime-rl hold the episodes above as its file monitor writes them: one file for the evaluation at a step
# (commit 0b77f237), and one stream for all work of a run (commit 048a6e23), here two episodes of each kind of work.


def test_an_evaluation_of_prime_rl_holds_the_samples_of_verifiers(copied, convert, tmp_path):
    expected, _ = convert(copied("verifiers-0.4.0/traces.jsonl"), "verifiers")
    (tmp_path / "out.jsonl").unlink()
    samples, _ = convert(copied("prime-rl/traces.jsonl"), "verifiers")
    assert [row.extra.pop("step") for row in samples] == [20] * 5
    assert samples == expected


def test_evaluations_and_training_in_the_stream_of_prime_rl_are_not_mixed(copied, convert, tmp_path):
    file = copied("prime-rl/00000.jsonl")
    rows = [row for _, row in json_rows(file)]
    for next_two, key, value in ((rows[2:4], "run.work.type", "train"), (rows[4:], "run.work.step", 20)):
        write_rows(file, rows[:2] + next_two)
        with pytest.raises(DataError) as refusal:
            convert(file, "verifiers")
        says(refusal, "00000.jsonl:3", key=key, value=value)
    write_rows(file, rows[4:])
    assert [(row.sample_index, row.extra["step"]) for row in convert(file, "verifiers")[0]] == [(0, 20), (1, 20)]


# ---- TRL


TRL = [
    {"step": 8, "prompt": "1+1?", "completion": text, "correct": score, "length": -0.5, "advantage": 0.1, "answer": "2"}
    for text, score in (("two", 0.0), ("\\boxed{2}", 1.0))
]
CHAT = {
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}],
    "completion": [
        {"role": "assistant", "content": "let me see"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "\\boxed{2}"},
        {"role": "tool", "content": "ended"},
    ],
}


def write_parquet(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)
    return file


def test_completions_of_trl_are_samples_and_its_rewards_are_scores(tmp_path, convert):
    file = write_parquet(tmp_path / "completions_00008.parquet", TRL)
    rows, imported = convert(file, "trl", benchmark="mine")
    assert [(row.sample_index, row.prompt, row.completion, row.answer, row.correct) for row in rows] == [
        (0, "1+1?", "two", "2", None),
        (1, "1+1?", "\\boxed{2}", "2", None),
    ]
    assert rows[0].id == rows[1].id
    assert rows[1].extra == {"step": 8, "source_scores": {"correct": 1.0, "length": -0.5}}
    says(imported.notes[-1], "2 samples of 1 problems of mine, 2 of each", "2 of 2 rows")


def test_trls_conversations_are_read_and_its_rewards_grade_where_it_is_asked_for(tmp_path, convert):
    rows = [{**{key: value for key, value in row.items() if key != "answer"}, **CHAT} for row in TRL]
    file = write_parquet(tmp_path / "f.parquet", rows)
    with pytest.raises(DataError) as refusal:
        convert(file, "trl", benchmark="mine")
    says(refusal, "f.parquet:1", advice="--column correct=FIELD")
    samples, _ = convert(file, "trl", benchmark="mine", columns={"correct": "correct"})
    assert [(row.prompt, row.completion, row.correct) for row in samples] == [
        ("Be brief.\n\n1+1?", "\\boxed{2}", False),
        ("Be brief.\n\n1+1?", "\\boxed{2}", True),
    ]


def test_steps_of_trl_are_not_mixed(tmp_path, convert):
    file = write_parquet(tmp_path / "f.parquet", [TRL[0], {**TRL[1], "step": 9}])
    with pytest.raises(DataError) as refusal:
        convert(file, "trl", benchmark="mine")
    says(refusal, "f.parquet:2", key="step", value=9)


# ---- several samples in one row


def test_one_score_for_several_samples_is_a_grade_of_none(tmp_path, convert):
    row = {"benchmark": "b", "id": "1", "responses": ["5", "6"], "answer": "5", "acc": 0.5, "each": [1, 0]}
    file = tmp_path / "f.jsonl"
    write_rows(file, [row])
    with pytest.raises(DataError) as refusal:
        convert(file, "jsonl", columns={"correct": "acc"})
    says(refusal, "f.jsonl:1", "2 samples", key="acc", value=0.5)
    rows, _ = convert(file, "jsonl", columns={"correct": "each"})
    assert [row.correct for row in rows] == [True, False]
    assert [row.extra.get("source_scores") for row in rows] == [{"acc": 0.5}, None]


# ---- files of strangers


def refused_or_read(tool: str, file: Path, out: Path, **options: Any) -> None:
    """Nothing is written but what can be read, and a refusal is an error of ours that names the file."""
    said = ""
    try:
        import_samples(file, out, tool=tool, **options)
    except QuatroError as error:
        said = str(error)
    assert (file.name in said) != out.exists()
    out.unlink(missing_ok=True)


@pytest.mark.skipif(not BAD.is_dir(), reason="QUATRO_BAD_INPUTS names no folder with samples")
@pytest.mark.parametrize("tool", TOOLS)
def test_bad_files_are_refused_by_name_or_read(tmp_path, tool):
    for file in sorted(BAD.iterdir()):
        refused_or_read(tool, file, tmp_path / "out.jsonl")


def test_a_bad_metadata_file_is_named(copied, tmp_path):
    file = copied("verifiers-0.1.14/results.jsonl")
    for content in (b"{", b"[]", b"\xff\xfe", b'{"env_id": 7}', b'{"env_id": ["x"], "model": {"a": 1}}'):
        (tmp_path / "metadata.json").write_bytes(content)
        with pytest.raises(DataError, match=r"metadata\.json|results\.jsonl:1"):
            import_samples(file, tmp_path / "out.jsonl", tool="verifiers")
        assert not (tmp_path / "out.jsonl").exists()


WRONG = (None, [], {}, "text", 7, math.nan, [7], [{}], {"a": {"b": [1]}}, 10**308)


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The paths of all that is in a row."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(one, *path, key)


INSPECT = {
    "task": "aime24",
    "model": "some/model",
    "unfinished": None,
    "id": "p",
    "epoch": 1,
    "input": [{"role": "user", "content": "2+3?"}],
    "target": ["5", "five"],
    "output": {"choices": [{"message": {"content": [{"type": "text", "text": "5"}]}, "stop_reason": "stop"}]},
    "scores": {"match": {"value": "C"}, "parts": {"value": {"form": 1}}, "ranks": {"value": [1, 0.5]}},
    "metadata": {"level": 3},
}
ROWS = {
    "verifiers": [row for _, row in json_rows(HERE / "verifiers-0.4.0/traces.jsonl")][-2:-1]
    + [row for _, row in json_rows(HERE / "verifiers-0.1.14/results.jsonl")][:1],
    "trl": [TRL[0], {**TRL[0], **CHAT}],
    "inspect": [INSPECT],
}


@pytest.mark.parametrize("tool", ROWS)
def test_whatever_stands_in_a_place_it_is_refused_or_read(tmp_path, tool, monkeypatch):
    """Every value of a row in turn becomes of every other kind, and is taken away."""
    layout = TOOLS[tool]
    if tool != "verifiers":  # the same rows in a file that can hold any value
        monkeypatch.setitem(importing.TOOLS, tool, replace(layout, rows=json_rows))
    file, out = tmp_path / "f.jsonl", tmp_path / "out.jsonl"
    num = 0
    for row in ROWS[tool]:
        for *path, key in places(row):
            for wrong in (*WRONG, ...):
                changed = copy.deepcopy(row)
                inside = changed
                for name in path:
                    inside = inside[name]
                if wrong is ...:
                    del inside[key]
                else:
                    inside[key] = wrong
                file.write_text(json.dumps(changed).replace("NaN", "1e999"), encoding="utf-8")
                refused_or_read(tool, file, out, benchmark="b")
                num += 1
    assert num > 100


def test_letters_of_inspect_are_grades_and_parts_of_scores_are_kept(tmp_path, convert):
    log = {"eval": {"task": "t", "model": "m"}, "samples": [{**INSPECT, "target": "5", "epoch": e} for e in (1, 2)]}
    log["samples"][1]["scores"] = {"match": {"value": "I"}}
    (tmp_path / "log.json").write_text(json.dumps(log), encoding="utf-8")
    rows, _ = convert(tmp_path / "log.json", "inspect", columns={"correct": "scores.match.value"})
    assert [row.correct for row in rows] == [True, False]
    assert rows[0].extra["source_scores"] == {"match": 1.0, "parts.form": 1, "ranks.0": 1, "ranks.1": 0.5}


def test_a_score_of_inspect_is_that_of_the_first_choice(tmp_path, convert):
    choices = [{"message": {"content": text}, "stop_reason": "stop"} for text in ("5", "6", "7")]
    samples = [
        {**INSPECT, "output": {"choices": choices}, "epoch": 1},
        {**INSPECT, "output": {"choices": choices}, "epoch": 2, "error": {"message": "gone"}},
        {**INSPECT, "output": {"choices": choices}, "epoch": 3, "invalidation": {"author": "me"}},
        {**INSPECT, "output": {"choices": choices}, "epoch": 4},
    ]
    (tmp_path / "log.json").write_text(json.dumps({"eval": {"task": "t"}, "samples": samples}), encoding="utf-8")
    rows, imported = convert(tmp_path / "log.json", "inspect")
    assert [(row.sample_index, "source_scores" in row.extra) for row in rows] == [
        (0, True), (1, False), (2, False), (3, True), (4, False), (5, False)
    ]  # fmt: skip
    says(imported.notes[1], "1 of 4 rows", "error", "log.json:2")
    says(imported.notes[2], "1 of 4 rows", "invalidated", "log.json:3")
