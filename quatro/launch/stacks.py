"""Where a run hangs: the stacks of all threads in log.txt, on SIGUSR1 and when an iteration takes far too long."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import signal
import statistics
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TextIO

from quatro.config import Config

logger = logging.getLogger(__name__)

SLOW = 20.0  # times the median
LEAST_S = 1.0  # shorter iterations are not worth a word
FEWEST = 5  # iterations before a median is believed


class Watchdog:
    """Writes the stacks of all threads to ``file`` when an iteration takes ``SLOW`` times as long as the median one.

    It is an observer of the training loop, and each call winds it up for the next iteration. The clock is a thread of
    faulthandler without Python, so it goes off even where the main thread hangs in C code. Iterations with an
    evaluation have a median of their own.
    """

    def __init__(self, config: Config, file: TextIO) -> None:
        self._eval_every = config.eval.every
        self._file = file
        self._seconds: dict[bool, list[float]] = defaultdict(list)
        self._limit_s: float | None = None

    def __call__(self, metrics: Mapping[str, float]) -> None:
        step, taken_s = int(metrics["step"]), metrics["perf/step_s"]
        if self._limit_s is not None and taken_s > self._limit_s:
            logger.warning(
                "iteration %d took %.1f s, more than %g times the median: log.txt has the stacks of all threads after "
                "%.1f s",
                step,
                taken_s,
                SLOW,
                self._limit_s,
            )
        self._seconds[self._is_evaluated(step)].append(taken_s)
        self.close()
        known = self._seconds[self._is_evaluated(step + 1)]
        if len(known) >= FEWEST:
            self._limit_s = max(LEAST_S, SLOW * statistics.median(known))
            faulthandler.dump_traceback_later(self._limit_s, file=self._file)

    def close(self) -> None:
        """Nothing is written any more."""
        self._limit_s = None
        faulthandler.cancel_dump_traceback_later()

    def _is_evaluated(self, step: int) -> bool:
        return self._eval_every > 0 and step % self._eval_every == 0


@contextlib.contextmanager
def dumped_on_signal(file: TextIO, path: Path) -> Iterator[None]:
    """SIGUSR1 writes the stacks of all threads to ``file``, which is at ``path``, and says so.

    Outside the main thread, where Python takes no signal handlers, the signal keeps its meaning.
    """
    if not hasattr(signal, "SIGUSR1") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def say(number: int, frame: FrameType | None) -> None:
        # The signal may have arrived inside a write to the same stream, which must not be entered twice.
        with contextlib.suppress(RuntimeError):
            logger.info("SIGUSR1: the stacks of all threads are in %s", path)

    # To stderr, by the command line. The stubs of mypy do not know that there is an answer.
    was_dumped: bool = faulthandler.unregister(signal.SIGUSR1)  # type: ignore[func-returns-value,assignment]
    before = signal.signal(signal.SIGUSR1, say)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, before)
        if was_dumped:
            faulthandler.register(signal.SIGUSR1)
