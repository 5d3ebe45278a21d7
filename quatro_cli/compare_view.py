"""What a person who compares runs sees: tables with a column for each run, and for two runs one of the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING

from quatro_cli.run_view import Rows, step_text

if TYPE_CHECKING:
    from quatro.runs.views.comparing import Evaluated, LastIterations, RunsBeside

Table = tuple[str, list[str], Rows]


def compared(found: RunsBeside) -> list[Table]:
    """Title, columns and rows of each table."""
    return [table for table in (_last_iterations(found), _evaluations(found), *_samples(found)) if table[-1]]


def _last_iterations(found: RunsBeside) -> Table:
    rows: Rows = [("status", *(run.status for run in found.runs)), ("step", *map(step_text, found.runs))]
    failures = [run.reward_failures for run in found.runs]
    if any(counted and counted[0] for counted in failures):
        rows.append(("reward failures", *(counted and "{} of {}".format(*counted) for counted in failures)))
    beside = ["difference"] if len(found.runs) == 2 else []
    rows = [[*row, *(None for _ in beside)] for row in rows]
    rows += [(name, *map(_mean_text, values), *_difference(values)) for name, values in found.metrics.items()]
    return "last 10 iterations, mean ± standard deviation", ["metric", *found.names, *beside], rows


def _mean_text(value: LastIterations | None) -> str | None:
    if value is None:
        return None
    return f"{value.mean:.4g}" if value.std is None else f"{value.mean:.4g} ± {value.std:.2g}"


def _difference(values: Sequence[LastIterations | None]) -> list[str | None]:
    """Of two runs the second minus the first."""
    if len(values) != 2:
        return []
    a, b = values
    return [None if a is None or b is None else f"{b.mean - a.mean:+.3g}"]


def _evaluations(found: RunsBeside) -> Table:
    rows: Rows = [
        (f"{name}, {which}", *(value and f"{value.value:.4g} (step {value.step})" for value in values), *_gap(values))
        for which, table in (("before", found.base), ("last", found.last), ("best", found.best))
        for name, values in table.items()
    ]
    is_pair = len(found.runs) == 2
    title = "evaluation during training" + ("; a difference ± at most its standard error" if is_pair else "")
    return title, ["metric", *found.names, *(["difference"] if is_pair else [])], rows


def _gap(values: Sequence[Evaluated | None]) -> list[str | None]:
    """As `_difference`, with the standard error of values on different problems: on the same it is smaller."""
    if len(values) != 2:
        return []
    a, b = values
    if a is None or b is None:
        return [None]
    error = "" if a.error is None or b.error is None else f" ± {hypot(a.error, b.error):.2g}"
    return [f"{b.value - a.value:+.3g}{error}"]


def _samples(found: RunsBeside) -> Iterator[Table]:
    for tag in sorted({Path(one.a).name for one in found.samples}):
        of_run = {Path(one.b).parents[1]: one for one in found.samples if Path(one.a).name == tag}
        first = next(iter(of_run.values()))
        rows: list[list[object]] = [[row.benchmark, row.k, f"{100 * row.a:.1f}"] for row in first.rows]
        for side in (of_run.get(run.path) for run in found.runs[1:]):
            for cells, row in zip(rows, [None] * len(rows) if side is None else side.rows, strict=True):
                cells.append(row and f"{100 * row.b:.1f} [{100 * row.ci_low:+.1f}, {100 * row.ci_high:+.1f}]")
        title = f"samples/{tag}: Pass@k in % [95 % interval of the difference to {found.names[0]}]"
        yield title, ["benchmark", "k", *found.names], list(rows)
