"""From samples to result documents: counts per problem, their estimates, means over problems, rows.

Everything between `Judged` (who is correct) and `Result` (what is written) is a function of counts: n samples, c
correct, cluster sizes s_j. Means run over all problems of a benchmark; an unsolved one counts 0.
"""

# Axes: P problems, K values of k.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, Unpack

import numpy as np

from evals import estimators
from evals.bootstrap import average_intervals, benchmark_intervals
from evals.counting import POSITIVE_SEMIDEFINITE, Counts, Setting, clustering_settings, count_clusters
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.heads import head_of, warnings_of
from evals.records import Judged, Samples
from evals.results import AVERAGE, About, ProblemEntry, Result, Row
from evals.strict_json import shown

LARGEST_DEFAULT_K = 256
BESIDE_PASS = ("maj", "g-pass", "cover")
BESIDE_UCC = ("vendi", "distinct")


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


def passk_result(
    samples: Samples,
    *,
    ks: Sequence[int] | None = None,
    also: Sequence[str] = (),
    taus: Sequence[float] = (0.5,),
    ci: bool = False,
    seed: int = 0,
    per_problem: bool = False,
    **about: Unpack[About],
) -> Result:
    """Pass@k of every benchmark and their average, and what ``also`` names: maj (maj@k), and at each of ``taus`` g-pass
    (G-Pass@k) and cover (Cover@tau).

    ``ks`` None means 1, 2, 4, ..., 256 up to the smallest n. ``ci`` adds 95 % bootstrap intervals over problems with
    ``seed``. ``about`` goes into the document's head: see `About`.

    Raises:
        UsageError: a k is larger than some problem's n; an unknown name in ``also``; a tau outside [0, 1].
        DataError: a sample has no verdict.
    """
    check_beside_pass(also, taus)
    judged = samples.judged()
    estimates = passk_estimates(samples, judged, resolve_ks(judged, ks), also=also, taus=taus)
    rows = [row for estimate in estimates for row in rows_of(estimate, ci_seed=seed if ci else None)]
    everyone = [problem for group in estimates[0].groups.values() for problem in group]
    problems = [_entry(problem, {}) for problem in everyone] if per_problem else None
    return _result("pass@k", samples, rows, problems, about)


def ucc_result(
    samples: Samples,
    *,
    also: Sequence[str] = (),
    similarities: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str = "math",
    ks: Sequence[int] | None = None,
    ci: bool = False,
    seed: int = 0,
    per_problem: bool = False,
    jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
    **about: Unpack[About],
) -> Result:
    """UCC@k, UCR, clusters and their effective number under every setting (similarity x threshold), and averages.

    ``similarities`` None means tfidf, but exact for countdown; ``thresholds`` None means each similarity's default;
    ``also`` names more metrics: vendi (Vendi score, of tfidf and exact), distinct (clusters among k correct answers).
    ``jobs`` processes share the problems; ``on_progress(done, total)`` counts those clustered. The other arguments are
    those of `passk_result`.

    Raises:
        UsageError: as `passk_result`; an unknown similarity, linkage or tokens; a threshold for `exact`.
        DataError: a sample has no verdict.
    """
    settings_of = {
        name: clustering_settings(name, similarities, thresholds, linkage, tokens)
        for name in dict.fromkeys(row.benchmark for row in samples.rows)
    }
    judged = samples.judged()
    ks = resolve_ks(judged, ks)
    rows: list[Row] = []
    problems: list[ProblemEntry] = []
    found = count_clusters(judged, settings_of, jobs=jobs, on_progress=on_progress, with_vendi="vendi" in also)
    with_vendi: set[tuple[str, str]] = set()
    for setting, counts in found.items():
        extra = setting._asdict()
        estimates = ucc_estimates(counts, ks, extra, num_benchmarks=len(settings_of))
        if "distinct" in also:
            estimates += _distinct_estimates(counts, ks, extra, num_benchmarks=len(settings_of))
        measure = (setting.similarity, setting.tokens)
        if "vendi" in also and setting.similarity in POSITIVE_SEMIDEFINITE and measure not in with_vendi:
            with_vendi.add(measure)  # no threshold changes it
            estimates.append(_vendi_estimate(counts, setting, num_benchmarks=len(settings_of)))
        rows += [row for estimate in estimates for row in rows_of(estimate, ci_seed=seed if ci else None)]
        problems += [_entry(problem, extra) for problem in counts]
    return _result("ucc@k", samples, rows, problems if per_problem else None, about)


def check_beside_pass(also: Sequence[str], taus: Sequence[float]) -> None:
    """Raises UsageError for an unknown name in ``also`` or a tau outside [0, 1]."""
    unknown = [name for name in also if name not in BESIDE_PASS]
    if unknown:
        raise UsageError(f"unknown metric {unknown[0]!r}; choose from {', '.join(BESIDE_PASS)}")
    outside = [tau for tau in taus if not 0 <= tau <= 1]
    if outside:
        raise UsageError(f"tau is the share of correct draws asked for, in [0, 1]; found {outside[0]}")


def check_beside_ucc(also: Sequence[str], similarities: Sequence[str] | None) -> None:
    """Raises UsageError for an unknown name in ``also``, or if no similarity asked for has a Vendi score."""
    unknown = [name for name in also if name not in BESIDE_UCC]
    if unknown:
        raise UsageError(f"unknown metric {unknown[0]!r}; choose from {', '.join(BESIDE_UCC)}")
    if "vendi" in also and similarities and not set(similarities) & set(POSITIVE_SEMIDEFINITE):
        raise UsageError(
            f"the Vendi score needs a positive semi-definite similarity, {' or '.join(POSITIVE_SEMIDEFINITE)}; found "
            f"{', '.join(similarities)}"
        )


def passk_estimates(
    samples: Samples,
    judged: Sequence[Judged],
    ks: Sequence[int],
    *,
    also: Sequence[str] = (),
    taus: Sequence[float] = (),
) -> list[Estimate]:
    """Pass@k of every problem, then maj@k and G-Pass@k where asked for."""
    votes: list[tuple[int, ...] | None] = [None] * len(judged)
    if "maj" in also:
        from evals.majority import wrong_votes

        votes = [wrong_votes(*pair) for pair in zip(samples.problems(), judged, strict=True)]
    counts = [
        Counts(problem.benchmark, problem.id, problem.n, problem.correct, wrong=wrong)
        for problem, wrong in zip(judged, votes, strict=True)
    ]
    groups = _by_benchmark(counts)
    passed = {
        name: estimators.pass_at_ks([p.n for p in group], [p.correct for p in group], ks)
        for name, group in groups.items()
    }
    estimates = [Estimate("pass@k", ks, groups, passed, {})]
    if "maj" in also:
        maj = cache(estimators.maj_at_k)
        values = _of_each(groups, ks, lambda p, k: maj(p.n, p.correct, p.wrong or (), k))
        estimates.append(Estimate("maj@k", ks, groups, values, {}))
    if "g-pass" in also:
        estimates += [_g_pass_estimate(groups, ks, tau) for tau in dict.fromkeys(taus)]
    if "cover" in also:
        estimates += [_cover_estimate(groups, tau) for tau in dict.fromkeys(taus)]
    return estimates


def ucc_estimates(
    counts: Sequence[Counts], ks: Sequence[int], extra: Mapping[str, Any], *, num_benchmarks: int
) -> list[Estimate]:
    """UCC@k and what cluster sizes say besides: UCR, number of clusters, Hill's effective number of order 1."""
    groups = _by_benchmark(counts)
    is_averaged = len(groups) == num_benchmarks
    without_k: dict[str, Callable[[Counts], float]] = {
        "ucr": lambda problem: estimators.ucr(problem.n, problem.sizes or ()),
        "num_clusters": lambda problem: len(problem.sizes or ()),
        "effective_number": lambda problem: estimators.effective_number(problem.sizes or (), 1),
    }
    ucc = {name: _checked_ucc(group, ks) for name, group in groups.items()}
    estimates = [Estimate("ucc@k", ks, groups, ucc, extra, is_averaged)]
    for metric, value in without_k.items():
        values = {name: np.array([[value(problem)] for problem in group], float) for name, group in groups.items()}
        estimates.append(Estimate(metric, [None], groups, values, extra, is_averaged))
    return estimates


def _g_pass_estimate(groups: Mapping[str, Sequence[Counts]], ks: Sequence[int], tau: float) -> Estimate:
    g_pass = cache(estimators.g_pass_at_k)
    values = _of_each(groups, ks, lambda problem, k: g_pass(problem.n, problem.correct, k, tau))
    return Estimate("g-pass@k", ks, groups, values, {"tau": tau})


def _cover_estimate(groups: Mapping[str, Sequence[Counts]], tau: float) -> Estimate:
    values = {
        name: np.array([[estimators.cover(p.n, p.correct, tau)] for p in group]) for name, group in groups.items()
    }
    return Estimate("cover", [None], groups, values, {"tau": tau})


def _vendi_estimate(counts: Sequence[Counts], setting: Setting, *, num_benchmarks: int) -> Estimate:
    groups = _by_benchmark(counts)
    values = {name: np.array([[problem.vendi or 0.0] for problem in group]) for name, group in groups.items()}
    extra = {"similarity": setting.similarity, "tokens": setting.tokens}
    return Estimate("vendi", [None], groups, values, extra, len(groups) == num_benchmarks)


def _distinct_estimates(
    counts: Sequence[Counts], ks: Sequence[int], extra: Mapping[str, Any], *, num_benchmarks: int
) -> list[Estimate]:
    """Clusters among k draws from the correct answers alone, over the problems that have k of them."""
    estimates = []
    for k in ks:
        groups = _by_benchmark([problem for problem in counts if problem.correct >= k])
        values = {
            name: estimators.ucc_at_ks([p.correct for p in group], [p.sizes or () for p in group], [k])
            for name, group in groups.items()
        }
        estimates.append(Estimate("distinct@k", [k], groups, values, extra, len(groups) == num_benchmarks))
    return estimates


def _of_each(
    groups: Mapping[str, Sequence[Counts]], ks: Sequence[int], value: Callable[[Counts, int], float]
) -> dict[str, Floats]:
    return {name: np.array([[value(problem, k) for k in ks] for problem in group]) for name, group in groups.items()}


def resolve_ks(problems: Sequence[Judged], ks: Sequence[int] | None) -> list[int]:
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


def _checked_ucc(group: Sequence[Counts], ks: Sequence[int]) -> Floats:
    n_P = [problem.n for problem in group]
    c_P = [problem.correct for problem in group]
    sizes_P = [problem.sizes or () for problem in group]
    ucc_PK = estimators.ucc_at_ks(n_P, sizes_P, ks)
    estimators.check_identities(n_P, c_P, sizes_P, ks, estimators.pass_at_ks(n_P, c_P, ks), ucc_PK)
    return ucc_PK


def _by_benchmark(counts: Sequence[Counts]) -> dict[str, list[Counts]]:
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


def _entry(problem: Counts, setting: Mapping[str, Any]) -> ProblemEntry:
    optional = dict(setting)
    if problem.sizes is not None:
        optional["clusters"] = list(problem.sizes)
    return ProblemEntry(benchmark=problem.benchmark, id=problem.id, n=problem.n, correct=problem.correct, **optional)


def _result(
    metric: str, samples: Samples, rows: list[Row], problems: list[ProblemEntry] | None, about: About
) -> Result:
    head = head_of(about, samples)
    return Result(metric=metric, **head, rows=rows, problems=problems, warnings=warnings_of(samples))
