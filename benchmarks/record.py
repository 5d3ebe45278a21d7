"""What a long benchmark keeps between two calls: its measurements, and how much time it may take."""

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNFINISHED = 75  # exit status: call again, and what is measured is not measured again


class TimeIsUp(Exception):
    """The minutes of this call are over."""


class Records:
    """Measurements by name, as JSON lines of ``file``; one that stands there for the same ``case`` is not made again.

    ``case`` is whatever makes two measurements comparable: options, device, versions. ``minutes`` may pass from now
    on; None is no limit. With ``is_closed`` nothing more is measured.
    """

    def __init__(self, file: Path | None, case: dict[str, Any], minutes: float | None = None) -> None:
        self.file, self.case = file, json.loads(json.dumps(case))
        self.values: dict[str, Any] = {}
        self.is_closed = False
        self.longest_s, self.end = 0.0, None if minutes is None else time.monotonic() + 60 * minutes
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                if record["case"] == self.case:
                    self.values[record["name"]] = record["value"]
        if minutes is not None:  # a single measurement that takes too long is broken off
            signal.signal(signal.SIGALRM, _raise_time_is_up)
            signal.setitimer(signal.ITIMER_REAL, 60 * minutes)

    def __call__(self, name: str, measure: Callable[[], Any], *, about_s: float = 0.0) -> Any:
        """The value of measurement ``name``, which takes ``about_s`` seconds.

        Raises:
            TimeIsUp: it is not known, and would end too late, as far as the measurements of this call can tell.
        """
        if name in self.values:
            return self.values[name]
        start = time.monotonic()
        is_late = self.end is not None and self.longest_s > 0 and start + max(about_s, self.longest_s) > self.end
        if self.is_closed or is_late:
            raise TimeIsUp
        value = json.loads(json.dumps(measure()))
        seconds = time.monotonic() - start
        self.longest_s = max(self.longest_s, seconds)
        self.values[name] = value
        print(f"{name}: measured in {seconds:.0f} s", file=sys.stderr, flush=True)
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.file, "a", encoding="utf-8") as out:
                out.write(json.dumps({"name": name, "case": self.case, "value": value}) + "\n")
        return value


def _raise_time_is_up(*_: Any) -> None:
    raise TimeIsUp
