"""Logs of inspect-ai and details of lighteval: every sample in them is kept, and what is no log is refused."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.errors import DataError
from evals.samples.importing import Imported
from evals.samples.types import Sample

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


def test_inspect_keeps_every_epoch_and_leaves_out_what_ended_with_an_error(tmp_path: Path, convert: Convert) -> None:
    file = tmp_path / "log.json"
    file.write_text(json.dumps(LOG), encoding="utf-8")
    rows, imported = convert(file, "inspect")
    assert [(row.benchmark, row.id, row.sample_index, row.completion, row.answer) for row in rows] == [
        ("aime24", "p", 0, "five", "5"),
        ("aime24", "p", 1, "\\boxed{5}", "5"),
    ]
    assert (rows[0].prompt, rows[0].finish_reason, rows[0].correct) == ("brief\n\n2+3?", "length", None)
    assert rows[0].extra == {"level": 3, "model": "some/model", "source_scores": {"match": 1.0, "judge": 0.25}}
    assert imported.notes == ["1 samples were left out: they ended with an error and have no answer"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 93])
def test_inspects_archives_hold_the_same(tmp_path: Path, convert: Convert, method: int) -> None:
    parts = {"header.json": {key: LOG[key] for key in ("eval",)}}
    parts |= {f"samples/{sample['id']}_epoch_{sample['epoch']}.json": sample for sample in LOG["samples"]}
    file = tmp_path / "log.eval"
    texts = {name: json.dumps(part).encode() for name, part in parts.items()}
    if method == zipfile.ZIP_DEFLATED:
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
    else:
        write_zstandard(file, texts)
    rows, _ = convert(file, "inspect")
    assert [(row.id, row.sample_index, row.completion) for row in rows] == [("p", 0, "five"), ("p", 1, "\\boxed{5}")]


def write_zstandard(file: Path, texts: dict[str, bytes]) -> None:
    """A zip archive with method 93, which zipfile cannot write: stored parts are relabelled."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as archive:
        for name, text in texts.items():
            archive.writestr(name, pyarrow.Codec("zstd").compress(text, asbytes=True))
        places = archive.infolist()
        start = archive.start_dir
    data = bytearray(stored.getvalue())
    central = start
    for part in places:
        size = len(texts[part.filename]).to_bytes(4, "little")
        for at, offset_of_method, offset_of_size in ((part.header_offset, 8, 22), (central, 10, 24)):
            data[at + offset_of_method : at + offset_of_method + 2] = (93).to_bytes(2, "little")
            data[at + offset_of_size : at + offset_of_size + 4] = size
        central += 46 + len(part.filename)
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{}", "with samples"), (b'{"samples": []}', "which task"), (b"PK", "no .eval log"), (b"", "no .eval log")],
)
def test_what_is_no_log_of_inspect_is_refused_by_name(
    tmp_path: Path, convert: Convert, content: bytes, words: str
) -> None:
    file = tmp_path / ("log.json" if content.startswith(b"{") else "log.eval")
    file.write_bytes(content)
    with pytest.raises(DataError, match=words):
        convert(file, "inspect")


@pytest.mark.parametrize(
    "row",
    [
        {
            "doc": {"query": "2+3?", "choices": ["5"], "gold_index": [0], "task_name": "lighteval|aime24|0"},
            "model_response": {"text": ["five", "\\boxed{5}"], "input": "2+3?"},
            "metric": {"pass@k": 1.0},
        },
        {"full_prompt": "2+3?", "predictions": ["five", "\\boxed{5}"], "gold": ["5"], "metrics": {"pass@k": 1.0}},
    ],
    ids=["0.13", "before 0.10"],
)
def test_lighteval_keeps_every_text_of_a_row(tmp_path: Path, convert: Convert, row: dict[str, Any]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    file = tmp_path / "details_lighteval|aime24|0_2026-01-31T10-00-00.123456.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    rows, _ = convert(file, "lighteval")
    assert [(row.benchmark, row.sample_index, row.completion, row.answer) for row in rows] == [
        ("aime24", 0, "five", "5"),
        ("aime24", 1, "\\boxed{5}", "5"),
    ]
    assert rows[0].id == rows[1].id
    assert rows[0].extra == {"source_scores": {"pass@k": 1.0}}
