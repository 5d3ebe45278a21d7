"""Rows of result files by label, for figures that need whole rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from evals.errors import DataError, UsageError
from evals.files.strict_json import shown
from evals.results.document import Result, Row
from evals.results.reading import read_sources
from evals.text import visible


def rows_by_label(
    paths: Sequence[Path],
    metrics: Collection[str],
    *,
    made_by: str,
    expand: Callable[[Path], Sequence[tuple[Result, Path]]] | None = None,
) -> dict[str, list[Row]]:
    """The rows of ``metrics`` in ``paths`` by label. The label is a row's own, the document's, or the file's name.

    A run directory stands for its results/*.json, of which those without such rows are left out. ``made_by`` is the
    command that makes the files, for messages; ``expand`` reads a sweep, as `read_sources` has it.

    Raises:
        UsageError: two files have the same label, or a path occurs twice.
        DataError: a file is no result document or holds none of ``metrics``.
    """
    sources = read_sources(paths, expand=expand)
    rows: dict[str, list[Row]] = {}
    from_file: dict[str, Path] = {}
    for one in sources.results:
        found = [row for row in one.result.rows if row.metric in metrics]
        if not found and any(run in one.path.parents for run in sources.runs):
            continue
        if not found:
            raise DataError(f"{one.path}: it holds no {' or '.join(metrics)}; make it with `{made_by}`")
        for row in found:
            label = visible(str((row.model_extra or {}).get("label") or one.label))
            if from_file.setdefault(label, one.path) != one.path:
                raise UsageError(
                    f"{from_file[label]} and {one.path} are both labelled {shown(label)}; give each its own with "
                    "--label when you make it"
                )
            rows.setdefault(label, []).append(row)
    if not rows:
        raise DataError(f"{', '.join(map(str, paths))}: no results with {' or '.join(metrics)}; make them: `{made_by}`")
    return rows
