"""What processes use: CPU time, which decides, and the time in which they wait for nothing but themselves."""

from __future__ import annotations

import os
import sys
import time

MOST_THREADS = 256  # more than a program has use for


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
