"""One rank of a launch in which several runs are trained one after another: `worker.py JOBS.json`.

A job is {"path", "settings", "method", "resume", "stop_after", "stop_in", "oom_in", "deaf", "watch"}; `stop_in` and
`oom_in` ask one rank to stop, or leave it without memory, at the Nth call of a method: {"rank", "call", "count"}.
`deaf`: the first rank listens to no signal. `watch`: a file for what the first rank exchanged (see `Traffic`). What
DeepSpeed keeps whole under ZeRO-3 because it is small is sharded all the same: models of tests are small. Ends as
`quatro` does: a message and an exit code.
"""

from __future__ import annotations

import contextlib
import functools
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
from quatro.policy.torch_policy import TorchPolicy
from quatro.processes.launcher import joined, launched
from quatro.processes.stop import StopRequest
from quatro.processes.world import World
from quatro.rollout.decoding import Decoding
from quatro.runs.directory import FollowedRun, RunDir
from quatro.train import train
from quatro_cli.app import report

deepspeed.WHOLE_ELEMENTS = 0


CALLS = {
    "update": (TorchPolicy, "update"),
    "forward": (TorchPolicy, "forward"),
    "generate": (Decoding, "_draw"),
    "whole": (deepspeed.DeepSpeedPolicy, "_whole"),
}
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
NO_GRADIENT = 64  # elements; norms and flags are smaller


class Traffic:
    """What DeepSpeed exchanges while it is watched, and how much of the model is whole at once.

    ``updates`` has for each optimiser step the backward passes, the reductions of gradients and their elements.
    ``whole_bytes`` is the most of weights that was gathered while an engine was sent them, ``largest_bytes`` that of
    the largest weight, and ``model_bytes`` that of all.
    """

    def __init__(self) -> None:
        self.updates: list[dict[str, int]] = []
        self.whole_bytes = self.largest_bytes = self.model_bytes = 0
        self._sent: Any = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        from deepspeed import zero
        from deepspeed.comm.torch import TorchBackend

        owners: list[tuple[Any, str, Callable[..., Any]]] = [
            (TorchPolicy, "update", self.update),
            (deepspeed.DeepSpeedPolicy, "_backward", self.backward),
            (deepspeed.DeepSpeedPolicy, "named_weights", self.named_weights),
            (zero.GatheredParameters, "__enter__", self.gather),
            *((TorchBackend, name, self.reduce) for name in REDUCTIONS),
        ]
        with contextlib.ExitStack() as patches:
            for owner, name, watch in owners:
                original = getattr(owner, name)
                watching = functools.partialmethod(_watched, watch, original)
                patches.enter_context(mock.patch.object(owner, name, watching))
            yield

    def update(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.updates.append({"backward": 0, "reductions": 0, "elements": 0})
        return original(*arguments, **options)

    def backward(self, original: Callable[..., Any], *arguments: Any) -> Any:
        self.updates[-1]["backward"] += 1
        return original(*arguments)

    def reduce(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        sizes = [value.numel() for value in (*arguments, *options.values()) if isinstance(value, torch.Tensor)]
        if self.updates and max(sizes) > NO_GRADIENT:
            self.updates[-1]["reductions"] += 1
            self.updates[-1]["elements"] += max(sizes)
        return original(*arguments, **options)

    def named_weights(self, original: Callable[..., Any], policy: Any) -> Iterator[tuple[str, torch.Tensor]]:
        self._sent = policy.model
        sizes = [weight.element_size() * getattr(weight, "ds_numel", 0) for weight in policy.model.parameters()]
        self.largest_bytes, self.model_bytes = max(sizes), sum(sizes)
        yield from original(policy)
        self._sent = None

    def gather(self, original: Callable[..., Any], gathered: Any) -> None:
        original(gathered)
        if self._sent is not None:
            whole = [weight for weight in self._sent.parameters() if weight.numel() == weight.ds_numel]
            self.whole_bytes = max(self.whole_bytes, sum(weight.nbytes for weight in whole))

    def save(self, path: str) -> None:
        Path(path).write_text(json.dumps({**vars(self), "_sent": None}), encoding="utf-8")


def _watched(
    first: Any, watch: Callable[..., Any], original: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    return watch(original, first, *arguments, **options)


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

    traffic = Traffic()
    with (
        traffic.watched() if "watch" in job else contextlib.nullcontext(),
        at_call(job.get("stop_in"), world.rank, lambda: stop.request(signal.SIGTERM)),
        at_call(job.get("oom_in"), world.rank, end_of_memory),
    ):
        if world.is_first:
            with RunDir.open(path) if is_resumed else RunDir.create(path, config) as run:
                world.barrier("the run directory")
                train(run.config, run, observer=watch, stop=None if is_deaf else stop, world=world)
        else:
            world.barrier("the run directory")
            train(config, FollowedRun(path, config), stop=stop, world=world)
    if "watch" in job and world.is_first:
        traffic.save(job["watch"])
    assert is_deaf or stop.requested == (last is not None or "stop_in" in job)


def main() -> int:
    torch.set_num_threads(1)
    try:
        with joined(launched(), is_cuda=False) as world:
            for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
                work(job, world)
    except Exception as error:
        return report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
