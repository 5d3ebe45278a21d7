"""Processes that are forked here: how they begin, what they use, how they end, and their working folder.

Of what they use, CPU time decides, and the time in which they wait for nothing but themselves.
"""

import contextlib
import os
import resource
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from evals.sandbox import kernel
from evals.sandbox.pipes import ERROR_BYTES, EndedError

MOST_FILES = 4096  # in the working folder
MOST_THREADS = 256  # more than a program has use for


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


def megabytes(maxrss: int) -> float:
    """Megabytes of a `ru_maxrss`, which is in kilobytes on Linux and in bytes on macOS."""
    return maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


class Meter:
    """Reads one process, all of its threads together."""

    def __init__(self, pid: int) -> None:
        self._clock = (~pid << 3) | 2  # the kernel's number of another process's CPU clock
        self._threads = f"/proc/{pid}/task"
        self.num_threads = 1

    def cpu_s(self) -> float:
        """CPU seconds used so far; 0 for a process that is gone."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def busy_s(self) -> float:
        """Seconds in which it ran or would have run, had a processor been free."""
        try:
            threads = os.listdir(self._threads)
        except OSError:
            return self.cpu_s()
        self.num_threads = len(threads)
        queued_ns = 0
        for thread in threads[:MOST_THREADS]:
            try:
                with open(f"{self._threads}/{thread}/schedstat", encoding="ascii") as file:
                    queued_ns += int(file.read().split()[1])
            except (OSError, IndexError, ValueError):
                continue  # it ended, or the kernel keeps no such figures
        return self.cpu_s() + queued_ns / 1e9


class IdleClock:
    """Seconds in which none of some processes ran or waited for a processor: they sleep or wait for one another."""

    def __init__(self, meters: list[Meter]) -> None:
        self._meters = meters
        self._last_s = time.monotonic()
        self._busy_s = [0.0 for _ in meters]
        self.idle_s = 0.0

    def read(self) -> float:
        """The seconds up to now."""
        now_s = time.monotonic()
        busy_s = [meter.busy_s() for meter in self._meters]
        # A thread that ended takes its queueing time along, so differences may be negative.
        busy = sum(max(0.0, one - other) for one, other in zip(busy_s, self._busy_s, strict=True))
        self.idle_s += max(0.0, now_s - self._last_s - busy)
        self._last_s, self._busy_s = now_s, busy_s
        return self.idle_s
