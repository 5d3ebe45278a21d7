"""One rank of a launch in which several runs are trained one after another: `worker.py JOBS.json`.

A job is {"path", "settings", "method", "resume", "stop_after"}. What DeepSpeed keeps whole under ZeRO-3 because it is
small is sharded all the same: models of tests are small. Ends as `quatro` does: a message and an exit code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from quatro.config import load_config
from quatro.launch import launch
from quatro.policy import deepspeed
from quatro.ranks import FollowedRun, joined, launched
from quatro.rundir import RunDir
from quatro.stop import StopRequest
from quatro.train import train
from quatro.world import World
from quatro_cli import errors

deepspeed.WHOLE_ELEMENTS = 0


def work(job: Mapping[str, Any], world: World) -> None:
    path, is_resumed = Path(job["path"]), job.get("resume", False)
    stop, last = StopRequest(), job.get("stop_after")
    config = load_config(
        path if is_resumed else "quickstart", overrides=job.get("settings", []), method=job.get("method")
    )

    def watch(metrics: Mapping[str, float]) -> None:
        if metrics["step"] == last:
            stop.request()

    if not world.is_first:
        world.barrier("the run directory")
        train(config, FollowedRun(path, config), stop=stop, world=world)
        assert stop.requested == (last is not None)
        return
    with RunDir.open(path) if is_resumed else RunDir.create(path, config) as run:
        world.barrier("the run directory")
        launch(run, observer=watch, stop=stop, world=world)


def main() -> int:
    torch.set_num_threads(1)
    try:
        with joined(launched(), is_cuda=False) as world:
            for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
                work(job, world)
    except Exception as error:
        return errors.report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
