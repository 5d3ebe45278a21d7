"""`quatro eval export`: what other programs read, checked against their formats and against our own numbers."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from evals.samples.reading import read_samples
from evals.samples.types import FIELDS
from tests.kit import quatro, read_json, says, write_rows

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

EEE = read_json(Path(__file__).parents[2] / "evals/results/every_eval_ever.json")
# A file of .eval_results as https://huggingface.co/docs/hub/eval-results had it on 2026-11-28, and what is required.
HUB = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["dataset", "value"],
        "additionalProperties": False,
        "properties": {
            "dataset": {
                "type": "object",
                "required": ["id", "task_id"],
                "additionalProperties": False,
                "properties": {name: {"type": "string"} for name in ("id", "task_id", "revision")},
            },
            "value": {"type": "number"},
            "verifyToken": {"type": "string"},
            "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"},
            "source": {"type": "object", "required": ["url"]},
            "evaluation_framework": {"type": "string"},
            "notes": {"type": "string"},
        },
    },
}
DAY = ("--date", "2026-01-31")
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.json")
HOME, TOKEN = "/home/alice", "hf_aaBBccDDeeFF"
CORRECT = {"p1": (1, 1, 0, 0), "a/b": (0, 0, 0, 0), "2": (1, 1, 1, 1), "ü|": (0, 1, 0, 1)}


# Of these two programs the one that is asked for decides, which is the same for all samples.
PROGRAMS = "```python\ndef f(a):\n    return a\n```\n```python\ndef g():\n    print('{0}', {0} * [{0}])\n```\n"


def rows_of(benchmark: str, *, code: bool = False, **more: Any) -> Iterator[dict[str, Any]]:
    for id, grades in CORRECT.items():
        for index, grade in enumerate(grades):
            words = ["add the two numbers", "multiply, then subtract", "guess", "add two of the numbers"][index]
            text = PROGRAMS.format(index) if code else f"{words} \\boxed{{{index}}}"
            row = {"benchmark": benchmark, "id": id, "sample_index": index, "completion": text}
            yield {**row, "answer": "5", "correct": bool(grade), "prompt": f"{id}?", **more}


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Samples of gsm8k, and beside them what says how they were drawn."""
    folder = tmp_path / "drawn"
    file = write_rows(folder / "gsm8k.jsonl", rows_of("gsm8k", finish_reason="stop"))
    sampling = {"n": 4, "temperature": 0.8, "top_p": 0.95, "max_tokens": 512, "prompt": f"{HOME}/prompt.txt"}
    head = {"model": f"{HOME}/models/tuned", "method": "quatro delta=0.01", "checkpoint": "step-000020", "seed": 0}
    (folder / "sampling.json").write_text(json.dumps({**head, "sampling": sampling}), encoding="utf-8")
    return file


@pytest.fixture
def results(samples: Path, tmp_path: Path) -> list[Path]:
    """Pass@k and UCC@k with intervals of the samples."""
    files = [tmp_path / "passk.json", tmp_path / "ucc.json"]
    for command, file in zip((["passk", "--also", "pass^k"], ["ucc"]), files, strict=True):
        quatro("eval", *command, samples, "--k", "1,4", "--ci", "-o", file)
    return files


def below(folder: Path) -> dict[str, bytes]:
    """Every file by its path; an archive as its parts."""
    found = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = str(path.relative_to(folder))
        found[name] = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                found |= {f"{name}/{part}": archive.read(part) for part in archive.namelist()}
    return found


def record_of(folder: Path) -> dict[str, Any]:
    (file,) = folder.rglob("*.json")
    found: dict[str, Any] = read_json(file)
    return found


def test_a_record_of_every_eval_ever_has_each_number_with_its_setting_and_interval(results, tmp_path):
    out = tmp_path / "eee"
    words = ["--model", "me/tuned", "--organization", "me", *DAY, "-o", out]
    path = Path(quatro("eval", "export", *results, "--to", "every-eval-ever", *words).stdout.strip())
    assert path.relative_to(out).parts[:4] == ("data", "gsm8k", "me", "tuned")
    assert UUID4.fullmatch(path.name)
    record = read_json(path)
    jsonschema.Draft7Validator(EEE).validate(record)
    assert record["source_metadata"]["evaluator_relationship"] == "first_party"
    assert record["retrieved_timestamp"] == "1769817600"  # `date -u -d 2026-01-31 +%s`
    assert record["model_info"]["additional_details"]["checkpoint"] == "step-000020"
    known = [row for file in results for row in read_json(file)["rows"] if row["benchmark"] == "gsm8k"]
    assert {row["metric"] for row in known} >= {"pass@k", "ucc@k", "pairs"}
    assert len(record["evaluation_results"]) == len(known)
    for one, row in zip(record["evaluation_results"], known, strict=True):
        interval = one["score_details"]["uncertainty"]["confidence_interval"]
        found = (one["score_details"]["score"], interval["lower"], interval["upper"], interval["confidence_level"])
        assert found == (row["value"], row["ci_low"], row["ci_high"], 0.95)
        assert interval["method"].endswith(row["ci_over"])
        how, config = one["metric_config"]["metric_parameters"], one["metric_config"]
        assert config["metric_name"] == row["metric"].replace("k", str(row["k"]), row["k"] is not None)
        assert (config["metric_id"] == "pass_at_k") == (row["metric"] == "pass@k")
        assert how.get("k") == row["k"]
        names = ("n", "similarity", "threshold", "linkage", "tokens")
        assert [how.get(name) for name in names] == [row.get(name) for name in names]
        assert one["metric_config"]["min_score"] <= row["value"] <= one["metric_config"]["max_score"]
        assert one["generation_config"]["generation_args"] == {"temperature": 0.8, "top_p": 0.95, "max_tokens": 512}
        assert one["source_data"]["hf_repo"] == "openai/gsm8k"


def test_samples_drawn_otherwise_are_another_record(samples, results, tmp_path):
    """As are those of another benchmark; who measured is not claimed where nobody says it."""
    head = samples.parent / "sampling.json"
    hotter = {**read_json(head), "sampling": {"temperature": 1.5}}
    head.write_text(json.dumps(hotter), encoding="utf-8")
    quatro("eval", "passk", samples, "-o", tmp_path / "hot.json")
    other = write_rows(tmp_path / "toy.jsonl", rows_of("toy"))
    quatro("eval", "passk", other, "-o", tmp_path / "toy.json")
    words = ["--to", "every-eval-ever", "--model", "me/tuned", *DAY, "-o", tmp_path / "eee"]
    quatro("eval", "export", *results, tmp_path / "hot.json", tmp_path / "toy.json", *words)
    records = [read_json(file) for file in sorted((tmp_path / "eee").rglob("*.json"))]
    assert sorted(len(one["evaluation_results"]) for one in records) == [3, 3, 10]
    assert len({one["evaluation_id"] for one in records}) == 3
    assert {one["source_metadata"]["evaluator_relationship"] for one in records} == {"other"}
    for one in records:
        jsonschema.Draft7Validator(EEE).validate(one)


def test_the_hub_gets_pass_at_1_in_percent_and_the_rest_as_notes(results, tmp_path):
    model = tmp_path / "my model"
    done = quatro("eval", "export", *results, "--to", "hub", "--model", "me/tuned", *DAY, "-o", model)
    assert f"hf upload me/tuned '{model}'" in done.stderr
    says(done, "gsm8k", 1319, 4)  # problems of the benchmark, and of these samples
    found = yaml.safe_load((model / ".eval_results/gsm8k.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(found, HUB)
    (entry,) = found
    share = sum(map(sum, CORRECT.values())) / 16
    assert entry["dataset"] == {"id": "openai/gsm8k", "task_id": "gsm8k"}
    assert (entry["value"], entry["date"]) == (round(100 * share, 2), "2026-01-31")
    for part in ("4 problems", "4 samples", "temperature 0.8", "step-000020", "pass@4 75.0 [", "ucc@4 "):
        assert part in entry["notes"]
    assert "rouge-l >= 0.8" in entry["notes"]


def test_ones_own_benchmark_is_named_with_its_task(tmp_path):
    file, out = write_rows(tmp_path / "toy.jsonl", rows_of("toy")), tmp_path / "out"
    quatro("eval", "passk", file, "-o", tmp_path / "r.json")
    refused = quatro("eval", "export", tmp_path / "r.json", "--to", "hub", "-o", out, code=2)
    assert "--dataset" in refused.stderr
    for dataset, task in (("me/toy", "default"), ("me/toy:hard", "hard")):
        quatro("eval", "export", tmp_path / "r.json", "--to", "hub", "--dataset", dataset, "--overwrite", "-o", out)
        (entry,) = yaml.safe_load((out / ".eval_results/toy.yaml").read_text(encoding="utf-8"))
        jsonschema.validate([entry], HUB)
        assert entry["dataset"] == {"id": "me/toy", "task_id": task}
        assert "date" not in entry


CASES: dict[str, dict[str, Any]] = {
    "texts": {"benchmark": "toy"},
    "numbers": {"benchmark": "toy", "answer": 5},
    "no prompt": {"benchmark": "toy", "prompt": None, "finish_reason": "length"},
    "code": {"benchmark": "humaneval", "answer": None, "entry_point": "f", "code": True},
    "own kind": {"benchmark": "toy", "judged_as": {"grader": "math", "has_short_answers": True}},
    "whole solutions": {"benchmark": "toy", "answer": "4 + 1 = 5\n#### 5"},
    "not graded": {"benchmark": "toy", "correct": None, "answer": "1"},
}


@pytest.mark.parametrize("case", CASES)
def test_inspects_log_gives_the_same_samples_and_numbers_back(case, tmp_path):
    rows = [
        {name: value for name, value in row.items() if value is not None or name == "answer"}
        for row in rows_of(**CASES[case])
    ]
    file, back = write_rows(tmp_path / "a.jsonl", reversed(rows)), tmp_path / "back.jsonl"
    log = Path(quatro("eval", "export", file, "--to", "inspect", *DAY, "-o", tmp_path / "logs").stdout.strip())
    quatro("eval", "import", log, "--from", "inspect", "-o", back)
    before, after = (
        [{name: getattr(row, name) for name in FIELDS} for row in read_samples([one]).rows] for one in (file, back)
    )
    if case == "not graded":
        before = [{**row, "correct": row["sample_index"] == 1} for row in before]
    assert after == before
    assert all(
        set(row.extra) <= {"model", "source_scores", "judged_as", "entry_point"} for row in read_samples([back]).rows
    )
    with zipfile.ZipFile(log) as archive:
        (scores,) = json.loads(archive.read("header.json"))["results"]["scores"]
    for command in ("passk", "ucc"):
        one, other = (json.loads(quatro("eval", command, path, "--json").stdout)["rows"] for path in (file, back))
        assert one == other
        for row in one:
            if row["benchmark"] != "average":
                metric = scores["metrics"][row["metric"].replace("@k", f"@{row['k']}")]
                assert metric["value"] == row["value"]
                assert metric["params"].get("similarity") == row.get("similarity")


def test_a_log_for_each_benchmark_with_samples_as_epochs(tmp_path):
    file = write_rows(tmp_path / "a.jsonl", [*rows_of("toy"), *rows_of("math 2")])
    document = json.loads(
        quatro("eval", "export", file, "--to", "inspect", *DAY, "-o", tmp_path / "o", "--json").stdout
    )
    assert document == {"schema": 1, "files": sorted(map(str, (tmp_path / "o").iterdir()))}
    with zipfile.ZipFile(tmp_path / "o/toy.eval") as archive:
        header, listed = (json.loads(archive.read(name)) for name in ("header.json", "summaries.json"))
        part = json.loads(archive.read("samples/a/b_epoch_4.json"))
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}  # not the hour of the export
    assert (header["eval"]["task"], header["eval"]["config"], header["eval"]["dataset"]["samples"]) == (
        "toy",
        {"epochs": 4},
        4,
    )
    assert (part["epoch"], part["scores"]["quatro"]["value"], part["input"], part["target"]) == (4, "I", "a/b?", "5")
    assert [(one["id"], one["epoch"], one["scores"]["quatro"]["value"] == "C") for one in listed] == [
        (id, index + 1, bool(grade)) for id in ("2", "a/b", "p1", "ü|") for index, grade in enumerate(CORRECT[id])
    ]


EXPORTS = {
    "inspect": ["--to", "inspect", *DAY],
    "every-eval-ever": ["--to", "every-eval-ever", "--model", "me/tuned", *DAY],
    "hub": ["--to", "hub"],
}


@pytest.mark.parametrize("to", EXPORTS)
def test_the_same_input_gives_the_same_bytes_and_nothing_is_replaced_unasked(to, samples, results, tmp_path):
    inputs = [samples] if to == "inspect" else results
    out = tmp_path / "out"
    dry = quatro("eval", "export", *inputs, *EXPORTS[to], "-o", out, "--dry-run", "--json")
    assert not out.exists()
    done = quatro("eval", "export", *inputs, *EXPORTS[to], "-o", out, "--json")
    assert json.loads(dry.stdout) == json.loads(done.stdout)
    first = below(out)
    says(quatro("eval", "export", *inputs, *EXPORTS[to], "-o", out, code=2), advice="--overwrite")
    assert below(out) == first
    quatro("eval", "export", *inputs, *EXPORTS[to], "-o", out, "--overwrite")
    assert below(out) == first
    if to == "every-eval-ever":  # another day is another record, and the old one stays
        quatro("eval", "export", *inputs, *EXPORTS[to], "--date", "2026-02-01", "-o", out)
        assert len(below(out)) == 2


def test_neither_keys_nor_paths_of_the_machine_leave_it(samples, results, tmp_path, monkeypatch):
    """They are in the environment, in names of files, in columns, in heads and in settings."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    private = {"path": f"{HOME}/x", "key": TOKEN, "source_scores": {f"{HOME}/y": 1.0}, "tests": {"given": TOKEN}}
    write_rows(samples, rows_of("gsm8k", **private))
    file = tmp_path / f"{HOME.replace('/', '_')}.json"
    for document in results:
        found = read_json(document)
        found |= {"label": f"{HOME}/runs/a", "note": TOKEN, "model": f"{HOME}/m", "method": f"own {HOME}/m.py:M"}
        found["checkpoint"] = r"C:\Users\alice\step-000020"
        found["grader"] |= {"policy": f"{HOME}/g.py:grade", "key": TOKEN}
        for row in found["rows"]:
            row |= (
                {"similarity": f"embed:{HOME}/minilm@1", "tokens": "~/t/code", "key": TOKEN}
                if "similarity" in row
                else {}
            )
        document.write_text(json.dumps(found), encoding="utf-8")
    quatro("eval", "export", samples, *EXPORTS["inspect"], "-o", tmp_path / "out/i")
    quatro("eval", "export", *results, *EXPORTS["every-eval-ever"], "-o", tmp_path / "out/e")
    quatro("eval", "export", *results, *EXPORTS["hub"], "-o", tmp_path / "out/h")
    contents = below(tmp_path / "out")
    assert len(contents) > 18
    assert not file.exists()
    for name, content in contents.items():
        for secret in (HOME, "alice", TOKEN, str(tmp_path), "~/"):
            assert secret not in name
            assert secret.encode() not in content, name
    record = record_of(tmp_path / "out/e")
    assert record["evaluation_results"][-1]["metric_config"]["metric_parameters"]["similarity"] == "embed:minilm@1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["R", "--to", "helm"], "helm"),
        (["R", "--to", "every-eval-ever", "--model", "a/b"], "--date"),
        (["S", "--to", "inspect"], "--date"),
        (["R", "--to", "every-eval-ever", *DAY], "--model"),
        (["R", "--to", "every-eval-ever", *DAY, "--model", "../../x"], "--model"),
        (["R", "--to", "hub", "--date", "31.1.2026"], "31.1.2026"),
        (["R", "--to", "hub", "--dataset", "../x"], "--dataset"),
        (["R", "T", "--to", "hub", "--dataset", "me/toy"], "--dataset"),
        (["R", "--to", "hub", "--organization", "me"], "--organization"),
        (["S", "--to", "inspect", *DAY, "--dataset", "me/toy"], "--dataset"),
        (["R"], "--to"),
        (["--to", "hub"], "FILE"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(words, said, samples, results, tmp_path):
    toy = tmp_path / "toy.json"
    quatro("eval", "passk", write_rows(tmp_path / "toy.jsonl", rows_of("toy")), "-o", toy)
    files = {"R": results[0], "S": samples, "T": toy}
    out = tmp_path / "out"
    done = quatro("eval", "export", *[files.get(word, word) for word in words], "-o", out, code=2)
    assert said in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("change", "said"), [({"value": 7.0}, "pass@1 is 7.0"), ({"value": -1.0}, "-1.0"), ({"k": "1"}, "rows.0.k")]
)
@pytest.mark.parametrize("to", ["hub", "every-eval-ever"])
def test_a_garbled_result_is_refused_by_name(change, said, to, results, tmp_path):
    document = read_json(results[0])
    document["rows"][0] |= change
    results[0].write_text(json.dumps(document), encoding="utf-8")
    done = quatro("eval", "export", *results, *EXPORTS[to], "-o", tmp_path / "out", code=4)
    says(done, results[0], said)
    assert not (tmp_path / "out").exists()


def test_samples_and_results_are_told_apart(samples, results, tmp_path):
    for inputs, to in ((samples, "hub"), (results[0], "inspect")):
        assert str(inputs) in quatro("eval", "export", inputs, *EXPORTS[to], "-o", tmp_path / "out", code=4).stderr
    assert not (tmp_path / "out").exists()
