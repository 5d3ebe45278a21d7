"""Measures how often math-verify disagrees with the reward, while the policy is updated."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from evals.grading.pool import MATH_VERIFY, Pair, SymbolicGrade, SymbolicGrader

MAX_PAIRS = 64
CPU_LIMIT_S = 1.0
# Pairs that are asked for at a time; `close` waits for at most one such batch.
_BATCH = 8

Metrics = dict[str, float]


class SecondOpinion:
    """Asks a worker process of its own: math-verify can hang, and the trainer must not wait for it."""

    def __init__(self) -> None:
        self._pool = SymbolicGrader(num_workers=1, cpu_limit_s=CPU_LIMIT_S)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._is_closed = threading.Event()

    def ask(self, verdicts: Mapping[tuple[str, str], bool], seed: str) -> Callable[[], Metrics]:
        """Begins with up to `MAX_PAIRS` of the (answer, reference) in ``verdicts``; what is returned waits for them.

        ``seed`` and the pairs alone decide which they are.
        """
        chosen = sorted(verdicts, key=lambda pair: _rank(seed, *pair))[:MAX_PAIRS]
        found = self._thread.submit(self._judge, [Pair(*pair, MATH_VERIFY, 0.0) for pair in chosen])

        def metrics() -> Metrics:
            outcomes = [other.outcome for other in found.result()]
            # An overdue or failed pair counts as "not correct"; a killed process counts for nothing.
            differs = [
                verdicts[pair] != (outcome == "correct")
                for pair, outcome in zip(chosen, outcomes, strict=True)
                if outcome != "infra_error"
            ]
            share = sum(differs) / len(differs) if differs else float("nan")
            return {"reward/math_verify_disagreement": share, "reward/math_verify_pairs": float(len(differs))}

        return metrics

    def _judge(self, pairs: list[Pair]) -> list[SymbolicGrade]:
        verdicts = list[SymbolicGrade]()
        while len(verdicts) < len(pairs) and not self._is_closed.is_set():
            verdicts += self._pool.grade(pairs[len(verdicts) : len(verdicts) + _BATCH])
        return verdicts

    def close(self) -> None:
        self._is_closed.set()
        self._thread.shutdown()
        self._pool.close()


def _rank(*texts: str) -> bytes:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()
