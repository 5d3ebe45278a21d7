"""Where an iteration's time goes, phase by phase, on the monotonic clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PHASES = (
    *("prompts", "generate", "reward", "dual", "old_logp", "ref_logp", "update", "audit"),
    *("sync", "eval", "checkpoint", "log"),
)


class PhaseTimer:
    """``with timer("generate"):`` adds to that phase; `take` returns the seconds since its last call."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._start = time.monotonic()

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - start

    def take(self, *, num_tokens: int, num_passes: int) -> dict[str, float]:
        """Fields under perf/: seconds per phase, of the whole step and outside any phase, and response tokens a second.

        ``num_passes`` times the update saw the ``num_tokens`` that were drawn.
        """
        now = time.monotonic()
        step_s = now - self._start
        metrics = {f"perf/{phase}_s": self._seconds.get(phase, 0.0) for phase in PHASES}
        metrics["perf/other_s"] = step_s - sum(self._seconds.values())
        metrics["perf/step_s"] = step_s
        metrics["perf/tokens_per_s"] = num_tokens / step_s if step_s > 0 else 0.0
        for phase, count in (("generate", num_tokens), ("update", num_tokens * num_passes)):
            seconds = self._seconds.get(phase, 0.0)
            metrics[f"perf/{phase}_tokens_per_s"] = count / seconds if seconds > 0 else 0.0
        self._seconds, self._start = {}, now
        return metrics
