"""Where an iteration's time goes, phase by phase, on the monotonic clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PHASES = (
    "prompts",
    "generate",
    "reward",
    "dual",
    "old_logp",
    "ref_logp",
    "update",
    "audit",
    "sync",
    "eval",
    "checkpoint",
    "log",
)
OTHER = "other"  # time outside all phases


class Stopwatch:
    """``phase("dual")`` ends the phase under way and begins that one; `take` returns the seconds of each phase."""

    def __init__(self) -> None:
        self._is_held = False
        self._begin()

    def _begin(self) -> None:
        self._seconds = dict.fromkeys((*PHASES, OTHER), 0.0)
        self._phase = OTHER
        self._start = self._since = time.monotonic()

    def phase(self, name: str) -> None:
        """What follows counts as phase ``name``."""
        if self._is_held:
            return
        now = time.monotonic()
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = name, now

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Inside, all time counts as phase ``name``, whatever other phases begin."""
        self.phase(name)
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def take(self, *, num_tokens: int, num_passes: int) -> dict[str, float]:
        """Fields under perf/ since the last call: seconds of each phase and in all, and response tokens per second.

        ``num_tokens`` were drawn, and the update saw each of them ``num_passes`` times.
        """
        self.phase(OTHER)
        seconds, step_s = self._seconds, self._since - self._start
        metrics = {f"perf/{phase}_s": value for phase, value in seconds.items()}
        metrics["perf/step_s"] = step_s
        metrics["perf/tokens_per_s"] = num_tokens / step_s if step_s > 0 else 0.0
        for phase, count in (("generate", num_tokens), ("update", num_tokens * num_passes)):
            metrics[f"perf/{phase}_tokens_per_s"] = count / seconds[phase] if seconds[phase] > 0 else 0.0
        self._begin()
        return metrics
