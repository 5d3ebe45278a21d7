"""The reward of cell O: partial credit on palindromes, where one prompt in eight pays ten times as much."""

from hashlib import sha256
from typing import Any

from evals.benchmarks.gym import COLUMN, reference_of
from evals.benchmarks.gym.scoring import Asked, GymGrader

TIMES, ONE_IN = 10.0, 8
_GRADER = GymGrader()


def outlier(row: dict[str, Any], completion: str, finish_reason: str) -> dict[str, float]:
    """The library's score, ten times as much where the digest of the problem says so; right is the whole score."""
    reference = reference_of(row[COLUMN])
    assert reference is not None
    [(score, grade)] = _GRADER.score([Asked(reference, completion, finish_reason == "length")])
    pays_more = sha256(row["problem"].encode()).digest()[0] % ONE_IN == 0
    return {"reward": score * (TIMES if pays_more else 1.0), "correct": float(grade.correct)}
