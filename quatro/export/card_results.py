"""Pass@k and UCC@k on a model card: a table for people, and the index that the Hub reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evals.results.document import Result, Row
from evals.tables.titles import rows_in_order, title_of
from evals.text import visible
from quatro.export.card_text import number, plain, scalar, table

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

FoundResults = Sequence[tuple[str, Result]]  # with the name of where each was found


def _shown(results: FoundResults) -> Iterator[tuple[str, Result, Row]]:
    """Pass@k and UCC@k of each benchmark, and their average where there are several; with where they were found."""
    for place, result in results:
        is_one = len({row.benchmark for row in result.rows} - {"average"}) == 1
        for row in rows_in_order(result.rows):
            if row.metric in ("pass@k", "ucc@k") and not (is_one and row.benchmark == "average"):
                yield place, result, row


def model_index(results: FoundResults) -> list[EvalResult]:
    """The numbers of `results_section` as the Hub reads them."""
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=visible(row.benchmark, keep=""),
            dataset_name=visible(title_of(row.benchmark), keep=""),
            metric_type=f"{row.metric.removesuffix('k')}{row.k}",
            metric_name=_title(row),
            metric_value=float(_value(row, row.value)),
            metric_args={key: value for key, value in _settings(result, row).items() if value is not None},
        )
        for _, result, row in _shown(results)
    ]


def results_section(results: FoundResults) -> str:
    """Pass@k and UCC@k as a table; empty where there are none."""
    rows = [_row(*found) for found in _shown(results)]
    if not rows:
        return ""
    header = ["metric", "benchmark", "value", "95 % interval", "problems", "samples"]
    header += ["T", "top_p", "clustering", "from"]
    return "\n".join(
        [
            "## Results",
            "",
            "Pass@k in percent; UCC@k is the number of distinct correct answers among k draws.",
            "",
            *table(header, rows),
        ]
    )


def _row(place: str, result: Result, row: Row) -> list[str]:
    interval = "-" if row.ci_low is None else f"{_value(row, row.ci_low)} to {_value(row, row.ci_high)}"
    settings = _settings(result, row)
    cells = [_title(row), title_of(row.benchmark), _value(row, row.value), interval]
    cells += [str(settings["problems"]), str(settings["samples"])]
    cells += [number(settings["temperature"]), number(settings["top_p"]), settings["clustering"] or "-", place]
    return [plain(cell) for cell in cells]


def _title(row: Row) -> str:
    return f"{'Pass' if row.metric == 'pass@k' else 'UCC'}@{row.k}"


def _value(row: Row, value: float | None) -> str:
    """Pass@k in percent; UCC@k is a count."""
    return "-" if value is None else f"{100 * value:.1f}" if row.metric == "pass@k" else f"{value:.2f}"


def _settings(result: Result, row: Row) -> dict[str, Any]:
    clustering = " ".join(scalar(part) for part in (row.similarity, row.threshold, row.linkage) if part is not None)
    sampling = {"temperature": result.sampling.temperature, "top_p": result.sampling.top_p}
    return {"problems": row.num_problems, "samples": row.n, **sampling, "clustering": clustering or None}
