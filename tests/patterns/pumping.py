"""Searches with every pattern in texts that repeat a part of it: none may take more than time linear in the text.

Run by `test_patterns` as a process of its own, which a limit of CPU time ends. Each line of its output is a slow
pattern; the last line of its standard error is the pattern that it was at.
"""

from __future__ import annotations

import gc
import re
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ambiguity import repeated
from collecting import ROOT, patterns

sys.path.insert(0, str(ROOT))
CPU_LIMIT_S = 150
SIZES = (1000, 4000, 20_000)
# The longest text that the patterns of a file meet.
LONGEST = {
    "evals/grading/__init__.py": SIZES[-1],
    "evals/grading/": 4000,
    "quatro/sweep/plan.py": 1000,  # an option of a command
}
# Of one search: twenty times what a linear one takes, and a fifth of a quadratic one.
SECONDS = {1000: 0.02, 4000: 0.02, 20_000: 0.1}
BODIES = (
    *("a.m.", "\\text{to}", "a2 * ", "1,", "1 ", "((", "{", "}", "\\frac", " ", "\\boxed{", "\\", "a", "1"),
    *("-", "=", "$", "\n", "'", "&", "\x00", "answer is ", "1e", "`", "é", "²", "1.1"),
)
ENDS = ("", "@")


class TooSlow(Exception):
    pass


def texts(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], str]]:
    """Functions from a length to a text of that length."""
    own = dict.fromkeys(repeated(pattern.pattern, pattern.flags))
    parts = [("", body) for body in BODIES]
    parts += [part for before, body in own for part in ((before, body), ("", body), ("", before + body))]
    for before, body in dict.fromkeys(parts):
        for end in ENDS:
            yield lambda size, parts=(before, body, end): parts[0] + parts[1] * (size // len(parts[1])) + parts[2]


def search(pattern: re.Pattern[Any], method: str, text: str) -> Callable[[], object]:
    subject: str | bytes = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    if method in ("match", "fullmatch"):
        return lambda: getattr(pattern, method)(subject)
    return lambda: deque(pattern.finditer(subject), maxlen=0)  # all other methods do the same or less


def seconds(action: Callable[[], object], limit: float) -> float:
    """CPU seconds that an action takes, the least of up to four times."""
    taken = []
    for _ in range(4):
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, 10 * limit)
        try:
            action()
        except TooSlow:
            return 10 * limit
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        taken.append(time.process_time() - begin)
        if taken[-1] < limit:
            break
    return min(taken)


def stop(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    signal.signal(signal.SIGPROF, stop)
    gc.disable()
    for found in patterns():
        sys.stderr.write(f"{found.where}\n")
        longest = next((size for start, size in LONGEST.items() if found.where.startswith(start)), SIZES[-1])
        sizes = [size for size in SIZES if size <= longest] or [longest]
        methods = {method if method in ("match", "fullmatch") else "finditer" for method in found.methods}
        for method in sorted(methods):
            for text in texts(found.pattern):
                for size in sizes:
                    limit = SECONDS.get(size, 0.02)
                    taken = seconds(search(found.pattern, method, text(size)), limit)
                    if taken > limit:
                        where = f"{found.where}: {method} of {text(20)!r}..."
                        sys.stdout.write(f"{where} takes {taken:.2f} s at {size} characters\n")
                        break


if __name__ == "__main__":
    main()
