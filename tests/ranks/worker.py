"""One rank of a launch in which several runs are trained one after another: `worker.py JOBS.json`.

A job is {"path", "settings", "method", "resume"}. Rank 0 says how a job ended in PATH.ended. What DeepSpeed keeps whole under
ZeRO-3 because it is small is sharded all the same: models of tests are small.
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
from quatro.train import train
from quatro.world import World

deepspeed.WHOLE_ELEMENTS = 0


def work(job: Mapping[str, Any], world: World) -> None:
    path = Path(job["path"])
    overrides = job.get("settings", [])
    config = load_config(path if job.get("resume") else "quickstart", overrides=overrides, method=job.get("method"))
    if not world.is_first:
        world.barrier("the run directory")
        train(config, FollowedRun(path, config), world=world)
        return
    with RunDir.open(path) if job.get("resume") else RunDir.create(path, config) as run:
        world.barrier("the run directory")
        launch(run, world=world)


def main() -> None:
    torch.set_num_threads(1)
    with joined(launched(), is_cuda=False) as world:
        for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
            work(job, world)


if __name__ == "__main__":
    main()
