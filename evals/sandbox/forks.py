"""Processes that are forked here: how they begin, what they keep, how they end, and the folder that they work in."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Callable
from typing import Any, NoReturn

from evals.sandbox import kernel
from evals.sandbox.pipes import ERROR_BYTES, EndedError

MOST_FILES = 4096  # in the working folder


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


def empty(folder: str) -> None:
    """Removes all that lies in a folder, without recursion: thousands of nested folders are no trouble."""
    counter = 0
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, stat.S_IRWXU)
            for inner in list(os.scandir(entry.path)):
                counter += 1
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, stat.S_IRWXU)  # the kernel wants to write in what it moves
                os.rename(inner.path, os.path.join(folder, f"..{os.getpid()}-{counter}"))
            os.rmdir(entry.path)


def is_overfull(folder: str, most_bytes: int) -> bool:
    """Whether there are more files in a folder, or more bytes in them, than a program may have."""
    num_files = num_bytes = 0
    waiting = [folder]
    try:
        while waiting:
            for entry in os.scandir(waiting.pop()):
                num_files += 1
                num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                if num_files > MOST_FILES or num_bytes > most_bytes:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    except FileNotFoundError:
        return False  # it is being changed
    except OSError:
        return True  # a path that is too long, or a folder that cannot be read
    return False
