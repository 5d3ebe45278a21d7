"""Counts per problem of a sweep's samples, and means over seeds and problems of what follows from them.

Imports no torch.
"""

# Axes: S seeds, P problems, C counts of correct samples.
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evals.errors import DataError, UsageError
from evals.estimators import Floats, fail_table, hit_table
from evals.intervals import mean_over_seeds_and_problems
from evals.metrics.flips import BUCKETS, FLIP, FLIP_AT_K, bucket_of
from evals.results.document import Result, Row, read_result
from quatro.runs.identity import read_config
from quatro.runs.tag import Tag
from quatro.sample.measure import UCC
from quatro.sweep.results import SweptRun, base_folder, chosen_runs, chosen_tag, fitting_tags, label_of

NEVER = "never"  # solved by the base


@dataclass(frozen=True)
class Counts:
    """For each problem, in one order: ``n`` samples, the ``correct`` ones (P,), and the sizes of their clusters."""

    benchmark: str
    ids: tuple[str, ...]
    n: int
    correct: Floats
    clusters: tuple[tuple[int, ...], ...]
    setting: Mapping[str, str | float | None]  # what counted as one cluster: similarity, threshold, linkage, tokens

    def passed(self, k: int) -> Floats:
        """pass@k (P,)."""
        passed_P: Floats = hit_table(self.n, [k])[0][self.correct.astype(int)]
        return passed_P

    def unique(self, k: int) -> Floats:
        """UCC@k (P,)."""
        hit_C = hit_table(self.n, [k])[0]
        return np.array([math.fsum(hit_C[list(sizes)]) for sizes in self.clusters])

    def unique_ratio(self) -> Floats:
        """UCR (P,): clusters of correct answers over samples."""
        return np.array([len(sizes) / self.n for sizes in self.clusters])

    def flips(self, base: Counts, name: str, k: int) -> Floats:
        """Over the problems that ``base`` never solved (`never`) or of a bucket: newly solved, or flip@k (P,).

        Raises:
            DataError: the two hold other problems, or other numbers of samples.
        """
        if (self.ids, self.n) != (base.ids, base.n):
            raise DataError("the samples of the base and of a run hold different problems or numbers of samples")
        base_P, tuned_P = base.correct.astype(int), self.correct.astype(int)
        if name == NEVER:
            is_in_P = base_P == 0
            flipped_P: Floats = (tuned_P > 0).astype(np.float64)
        else:
            is_in_P = np.array([bucket_of(base.n, int(count)) == name for count in base_P], dtype=bool)
            flipped_P = fail_table(base.n, [k])[0][base_P] * hit_table(base.n, [k])[0][tuned_P]
        flipped_P = flipped_P[is_in_P]
        return flipped_P


def counts_in(run: Path, tag: Tag) -> Counts:
    """The counts of the samples ``tag`` of a run, which are of one benchmark.

    Raises:
        DataError: the samples have not been measured, the counts of each problem are missing, or there are several
            benchmarks.
    """
    found = all_counts_in(run, tag)
    if len(found) > 1:
        raise DataError(f"{tag.folder(run) / UCC} holds several benchmarks ({', '.join(found)}), expected one")
    return next(iter(found.values()))


def all_counts_in(run: Path, tag: Tag) -> Mapping[str, Counts]:
    """The counts of the samples ``tag`` of a run by benchmark.

    Raises:
        DataError: the samples have not been measured, or the counts of each problem are missing.
    """
    return _read_counts(tag.folder(run) / UCC)


def is_measured(run: Path, tag: Tag) -> bool:
    """Whether the samples ``tag`` of a run have been counted."""
    return (tag.folder(run) / UCC).is_file()


def averaged_row(metric: str, k: int | None, value_SP: Floats, counts: Counts, **more: str | float | None) -> Row:
    """The mean of shares over seeds and problems; of one seed the interval is over problems alone.

    An interval of Student's t ends where shares do, at 0 and 1.
    """
    found = mean_over_seeds_and_problems(value_SP if len(value_SP) > 1 else value_SP.T)
    known: dict[str, Any] = {**more}
    return Row(
        metric=metric,
        benchmark=counts.benchmark,
        k=k,
        value=found.mean,
        num_problems=value_SP.shape[1],
        n=counts.n,
        ci_low=None if found.low is None else max(0.0, found.low),
        ci_high=None if found.high is None else min(1.0, found.high),
        **known,
    )


def temperature_rows(group: Mapping[int, Path], tag: Tag) -> list[Row]:
    """UCR and pass@1 of a setting on each benchmark; ``group`` is its run by seed."""
    rows = []
    for everyone in _by_benchmark(group, tag):
        ratio_SP = np.stack([counts.unique_ratio() for counts in everyone])
        solved_SP = np.stack([counts.passed(1) for counts in everyone])
        rows.append(averaged_row("ucr", None, ratio_SP, everyone[0], **everyone[0].setting))
        rows.append(averaged_row("pass@k", 1, solved_SP, everyone[0]))
    return rows


def flip_rows(group: Mapping[int, Path], base: Path, tag: Tag) -> list[Row]:
    """Newly solved problems, and flip@k of each bucket at k = 1, 2, 4, ..., n, on each benchmark.

    An empty bucket has no row.
    """
    befores, rows = all_counts_in(base, tag), []
    for everyone in _by_benchmark(group, tag):
        before = befores.get(everyone[0].benchmark)
        if before is None:
            raise DataError(f"{tag.folder(base)}: no samples of {everyone[0].benchmark}; repeat the sweep's command")
        solved_SP = np.stack([counts.flips(before, NEVER, 1) for counts in everyone])
        rows += [averaged_row(FLIP, None, solved_SP, before, bucket=BUCKETS[0].name)] if solved_SP.size else []
        for k in [2**i for i in range(before.n.bit_length())]:
            for bucket in BUCKETS:
                value_SP = np.stack([counts.flips(before, bucket.name, k) for counts in everyone])
                rows += [averaged_row(FLIP_AT_K, k, value_SP, before, bucket=bucket.name)] if value_SP.size else []
    return rows


def _by_benchmark(group: Mapping[int, Path], tag: Tag) -> list[list[Counts]]:
    """The counts of all seeds, for each benchmark that every seed has been measured on."""
    everyone = [all_counts_in(group[seed], tag) for seed in sorted(group)]
    return [[found[name] for found in everyone] for name in everyone[0] if all(name in found for found in everyone)]


def temperature_results(
    folder: Path, *, top_p: float | None = None, temperature: float | None = None, cell: str | None = None
) -> list[tuple[Result, Path]]:
    """UCR and pass@1 of every setting, at every temperature that it was sampled at, or at one.

    Raises:
        UsageError: several top_p were measured, and none is chosen; otherwise as `labelled_results`.
    """
    tags = fitting_tags(folder, chosen_runs(folder, cell), top_p, temperature)
    top_ps = sorted({tag.top_p for tag in tags})
    if len(top_ps) > 1:
        listed = ", ".join(f"{one:g}" for one in top_ps)
        raise UsageError(f"{folder} was measured at top_p {listed}; choose one with --top-p")
    return _by_setting(folder, cell, tags, temperature_rows)


def flip_results(
    folder: Path, *, top_p: float | None = None, temperature: float | None = None, cell: str | None = None
) -> list[tuple[Result, Path]]:
    """Flips of every setting against the base that its runs began from; raises as `labelled_results`.

    Raises:
        DataError: that base was not sampled.
    """

    def rows_at(group: Mapping[int, Path], tag: Tag) -> list[Row]:
        config = read_config(next(iter(group.values())))  # the runs of a group differ in their seed alone
        base = base_folder(folder, config.model, config.rollout.max_new_tokens)
        if base is None:
            raise DataError(f"{folder}: the base was not sampled; add it with `quatro sweep {folder} --eval NAME`")
        return flip_rows(group, base, tag)

    return _by_setting(folder, cell, [chosen_tag(folder, chosen_runs(folder, cell), top_p, temperature)], rows_at)


_RowsAt = Callable[[Mapping[int, Path], Tag], list[Row]]  # a setting's run by seed, the tag of its samples


def _by_setting(folder: Path, cell: str | None, tags: Sequence[Tag], rows_at: _RowsAt) -> list[tuple[Result, Path]]:
    """The rows of each setting at each of ``tags``, which differ in their temperature alone."""
    runs = chosen_runs(folder, cell)
    cells = list(dict.fromkeys(run.cell for run in runs))
    if len(cells) > 1:
        raise UsageError(f"{folder} has the cells {', '.join(cells)}; a figure of bars shows one: choose with --cell")
    groups: dict[str, list[SweptRun]] = {}
    for run in runs:
        groups.setdefault(label_of(run.settings, method=run.config.method.name), []).append(run)
    found = []
    for label, members in groups.items():
        for tag in tags:
            group = {run.seed: run.folder for run in members if is_measured(run.folder, tag)}
            if not group:
                continue
            name = label if len(tags) == 1 else f"{label}, T {tag.temperature:g}"
            rows = rows_at(group, tag)
            found.append((Result(metric=rows[0].metric, label=name, rows=rows), members[0].folder))
    return found


@cache
def _read_counts(path: Path) -> Mapping[str, Counts]:
    problems = sorted(read_result(path).problems or (), key=lambda problem: problem.id)
    if not problems:
        raise DataError(
            f"{path} lacks the counts of each problem; delete it and repeat the sweep's command, which measures the "
            "samples again"
        )
    found = {}
    for name in dict.fromkeys(problem.benchmark for problem in read_result(path).problems or ()):
        own = [problem for problem in problems if problem.benchmark == name]
        if len({problem.n for problem in own}) > 1:
            raise DataError(f"{path}: problems of {name} with different numbers of samples")
        found[name] = Counts(
            benchmark=name,
            ids=tuple(problem.id for problem in own),
            n=own[0].n,
            correct=np.array([problem.correct for problem in own], dtype=np.float64),
            clusters=tuple(tuple(problem.clusters or ()) for problem in own),
            setting={key: getattr(own[0], key) for key in ("similarity", "threshold", "linkage", "tokens")},
        )
    return found
