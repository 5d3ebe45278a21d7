"""Estimates of every problem, their means over a benchmark as rows, and the head of the document that they stand in."""

# Axes: P problems, K values of k.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from evals.benchmarks.catalogue import registry
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.files.strict_json import shown
from evals.intervals import average_intervals, benchmark_intervals
from evals.metrics.counting import Counts
from evals.results.document import AVERAGE, About, GraderInfo, Row, SamplingInfo
from evals.samples.types import GradedProblem, Samples

LARGEST_DEFAULT_K = 256


class Estimate(NamedTuple):
    """A metric of every problem: ``values`` holds a (P, K) array and ``groups`` its P problems for each benchmark.

    ``ks`` is [None] where the metric has no k; ``extra`` goes into every row. ``is_averaged`` False: a mean over the
    benchmarks that happen to be here would pass for the mean over all.
    """

    metric: str
    ks: Sequence[int | None]
    groups: Mapping[str, Sequence[Counts]]
    values: Mapping[str, Floats]
    extra: Mapping[str, Any]
    is_averaged: bool = True


def resolve_ks(problems: Sequence[GradedProblem], ks: Sequence[int] | None) -> list[int]:
    """The ks asked for, or 1, 2, 4, ..., 256 up to the smallest n; raises UsageError for one that is too large."""
    if not problems:
        raise DataError("no samples")
    smallest = min(problem.n for problem in problems)
    if ks is None:
        return [2**i for i in range(LARGEST_DEFAULT_K.bit_length()) if 2**i <= smallest]
    if not ks:
        raise UsageError("no k given; expected a list such as --k 1,2,4")
    for k in ks:
        if k < 1:
            raise UsageError(f"k = {k}: k is a number of draws, at least 1")
    largest = max(ks)
    short = next((problem for problem in problems if problem.n < largest), None)
    if short is not None:
        raise UsageError(
            f"k = {largest} needs {largest} samples per problem, but {shown(short.id)} of {short.benchmark} has n = "
            f"{short.n}; draw more with `quatro sample --n {largest}`, or lower --k to {smallest}"
        )
    return list(dict.fromkeys(ks))


def by_benchmark(counts: Sequence[Counts]) -> dict[str, list[Counts]]:
    """The problems of each benchmark; raises DataError for a benchmark that is named like the average."""
    groups = {name: list(group) for name, group in groupby(counts, key=lambda problem: problem.benchmark)}
    if AVERAGE in groups:
        raise DataError(f"a benchmark is named {AVERAGE!r}, which is the name of the mean over benchmarks; rename it")
    return groups


def rows_of(estimate: Estimate, *, ci_seed: int | None) -> list[Row]:
    """A row for each benchmark and k, and the unweighted mean over benchmarks."""
    blocks = []
    for name, group in estimate.groups.items():
        value_PK = estimate.values[name]
        interval_K = benchmark_intervals(value_PK, seed=ci_seed) if ci_seed is not None else None
        blocks.append((name, group, value_PK.mean(axis=0), interval_K))
    if estimate.is_averaged:
        everyone = [problem for group in estimate.groups.values() for problem in group]
        average_K = np.mean([mean_K for _, _, mean_K, _ in blocks], axis=0)
        values = list(estimate.values.values())
        interval_K = average_intervals(values, seed=ci_seed) if ci_seed is not None else None
        blocks.append((AVERAGE, everyone, average_K, interval_K))
    rows = []
    for name, group, mean_K, interval_K in blocks:
        for position, k in enumerate(estimate.ks):
            extra = dict(estimate.extra)
            if interval_K is not None:
                extra["ci_low"], extra["ci_high"] = interval_K[position]
            shares = [problem.found_share for problem in group if problem.found_share is not None]
            if len(shares) == len(group) and name != AVERAGE:
                extra["share_of_all_solutions"] = float(np.mean(shares))
            rows.append(
                Row(
                    metric=estimate.metric,
                    benchmark=name,
                    k=k,
                    value=float(mean_K[position]),
                    num_problems=len(group),
                    n=min(problem.n for problem in group),
                    **extra,
                )
            )
    return rows


def head_of(about: About, samples: Samples) -> dict[str, Any]:
    """Keyword arguments of `Result` for its head; what nobody said is None, n is counted where it is the same for all.

    ``about`` is what `about_samples` found, and a label.
    """
    sampling = about.get("sampling", SamplingInfo())
    counts = {len(problem.samples) for problem in samples.problems()}
    if sampling.n is None and len(counts) == 1:
        sampling = sampling.model_copy(update={"n": counts.pop()})
    return {
        "label": about.get("label"),
        "model": about.get("model"),
        "method": about.get("method"),
        "seed": about.get("sample_seed"),
        "sampling": sampling,
        "grader": about.get("grader", GraderInfo()),
    }


def warnings_of(samples: Samples) -> list[str]:
    """What whoever reads numbers about ``samples`` must know: what was found while reading them, and each benchmark of
    which they hold only a part."""
    warnings = list(samples.warnings)
    ids: dict[str, set[str]] = {}
    for row in samples.rows:
        ids.setdefault(row.benchmark, set()).add(row.id)
    for name, present in ids.items():
        known = registry().get(name)
        usable = known.count - known.num_empty if known is not None else 0
        if usable > len(present):
            warnings.append(f"{name} has {usable} problems, the samples hold {len(present)} of them")
    return warnings
