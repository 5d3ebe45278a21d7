"""Training on a CUDA device that is not there, beside the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quatro.rehearse.device import Device

Metrics = list[dict[str, Any]]


class Watch:
    """The observer of a run: its metrics, without what measures it, and on a device its phases."""

    def __init__(self, gpu: Device | None) -> None:
        self.gpu = gpu
        self.rows: Metrics = []

    def __call__(self, metrics: Any) -> None:
        self.rows.append({name: value for name, value in metrics.items() if not name.startswith(("perf/", "env/"))})

    def doing(self, stage: Any) -> None:
        if self.gpu is not None:
            self.gpu.begin(stage.within or stage.phase)


@pytest.fixture
def trained(tiny_config: Callable[..., Any], digits: str, tmp_path: Path) -> Callable[..., Metrics]:
    """``trained("run", *settings, gpu=gpu)``: the metrics of two iterations in that folder, on ``gpu`` or the CPU."""
    from quatro.runs.directory import RunDir
    from quatro.train import train

    def run(
        name: str, *settings: str, gpu: Device | None = None, method: str | None = None, stop: Any = None
    ) -> Metrics:
        device = "cpu" if gpu is None else "cuda"
        given = ("steps=2", "optimizer.lr=1e-3", f"reward={digits}", f"device={device}", *settings)
        config, watch = tiny_config(*given, method=method), Watch(gpu)
        open_run = RunDir.open if (tmp_path / name).exists() else RunDir.create
        with open_run(tmp_path / name, *([] if (tmp_path / name).exists() else [config])) as opened:
            train(config, opened, observer=watch, stop=stop)
        return watch.rows

    return run
