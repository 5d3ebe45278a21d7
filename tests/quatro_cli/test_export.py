"""`quatro export` from the outside: a run becomes a folder that other programs and quatro itself load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quatro.config import Config
from tests.kit import quatro, read_rows, says


@pytest.fixture
def run(tmp_path: Path, tiny_config: Callable[..., Config]) -> Path:
    from quatro.runs.directory import RunDir
    from quatro.train import train

    path = tmp_path / "run"
    with RunDir.create(path, tiny_config("steps=2")) as opened:
        train(opened.config, opened)
    return path


def test_an_exported_run_is_sampled_like_the_run_and_by_transformers(run, tmp_path):
    from transformers import AutoModelForCausalLM

    out = tmp_path / "models" / "tuned"
    result = quatro("export", run, "-o", out)
    assert result.stdout == f"{out}\n"
    assert "step 2" in result.stderr
    assert f"hf upload OWNER/NAME {out}" in result.stderr
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size == 232

    drawn = {}
    for model in (run, out):
        quatro("sample", model, "-b", "countdown", "-n", 1, "--seed", 3, "-o", tmp_path / model.name / "s")
        drawn[model] = [row["completion"] for row in read_rows(tmp_path / model.name / "s/countdown.jsonl")]
    assert drawn[run] == drawn[out]
    assert len(set(drawn[out])) > 100


def test_a_taken_folder_and_unknown_values_are_refused_with_2(run, tmp_path):
    out = tmp_path / "out"
    document = json.loads(quatro("export", run, "-o", out, "--json").stdout)
    assert document == {"schema": 1, "folder": str(out), "step": 2, "dtype": "float32"}
    for words in (["-o", out], ["-o", tmp_path / "a", "--step", 7], ["-o", tmp_path / "a", "--dtype", "float16"]):
        quatro("export", run, *words, code=2)
    says(quatro("export", run, "-o", out, code=2), out, "-o")
    quatro("export", tmp_path, "-o", tmp_path / "a", code=2)
    assert not (tmp_path / "a").exists()


def test_a_damaged_checkpoint_is_refused_with_4(run, tmp_path):
    file = run / "checkpoints" / "step-000002" / "model" / "config.json"
    file.write_bytes(file.read_bytes().replace(b"32", b"33", 1))
    assert "config.json" in quatro("export", run, "-o", tmp_path / "out", code=4).stderr
    assert not (tmp_path / "out").exists()
