"""`quatro export` from the outside: a run becomes a folder that other programs and quatro itself load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro.config import Config
from quatro_cli.app import app

runner = CliRunner()


@pytest.fixture
def run(tmp_path: Path, tiny_config: Callable[..., Config]) -> Path:
    from quatro.runs.directory import RunDir
    from quatro.train import train

    path = tmp_path / "run"
    with RunDir.create(path, tiny_config("steps=2")) as opened:
        train(opened.config, opened)
    return path


def quatro(*words: object) -> object:
    return runner.invoke(app, [str(word) for word in words])


def test_an_exported_run_is_sampled_like_the_run_and_by_transformers(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    out = tmp_path / "models" / "tuned"
    result = quatro("export", run, "-o", out)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}\n"
    assert "step 2" in result.stderr
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size == 232

    drawn = {}
    for model in (run, out):
        sampled = quatro("sample", model, "-b", "countdown", "-n", 1, "--seed", 3, "-o", tmp_path / model.name / "s")
        assert sampled.exit_code == 0, sampled.output
        text = (tmp_path / model.name / "s" / "countdown.jsonl").read_text(encoding="utf-8")
        drawn[model] = [json.loads(line)["completion"] for line in text.splitlines()]
    assert drawn[run] == drawn[out]
    assert len(set(drawn[out])) > 100


def test_a_taken_folder_and_unknown_values_are_refused_with_2(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    document = json.loads(quatro("export", run, "-o", out, "--dtype", "bfloat16", "--json").stdout)
    assert document == {"schema": 1, "folder": str(out), "step": 2, "dtype": "bfloat16"}
    for words in (["-o", out], ["-o", tmp_path / "a", "--step", 7], ["-o", tmp_path / "a", "--dtype", "int8"]):
        refused = quatro("export", run, *words)
        assert refused.exit_code == 2, refused.output
    assert "-o" in quatro("export", run, "-o", out).stderr
    assert quatro("export", tmp_path, "-o", tmp_path / "a").exit_code == 2
    assert not (tmp_path / "a").exists()


def test_a_damaged_checkpoint_is_refused_with_4(run: Path, tmp_path: Path) -> None:
    file = run / "checkpoints" / "step-000002" / "model" / "config.json"
    file.write_bytes(file.read_bytes().replace(b"32", b"33", 1))
    refused = quatro("export", run, "-o", tmp_path / "out")
    assert refused.exit_code == 4
    assert "config.json" in refused.stderr
    assert not (tmp_path / "out").exists()
