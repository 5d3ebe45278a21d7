"""The mathematical reward is the benchmark grader: reward 1 and a benchmark's "correct" mean the same."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from evals.errors import DataError, QuatroError
from evals.grading import close_workers, grade_many
from evals.grading.extraction import extract
from evals.grading.pool import MATH_VERIFY, Pair, SymbolicGrade, SymbolicGrader
from quatro.rewards.base import Groups, Reward, Scored, failure, too_many_failed, verdict
from quatro.rewards.settings import RewardConfig
from quatro.types import Prompt

FAILED = ("error", "infra_error", "timeout")

MAX_PAIRS = 64
CPU_LIMIT_S = 1.0
# Pairs that are asked for at a time; `close` waits for at most one such batch.
_BATCH = 8

_log = logging.getLogger(__name__)


class MathReward(Reward):
    """1 for a correct rollout, 0 for any other. All rollouts of an iteration are graded in one batch."""

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any = None) -> None:
        """Raises DataError for the first prompt without a reference answer."""
        for prompt in prompts:
            if not (prompt.answer or "").strip():
                raise DataError(
                    f"prompt {prompt.id!r} of {prompt.benchmark} has no reference answer, and the reward is math; "
                    "give it an `answer`, leave it out, or choose another reward"
                )

    @classmethod
    def open(cls, config: RewardConfig) -> MathReward:
        return cls()

    def __init__(self) -> None:
        self._opinion: SecondOpinion | None = None

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Scored:
        self.check(prompts)
        # The completion alone: a prompt may hold the box of an earlier part.
        grades = grade_many(
            (rollout.text, prompt.answer)
            for prompt, rollouts in zip(prompts, completions, strict=True)
            for rollout in rollouts
        )
        outcomes = Counter(grade.outcome for grade in grades)
        num_errors, num_timeouts = outcomes["error"] + outcomes["infra_error"], outcomes["timeout"]
        if too_many_failed(num_errors + num_timeouts, len(grades)):
            raise QuatroError(
                f"the grader failed on {num_errors + num_timeouts} of {len(grades)} rollouts "
                f"({', '.join(f'{name} {count}' for name, count in sorted(outcomes.items()))}); "
                "has the machine run out of memory?"
            )
        if outcomes["infra_error"]:
            _log.warning(
                "%d of %d rollouts could not be graded (their processes were killed twice); they earn 0",
                outcomes["infra_error"],
                len(grades),
            )
        found = (
            replace(
                verdict(grade.correct), error=failure(grade.outcome, grade.detail) if grade.outcome in FAILED else ""
            )
            for grade in grades
        )
        graded = [[next(found) for _ in group] for group in completions]
        return Scored(graded, num_errors, num_timeouts)

    def second_opinion(
        self, prompts: Sequence[Prompt], completions: Groups, scored: Scored, seed: str
    ) -> Callable[[], dict[str, float]]:
        """How often math-verify disagrees, over some distinct pairs of extracted answer and reference."""
        verdicts: dict[tuple[str, str], bool] = {}
        for prompt, group, correct in zip(prompts, completions, scored.correct, strict=True):
            for rollout, is_correct in zip(group, correct, strict=True):
                if answer := extract(rollout.text).text:
                    verdicts[answer, (prompt.answer or "").strip()] = bool(is_correct)
        self._opinion = self._opinion or SecondOpinion()
        return self._opinion.ask(verdicts, seed)

    def close(self) -> None:
        close_workers()
        if self._opinion is not None:
            self._opinion.close()
            self._opinion = None


class SecondOpinion:
    """Measures how often math-verify disagrees with the reward, while the policy is updated.

    It asks a worker process of its own: math-verify can hang, and the trainer must not wait for it.
    """

    def __init__(self) -> None:
        self._pool = SymbolicGrader(num_workers=1, cpu_limit_s=CPU_LIMIT_S)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._is_closed = threading.Event()

    def ask(self, verdicts: Mapping[tuple[str, str], bool], seed: str) -> Callable[[], dict[str, float]]:
        """Begins with up to `MAX_PAIRS` of the (answer, reference) in ``verdicts``; what is returned waits for them.

        ``seed`` and the pairs alone decide which they are.
        """
        chosen = sorted(verdicts, key=lambda pair: _rank(seed, *pair))[:MAX_PAIRS]
        found = self._thread.submit(self._grade, [Pair(*pair, MATH_VERIFY, 0.0) for pair in chosen])

        def metrics() -> dict[str, float]:
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

    def _grade(self, pairs: list[Pair]) -> list[SymbolicGrade]:
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
