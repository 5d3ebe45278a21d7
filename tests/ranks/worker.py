"""One rank of a launch in which several runs are trained one after another: `worker.py JOBS.json`.

A job is {"path", "settings", "method", "resume", "stop_after", "stop_in", "oom_in", "deaf", "free_bytes"}; `stop_in`
and `oom_in` ask one rank to stop, or leave it without memory, at the Nth call of a method: {"rank", "call", "count"}.
`deaf`: the first rank listens to no signal. `free_bytes`: what DeepSpeed's policy is told of the free memory, by rank.
What DeepSpeed keeps whole under ZeRO-3 because it is small is sharded all the same: models of tests are small. Ends as
`quatro` does: a message and an exit code.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from quatro.config import load_config
from quatro.policy import deepspeed
from quatro.policy.base import Policy
from quatro.processes.launcher import joined, launched
from quatro.processes.stop import StopRequest
from quatro.processes.world import World
from quatro.rollout.transformers import TransformersEngine
from quatro.runs.directory import RunDir
from quatro.runs.followed import FollowedRun
from quatro.train import train
from quatro.train_run import train_run
from quatro_cli import errors

deepspeed.WHOLE_ELEMENTS = 0


UNLIMITED = (1 << 50, 1 << 50)
CALLS = {"update": (Policy, "update"), "forward": (Policy, "forward"), "generate": (TransformersEngine, "_draw")}


@contextlib.contextmanager
def at_call(asked: Mapping[str, Any] | None, rank: int, act: Callable[[], None]) -> Iterator[None]:
    """``act()`` on this rank alone, at a moment known beforehand."""
    if asked is None or asked["rank"] != rank:
        yield
        return
    owner, name = CALLS[asked["call"]]
    original, num_calls = getattr(owner, name), 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == asked["count"]:
            act()
        return original(*arguments, **options)

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, original)


def work(job: Mapping[str, Any], world: World) -> None:
    path, is_resumed = Path(job["path"]), job.get("resume", False)
    stop, last = StopRequest(), job.get("stop_after")
    is_deaf = world.is_first and job.get("deaf", False)
    config = load_config(
        path if is_resumed else "quickstart", overrides=job.get("settings", []), method=job.get("method")
    )

    def watch(metrics: Mapping[str, float]) -> None:
        if metrics["step"] == last:
            stop.request()

    def end_of_memory() -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with (
        at_call(job.get("stop_in"), world.rank, lambda: stop.request(signal.SIGTERM)),
        at_call(job.get("oom_in"), world.rank, end_of_memory),
        mock.patch.object(deepspeed, "free_bytes", return_value=job.get("free_bytes", UNLIMITED)[world.rank]),
    ):
        if world.is_first:
            with RunDir.open(path) if is_resumed else RunDir.create(path, config) as run:
                world.barrier("the run directory")
                train_run(run, observer=watch, stop=None if is_deaf else stop, world=world)
        else:
            world.barrier("the run directory")
            train(config, FollowedRun(path, config), stop=stop, world=world)
    assert is_deaf or stop.requested == (last is not None or "stop_in" in job)


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
