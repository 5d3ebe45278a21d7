"""Runs of a second on a tiny random policy, and what of two runs must be equal. Functions come as fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import Tensor

Rows = list[dict[str, Any]]


@pytest.fixture
def settings(tiny_folder: Path, digits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of a second in `tmp_path`. Groups of rewards are mixed from the start."""
    monkeypatch.chdir(tmp_path)
    return [
        f"model={tiny_folder}",
        f"reward={digits}",
        *("steps=6", "prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=4", "inner_updates=2"),
        *("optimizer.lr=1e-3", "optimizer.warmup_steps=0", "checkpoint.every=1", "threads=1"),
    ]


@pytest.fixture
def run_training(rows_of: Callable[[Path], Rows]) -> Callable[..., Rows]:
    """``run_training(path, settings, method=None, **options)``: a new run's metrics, row by row."""
    from quatro.config import load_config
    from quatro.runs.directory import RunDir
    from quatro.train import train

    def run(path: Path, settings: list[str], *, method: str | None = None, **options: Any) -> Rows:
        config = load_config("quickstart", overrides=settings, method=method)
        with RunDir.create(path, config) as run:
            train(config, run, **options)
        return rows_of(path)

    return run


@pytest.fixture
def rows_of() -> Callable[[Path], Rows]:
    """``rows_of(run)``: its metrics, row by row."""

    def read(path: Path) -> Rows:
        with (path / "metrics.jsonl").open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    return read


@pytest.fixture
def essence() -> Callable[[Rows], list[str]]:
    """``essence(rows)``: all that must repeat, everything but times."""
    return lambda rows: [
        json.dumps({k: v for k, v in row.items() if not k.startswith(("perf/", "env/"))}) for row in rows
    ]


@pytest.fixture
def weights_of() -> Callable[[Path, int], dict[str, Tensor]]:
    """``weights_of(run, step)``: the tensors of the model in a checkpoint, or of its adapter."""
    from safetensors.torch import load_file

    def read(path: Path, step: int) -> dict[str, Tensor]:
        (file,) = (path / "checkpoints" / f"step-{step:06d}" / "model").glob("*model.safetensors")
        return load_file(file)

    return read


@pytest.fixture
def checkpoint_of() -> Callable[[Path, int], dict[str, Any]]:
    """``checkpoint_of(run, step)``: name -> content of its files, without what tells how large metrics.jsonl was.

    Times stand there in more digits or fewer.
    """

    def read(path: Path, step: int) -> dict[str, Any]:
        folder = path / "checkpoints" / f"step-{step:06d}"
        files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        del files["manifest.json"]
        state = json.loads(files.pop("state.json"))
        return {**files, **{key: value for key, value in state.items() if not key.startswith("metrics")}}

    return read
