"""Grades of the symbolic stage that are known already, and the one pool that finds the others."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence

from evals.grading.guard import refusal
from evals.grading.pool import Pair, SymbolicGrade, SymbolicGrader
from evals.grading.typography import clean

# Part of every result and of every key below: raise it whenever a grade may come out differently.
GRADER_VERSION = "6"
MAX_GRADES = 200_000

_Key = tuple[str, str, float, str, str]


class GradeCache:
    """Answers pairs from memory, then from the guard, then from workers; each different pair is graded once.

    The key is (grader version, policy, tolerance, normalised answer, reference). Failures of the machine are not kept.
    """

    def __init__(self, workers: SymbolicGrader) -> None:
        self._workers = workers
        self._grades: dict[_Key, SymbolicGrade] = {}
        self._lock = threading.Lock()

    def grade(
        self, pairs: Sequence[Pair], on_progress: Callable[[int, int], None] | None = None, *, jobs: int | None = None
    ) -> list[SymbolicGrade]:
        """Grades of the pairs, in their order; ``on_progress(done, total)`` counts those that workers grade.

        ``jobs`` starts no more workers than that.
        """
        keys = [_key(pair) for pair in pairs]
        found: dict[_Key, SymbolicGrade] = {}
        missing: dict[_Key, Pair] = {}
        with self._lock:
            for key, pair in zip(keys, pairs, strict=True):
                if key in self._grades:
                    found[key] = self._grades[key]
                elif reason := refusal(key[3]) or refusal(clean(pair.reference)):
                    found[key] = SymbolicGrade("incorrect", "guard", reason)
                else:
                    missing.setdefault(key, pair)
        if missing:
            total = len(missing)
            tell = (lambda done: on_progress(done, total)) if on_progress else None
            found.update(zip(missing, self._workers.grade(list(missing.values()), tell, jobs=jobs), strict=True))
            self._keep({key: found[key] for key in missing})
        return [found[key] for key in keys]

    def _keep(self, grades: dict[_Key, SymbolicGrade]) -> None:
        with self._lock:
            self._grades.update((key, kept) for key, kept in grades.items() if kept.outcome != "infra_error")
            for key in list(self._grades)[: max(0, len(self._grades) - MAX_GRADES)]:
                del self._grades[key]

    def close(self) -> None:
        self._workers.close()

    def abandon(self) -> None:
        self._workers.abandon()


def _key(pair: Pair) -> _Key:
    return GRADER_VERSION, pair.policy, pair.relative_tolerance, clean(pair.answer), pair.reference


_shared: GradeCache | None = None
_shared_lock = threading.Lock()


def shared_cache() -> GradeCache:
    """The cache and pool of this process, made at the first call and closed when the interpreter ends."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = GradeCache(SymbolicGrader())
            atexit.register(close_workers)
        return _shared


def close_workers() -> None:
    """Ends the worker processes; the next undecided pair starts them anew."""
    if _shared is not None:
        _shared.close()


def _after_fork_in_child() -> None:
    # The workers belong to the parent: two processes on one pipe would read each other's grades.
    global _shared, _shared_lock
    _shared_lock = threading.Lock()
    if _shared is not None:
        _shared.abandon()
        _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
