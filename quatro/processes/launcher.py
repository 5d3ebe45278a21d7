"""The processes of one `torchrun` or `deepspeed` launch: which one this is, joining them, and ending them together.

Only `joined` imports torch, because a process must know its rank before anything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from evals.errors import QuatroError, UsageError

if TYPE_CHECKING:
    from quatro.processes.world import World

# Longer than ranks drift apart within an iteration: one may sample a minute more than another.
TIMEOUT_S = 1800
TIMEOUT_VARIABLE = "QUATRO_RANK_TIMEOUT_S"


@dataclass(frozen=True)
class Launch:
    """Process ``rank`` of ``size``; it is number ``local_rank`` on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def torchrun_options(processes: int) -> list[str]:
    """What torchrun is told in order to start ``processes`` on a machine."""
    # The ranks save when they are told to stop; torchrun would kill them half a minute later.
    return ["--nproc-per-node", str(processes), "--shutdown-timeout", "600"]


def launched(environment: Mapping[str, str] | None = None) -> Launch:
    """The process that RANK, WORLD_SIZE and LOCAL_RANK describe; a single process if no launcher has set them.

    Raises UsageError if they contradict each other or are not numbers.
    """
    environment = os.environ if environment is None else environment
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    found = {name: environment[name] for name in names if environment.get(name)}
    if "WORLD_SIZE" not in found or found["WORLD_SIZE"] == "1":
        return Launch()
    try:
        rank, size, local_rank = (int(found[name]) for name in names)
    except (KeyError, ValueError):
        rank, size, local_rank = -1, 0, -1
    if not 0 <= local_rank <= rank < size:
        raise UsageError(
            f"the environment says {', '.join(f'{name}={value}' for name, value in found.items())}, expected a rank "
            "below WORLD_SIZE; start with `torchrun --nproc-per-node 2 -m quatro_cli train ...`, or unset them"
        )
    return Launch(rank, size, local_rank)


@contextlib.contextmanager
def joined(launch: Launch, *, is_cuda: bool) -> Iterator[World]:
    """Inside, torch.distributed's default group of all ranks exists: gloo, and NCCL for tensors on a GPU.

    An error inside is told to the other ranks, which would otherwise wait for this one until their deadline. They
    raise `LostRankError` with the exit code of that error, and only one rank prints the message. They raise it, too, if
    a rank is gone or does not come in time.
    """
    from quatro.processes.world import World

    if launch.size == 1:
        yield World()
        return
    import torch

    timeout = timedelta(seconds=float(os.environ.get(TIMEOUT_VARIABLE) or TIMEOUT_S))
    if is_cuda:
        torch.cuda.set_device(launch.local_rank)
    world = World(launch.rank, launch.size)
    with world.waiting("all ranks to start"):
        store, _, _ = next(torch.distributed.rendezvous("env://", timeout=timeout))
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if is_cuda else "gloo",
            store=torch.distributed.PrefixStore("group", store),
            rank=launch.rank,
            world_size=launch.size,
            timeout=timeout,
        )
    world = World(launch.rank, launch.size, torch.distributed.PrefixStore("ranks", store))
    try:
        with world.waiting("another rank"):  # for what a library raises, which says not what it waited for
            yield world
    except BaseException as error:
        failure = _as_lost(error, world)
        if not is_cuda:
            # Threads of gloo that outlive the interpreter abort the process. NCCL's group might wait for the lost rank.
            with contextlib.suppress(RuntimeError):
                torch.distributed.destroy_process_group()
        if failure is error:
            raise
        raise failure from error
    torch.distributed.destroy_process_group()


def _as_lost(error: BaseException, world: World) -> BaseException:
    """The error that this rank ends with: its own if it failed first, else a `LostRankError` already printed."""
    from quatro.processes.world import CAUSE, LostRankError

    if isinstance(error, LostRankError) and error.is_said:
        return error
    message = f"rank {world.rank}: {str(error) or type(error).__name__}"
    cause = {"rank": world.rank, "message": message, "exit_code": _exit_code(error)}
    try:
        first = json.loads(world.store.compare_set(CAUSE, "", json.dumps(cause)))  # the cause that is there by then
    except RuntimeError:  # the rank that held the store is gone: this one speaks for itself
        return error
    return error if first == cause else LostRankError(first["message"], exit_code=first["exit_code"], is_said=True)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, QuatroError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 1
