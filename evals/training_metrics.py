"""What a training run came to: metrics as means over its last iterations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

LAST_ITERATIONS = 10


def last_mean(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The mean of ``metric`` over the last rows of metrics.jsonl; None where one of them lacks it or has it null.

    A mean over the others would hide that an iteration went wrong.
    """
    values = [row.get(metric) for row in rows[-LAST_ITERATIONS:]]
    known = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
