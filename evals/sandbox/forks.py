"""Processes that are forked here: how they begin, which descriptors they keep, and how they end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from evals.sandbox import kernel
from evals.sandbox.pipes import ERROR_BYTES, EndedError


def fork(run: Callable[..., NoReturn], *arguments: Any) -> int:
    """The number of a new process, which runs the function and never comes back.

    This process has one thread. So what `os.fork` sets anew is fine as it is: locks that no other thread holds, and
    `random`, which is seeded for each program. Leaving it out saves most of the pages that a fork copies.
    """
    pid = kernel.fork()
    if pid:
        return pid
    try:
        run(*arguments)
    except EndedError:
        pass
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}"[:ERROR_BYTES].encode("utf-8", "replace"))
    finally:
        os._exit(1)


def keep_only(descriptors: list[int]) -> None:
    """These become descriptors 0, 1, 2, ..., and all else is closed."""
    high = [os.dup2(descriptor, 200 + index) for index, descriptor in enumerate(descriptors)]
    for index, descriptor in enumerate(high):
        os.dup2(descriptor, index)
    os.closerange(len(descriptors), 1 << 16)


def address_space() -> int:
    """Bytes that this process has mapped."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def ending(status: int) -> str:
    """How a process ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def kill_children(*, spare: int = 0) -> None:
    """Without isolation a program may leave processes behind; they are this one's children, because it adopts them."""
    while pids := [pid for pid in _children() if pid != spare]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]
