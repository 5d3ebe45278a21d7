"""The data of a report: runs with their metrics and configurations, and what their samples hold.

`evals.report.document` turns it into plain JSON values and `evals.report.page` those into a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evals.files.metric_rows import Rows
from evals.report.samples import BenchmarkView
from evals.results.document import Row

BASE_CELL = "base"


@dataclass(frozen=True)
class ReportSamples:
    """The samples of one run under one setting of the sampler, which ``sampling`` says in words.

    ``rows`` are Pass@k and UCC@k. ``views`` is empty if there is only a result file.
    """

    sampling: str
    tag: str
    rows: Sequence[Row]
    views: Sequence[BenchmarkView] = ()


@dataclass(frozen=True)
class ReportRun:
    """One run, or a base model with samples only (``config`` and ``metrics`` empty).

    Runs with the same ``group`` differ in their seed alone. ``settings`` are what its sweep varies, ``config`` its
    dotted keys, both as text; ``delta`` is its KL radius in nats, if its method has one.
    """

    name: str
    group: str
    cell: str = ""
    seed: int | None = None
    method: str = ""
    delta: float | None = None
    status: str = "unknown"
    reason: str = ""
    step: int = 0
    steps: int | None = None
    updated: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    metrics: Rows = ()
    samples: Sequence[ReportSamples] = ()


@dataclass(frozen=True)
class Report:
    """``notes`` stand on the page: what could not be read, and why."""

    title: str
    sources: Sequence[str]
    runs: Sequence[ReportRun]
    notes: Sequence[str] = ()
