"""Reads the metrics.jsonl of a run."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.frames import DataFrame, frame_of
from evals.results.training_metrics import metric_dtypes, metric_row, metric_rows

_TAIL_BYTES = 64 * 1024


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """Rows of metrics.jsonl, if any; a torn last line, as after a kill, is left out. Raises as `metric_rows`."""
    path = run / "metrics.jsonl"
    for _, row in metric_rows(path) if path.exists() else ():
        yield row


def metrics_frame(run: Path) -> DataFrame:
    """`read_metrics` as a data frame: one row a step, `step` int64, each metric float64 and NaN where it is unknown.

    Raises DataError as `metric_rows`.
    """
    rows = list(read_metrics(run))
    return frame_of(rows, metric_dtypes(rows))


def last_metrics(run: Path) -> dict[str, Any]:
    """The last whole row of metrics.jsonl, empty where there is none; raises DataError as `metric_rows`."""
    file = run / "metrics.jsonl"
    if not file.is_file():
        return dict(*read_metrics(run))  # of nothing, or it refuses what is there
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        # What follows the last newline is being written at this moment.
        lines = stream.read().split(b"\n")[:-1]
    try:
        return metric_row(lines[-1], str(file)) or {} if lines else {}
    except DataError:  # the tail does not know the number of its lines
        rows = deque(read_metrics(run), maxlen=1)
        return rows[0] if rows else {}
