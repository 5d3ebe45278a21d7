"""The metrics of training: the one table of those that a reader meets, and the rows of a run's metrics.jsonl.

Figures, the report, the live view and a sweep's summary read the table (`training_metrics.toml`), in the order of its
entries. What each metric means, these and the others, is in docs/metrics.md.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard

from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.text import table_beside

logger = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
LAST_ITERATIONS = 10
_MOST = 1e300  # no measurement is larger, and sums of what is not stay finite

# What evaluations measure is named so: during training, and before it (`eval.at_start`, in the first row alone).
EVALUATED, BASE = "eval/", "base/"
# How many problems an evaluation had, and how many samples of each.
EVALUATION_COUNTS = ("eval/problems", "eval/n")


class View(NamedTuple):
    """A metric's part of a row of the live view; ``text`` holds `{}` for its number.

    If a step lacks the metric, an optional one is left out, and any other is shown as a dash.
    """

    row: str
    text: str = "{}"
    is_optional: bool = False


@dataclass(frozen=True)
class Metric:
    """How one metric is shown; 0, "" and None mean that it is not shown there.

    ``title`` and ``unit`` head its panel, which has a logarithmic axis (``is_log``), or one that begins at 0
    (``is_share``; as text a share is a percentage). ``lines`` are dashed lines across the panel: at the delta of each
    run, or at 1. ``panel`` is its place among the report's panels, ``column`` its title in the report's table of runs;
    ``in_summary`` makes it a column of a sweep's summary.csv.
    """

    name: str
    title: str = ""
    unit: str = ""
    is_log: bool = False
    is_share: bool = False
    lines: Literal["", "delta", "one"] = ""
    panel: int = 0
    column: str = ""
    in_summary: bool = False
    view: View | None = None


TRAINING_METRICS = tuple(
    Metric(name, **{**table, "view": View(**table["view"]) if "view" in table else None})
    for name, table in table_beside(__file__, "training_metrics.toml").items()
)
PANELS = tuple(sorted((metric for metric in TRAINING_METRICS if metric.panel), key=lambda metric: metric.panel))
# What `quatro plot training` draws.
FIGURE_PANELS = tuple(metric for metric in PANELS if metric.name not in ("kl/ratio_to_delta", "grad/norm"))
COLUMNS = tuple(metric for metric in dict.fromkeys((*PANELS, *TRAINING_METRICS)) if metric.column)
SUMMARY_METRICS = tuple(metric.name for metric in TRAINING_METRICS if metric.in_summary)


def training_metric(name: str) -> Metric:
    """The entry of the metric ``name``."""
    return next(metric for metric in TRAINING_METRICS if metric.name == name)


def evaluation_metrics(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that evaluations during training measure, each once, without standard errors and counts."""
    said = dict.fromkeys(name for name in names if name.startswith(EVALUATED))
    return [name for name in said if not name.endswith(("_se", "/problems", "/n"))]


def metric_rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """``file:line`` and row of each iteration. A last line that is not complete is left out, with a warning.

    Raises DataError, which names the line, for one that is no JSON object of numbers and nulls, or has no step.
    """
    for number, line, is_whole in read_lines(file):
        at = f"{file}:{number}"
        row = metric_row(line, at, may_be_torn=not is_whole)
        if row is not None:
            yield at, row
        else:
            logger.warning("%s is not complete and is left out: it is being written, or its process was killed", at)


def metric_row(line: bytes, at: str, *, may_be_torn: bool = False) -> dict[str, Any] | None:
    """One line as in `metric_rows`; None if it is torn."""
    row = parse_row(line, at, may_be_torn=may_be_torn)
    if row is None:
        return None
    for key, value in row.items():
        if value is not None and not (type(value) in (int, float) and abs(value) < _MOST):
            refuse(at, f"{shown(key)} is {shown(value)}, expected a number or null")
    step = row.get("step")
    if step is None or step < 0 or step % 1:
        refuse(at, f"step is {shown(step)}, expected the number of an iteration")
    return row


def metric_dtypes(rows: Rows) -> dict[str, str]:
    """Columns of a data frame of ``rows``: `step` is int64 and comes first, each metric float64."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {"step": "int64", **{name: "float64" for name in names if name != "step"}}


def last_values(rows: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """``metric`` in the last rows, but nothing if one of them lacks it: a mean over the others would hide that."""
    values = [row.get(metric) for row in rows[-LAST_ITERATIONS:]]
    known = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    return known if len(known) == len(values) else []


def last_mean(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The mean of `last_values`; None if there are none."""
    known = last_values(rows, metric)
    return math.fsum(known) / len(known) if known else None


def with_base(rows: Rows) -> Rows:
    """``rows`` behind one of step 0, with what was evaluated before training under the names of evaluations."""
    first = rows[0] if rows else {}
    base = {f"{EVALUATED}{name.removeprefix(BASE)}": value for name, value in first.items() if name.startswith(BASE)}
    return [{"step": 0, **base}, *rows] if base else rows


def series(rows: Rows, metric: str) -> tuple[list[float], list[float]]:
    """Steps and values where the metric is a finite number; of an evaluation also before training, at step 0."""
    pairs = [(row["step"], row[metric]) for row in with_base(rows) if "step" in row and is_finite(row.get(metric))]
    finite = [(float(step), float(value)) for step, value in pairs]
    return [step for step, _ in finite], [value for _, value in finite]


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """Mean of the ``width`` (odd) values around each value; at the ends, of those that exist."""
    half = width // 2
    windows = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [math.fsum(window) / len(window) for window in windows]


def is_finite(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number that can be drawn."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
