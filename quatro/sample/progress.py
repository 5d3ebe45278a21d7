"""How far the drawing of samples is, and how fast it goes."""

from __future__ import annotations

import time
from collections.abc import Callable

# (benchmark, samples in its file, samples wanted, tokens drawn by this call)
DrawProgress = Callable[[str, int, int, int], None]


class Pace:
    """How fast samples are drawn: tokens per second and what is left, from what this call has done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._first: int | None = None

    def note(self, num_done: int, num_wanted: int, num_tokens: int) -> str:
        """``812 tokens/s, 3 min left``; what was in the file before counts for nothing."""
        elapsed_s = self._clock() - self._began_s
        if self._first is None:
            self._first = num_done
        num_new = num_done - self._first
        if elapsed_s <= 0 or not num_tokens:
            return ""
        speed = f"{num_tokens / elapsed_s:,.0f} tokens/s"
        if not num_new or num_done >= num_wanted:
            return speed
        return f"{speed}, {_duration((num_wanted - num_done) * elapsed_s / num_new)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
