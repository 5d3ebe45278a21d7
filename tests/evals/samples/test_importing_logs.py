"""Logs of inspect-ai and details of lighteval: every sample in them is kept, and what is no log is refused."""

import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.errors import DataError, MissingError
from evals.samples import inspect_logs
from evals.samples.importing import Imported
from evals.samples.types import Sample
from tests.kit import says

ZSTANDARD = 93
Convert = Callable[..., tuple[Sequence[Sample], Imported]]


def inspect_log(*samples: dict[str, Any]) -> dict[str, Any]:
    return {"eval": {"task": "aime24", "model": "some/model"}, "samples": list(samples)}


def inspect_sample(id: object, epoch: int, text: object, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "epoch": epoch,
        "input": [{"role": "system", "content": "brief"}, {"role": "user", "content": "2+3?"}],
        "target": ["5", "five"],
        "output": {"choices": [{"message": {"content": text}, "stop_reason": "max_tokens"}]},
        "scores": {"match": {"value": "C"}, "judge": {"value": 0.25}, "words": {"value": "many"}},
        "metadata": {"level": 3, "correct": True},
        **more,
    }


LOG = inspect_log(
    inspect_sample("p", 1, "five"),
    inspect_sample("p", 2, [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "\\boxed{5}"}]),
    inspect_sample(2, 1, "x", error={"message": "server"}),
)


def test_inspect_keeps_every_epoch_and_leaves_out_what_ended_with_an_error(tmp_path, convert):
    file = tmp_path / "log.json"
    file.write_text(json.dumps(LOG), encoding="utf-8")
    rows, imported = convert(file, "inspect")
    assert [(row.benchmark, row.id, row.sample_index, row.completion, row.answer) for row in rows] == [
        ("aime24", "p", 0, "five", "5"),
        ("aime24", "p", 1, "\\boxed{5}", "5"),
    ]
    assert (rows[0].prompt, rows[0].finish_reason, rows[0].correct) == ("brief\n\n2+3?", "length", None)
    assert rows[0].extra == {"level": 3, "model": "some/model", "source_scores": {"match": 1.0, "judge": 0.25}}
    several, left_out, taken = imported.notes
    says(left_out, "1 of 3 rows", "left out", "error", "log.json:3")
    says(several, "2 of 3 rows", "several targets", "log.json:1")
    says(taken, "2 samples of 1 problems of aime24, 2 of each", "2 of 3 rows")


def parts_of(log: dict[str, Any], *, chunked: bool = False) -> dict[str, bytes]:
    """The parts of a log's `.eval` file; ``chunked``: of each sample some lie beside it, in parts of their own."""
    head = {key: value for key, value in log.items() if key != "samples"}
    parts: dict[str, Any] = {"_journal/start.json": {"eval": log["eval"]}}
    for sample in log["samples"]:
        name = f"samples/{sample['id']}_epoch_{sample['epoch']}"
        if chunked:
            parts |= {f"{name}/sample.json": sample, f"{name}/skeleton.json": {}, f"{name}/events/0.json": [1, 2]}
        else:
            parts[f"{name}.json"] = sample
    parts |= {"summaries.json": [], "header.json": head}
    return {name: json.dumps(part).encode() for name, part in parts.items()}


def write_zip(file: Path, parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip archive, also with method 93, which zipfile cannot write: stored parts are relabelled."""
    if method != ZSTANDARD:
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, text in parts.items():
                archive.writestr(name, text)
        return file
    zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed")
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in parts.items():  # in two frames, as inspect packs long samples
            frames = (zstandard.ZstdCompressor().compress(part) for part in (text[:9], text[9:]))
            archive.writestr(name, b"".join(frames))
        places, central = archive.infolist(), archive.start_dir
    data = bytearray(file.read_bytes())
    for part in places:
        text = parts[part.filename]
        for at, method_at, sum_at, size_at in ((part.header_offset, 8, 14, 22), (central, 10, 16, 24)):
            data[at + method_at : at + method_at + 2] = ZSTANDARD.to_bytes(2, "little")
            data[at + sum_at : at + sum_at + 4] = zlib.crc32(text).to_bytes(4, "little")
            data[at + size_at : at + size_at + 4] = len(text).to_bytes(4, "little")
        central += 46 + len(part.filename)
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, ZSTANDARD])
def test_inspects_archives_hold_the_same(tmp_path, convert, method, chunked):
    file = write_zip(tmp_path / "log.eval", parts_of(LOG, chunked=chunked), method)
    rows, _ = convert(file, "inspect")
    assert [(row.id, row.sample_index, row.completion) for row in rows] == [("p", 0, "five"), ("p", 1, "\\boxed{5}")]


def test_of_a_sample_that_was_logged_twice_the_last_counts(tmp_path, convert):
    """With a slash in its id, as a task of ours has it."""
    file = write_zip(tmp_path / "log.eval", parts_of(inspect_log(inspect_sample("a/b", 1, "first"))))
    again = parts_of(inspect_log(inspect_sample("a/b", 1, "last")))["samples/a/b_epoch_1.json"]
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("samples/a/b_epoch_1.json", again)
    assert [(row.id, row.completion) for row in convert(file, "inspect")[0]] == [("a/b", "last")]


def test_without_zstandard_the_command_to_type_is_named(tmp_path, convert, monkeypatch):
    file = write_zip(tmp_path / "log.eval", parts_of(LOG), ZSTANDARD)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingError, match=r"zstandard.*pip install .*\[inspect\]") as refusal:
        convert(file, "inspect")
    assert f"inspect log convert {file}" in str(refusal.value)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, ZSTANDARD])
def test_an_archive_that_unpacks_to_what_no_log_holds_is_refused(tmp_path, convert, monkeypatch, method):
    """In all its parts, in one, and behind a directory that names a smaller length."""
    parts = {"header.json": parts_of(LOG)["header.json"], "samples/q_epoch_1.json": b" " * 10**6}
    file = write_zip(tmp_path / "log.eval", parts, method)
    with monkeypatch.context() as patch:
        patch.setattr(inspect_logs, "_MOST_TIMES", 100)
        with pytest.raises(DataError, match="more than 100 times its size"):
            convert(file, "inspect")
    with monkeypatch.context() as patch:
        patch.setattr(inspect_logs, "_MOST_TIMES", 10**6)
        patch.setattr(inspect_logs, "MAX_LINE_BYTES", 10**6 - 1)
        with pytest.raises(DataError, match=r"q_epoch_1\.json: is 1000000 bytes"):
            convert(file, "inspect")
    data = bytearray(file.read_bytes())
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = (9).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"q_epoch_1\.json: damaged"):
        convert(file, "inspect")


@pytest.mark.parametrize("ending", ["json", "eval"])
def test_a_completion_without_choices_is_read(tmp_path, convert, ending):
    outputs = ({"choices": [], "completion": "\\boxed{5}"}, {"choices": [], "completion": ""}, {"completion": "6"})
    samples = [inspect_sample("p", at, "", output=output) for at, output in enumerate(outputs, start=1)]
    rows, imported = convert(write_log(tmp_path / f"log.{ending}", inspect_log(*samples)), "inspect")
    assert [(row.sample_index, row.completion) for row in rows] == [(0, "\\boxed{5}"), (2, "6")]
    says(imported.notes[1], "1 of 3 rows", "left out", "no output", f"log.{ending}:2")


def write_log(file: Path, log: dict[str, Any]) -> Path:
    if file.suffix == ".eval":
        return write_zip(file, parts_of(log))
    file.write_text(json.dumps(log), encoding="utf-8")
    return file


@pytest.mark.parametrize("ending", ["json", "eval"])
@pytest.mark.parametrize("status", ["error", "cancelled", "started"])
def test_a_run_that_did_not_end_well_says_so_with_counts(tmp_path, convert, status, ending):
    about = {**LOG["eval"], "dataset": {"samples": 900, "sample_ids": ["p", 2, 3]}, "config": {"epochs": 2}}
    log = {**LOG, "eval": about, "status": status, "error": {"message": "server gone"}}
    _, imported = convert(write_log(tmp_path / f"log.{ending}", log), "inspect")
    first, _, second, _ = imported.notes
    assert first.startswith("warning: ")
    assert f"'{status}', 'server gone'" in first
    assert "3 of 6 samples" in first
    says(second, "1 of 3 rows", "left out")
    (tmp_path / "out.jsonl").unlink()
    for samples in ([], LOG["samples"][2:]):
        file = write_log(tmp_path / f"none.{ending}", {**log, "samples": samples})
        with pytest.raises(
            DataError, match=rf"none\.{ending}: .*'{status}', 'server gone'\): it holds {len(samples)} of 6"
        ):
            convert(file, "inspect")


def test_an_archive_without_a_header_is_of_a_run_that_was_killed(tmp_path, convert):
    parts = parts_of({**LOG, "status": "success"})
    del parts["header.json"]
    rows, imported = convert(write_zip(tmp_path / "log.eval", parts), "inspect")
    assert len(rows) == 2
    assert "'started'" in imported.notes[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{}", "which task"), (b'{"eval": {}}', "without samples"), (b"PK", "no .eval log"), (b"", "no .eval log")],
)
def test_what_is_no_log_of_inspect_is_refused_by_name(tmp_path, convert, content, words):
    file = tmp_path / ("log.json" if content.startswith(b"{") else "log.eval")
    file.write_bytes(content)
    with pytest.raises(DataError, match=words):
        convert(file, "inspect")


def test_lighteval_keeps_every_text_of_a_row(tmp_path, convert):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    row = {
        "doc": {"query": "2+3?", "choices": ["5"], "gold_index": [0], "task_name": "lighteval|aime24|0"},
        "model_response": {"text": ["five", "\\boxed{5}"], "input": "2+3?"},
        "metric": {"pass@k": 1.0},
    }
    file = tmp_path / "details_lighteval|aime24|0_2026-01-31T10-00-00.123456.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    rows, _ = convert(file, "lighteval")
    assert [(row.benchmark, row.sample_index, row.completion, row.answer) for row in rows] == [
        ("aime24", 0, "five", "5"),
        ("aime24", 1, "\\boxed{5}", "5"),
    ]
    assert rows[0].id == rows[1].id
    assert rows[0].extra == {"source_scores": {"pass@k": 1.0}}
    parquet.write_table(pyarrow.Table.from_pylist([{**row, "doc": "2+3?"}]), file)
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(DataError, match="must be objects"):
        convert(file, "lighteval")
