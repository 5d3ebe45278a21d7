"""From samples to result documents: counts per problem, their estimates, means over problems, rows.

Everything between `judge` (who is correct) and `Result` (what is written) is a function of counts: n samples, c
correct, cluster sizes s_j. Means run over all problems of a benchmark; an unsolved one counts 0.
"""

# Axes: P problems, K values of k.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Unpack

import numpy as np

from evals import estimators
from evals.bootstrap import average_intervals, benchmark_intervals
from evals.clustering import by_first_appearance, check_linkage, cluster_distinct, cluster_sizes, resolve_threshold
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.judging import Grade, Judged, is_countdown, judge
from evals.records import Samples
from evals.results import About, GraderInfo, ProblemEntry, Result, Row, SamplingInfo
from evals.similarity import SIMILARITIES, check_tokens, distinct, similarity_of_distinct
from evals.strict_json import shown

AVERAGE = "average"
LARGEST_DEFAULT_K = 256


class Setting(NamedTuple):
    """What counts as the same solution; ``threshold`` is None for `exact`."""

    similarity: str
    threshold: float | None
    linkage: str
    tokens: str


class Counts(NamedTuple):
    """All that the estimators need of one problem; ``sizes`` is None before clustering."""

    benchmark: str
    id: str
    n: int
    correct: int
    sizes: tuple[int, ...] | None = None
    found_share: float | None = None


def passk_result(
    samples: Samples,
    *,
    ks: Sequence[int] | None = None,
    ci: bool = False,
    seed: int = 0,
    per_problem: bool = False,
    grade: Grade | None = None,
    regrade: bool = False,
    allow_infra_errors: bool = False,
    **about: Unpack[About],
) -> Result:
    """Pass@k of every benchmark and their average.

    ``ks`` None means 1, 2, 4, ..., 256 up to the smallest n. ``ci`` adds 95 % bootstrap intervals over problems with
    ``seed``. ``about`` goes into the document's head: see `About`.

    Raises:
        UsageError: a k is larger than some problem's n.
        DataError: a sample cannot be judged.
    """
    judged = judge(samples, grade=grade, regrade=regrade, allow_infra_errors=allow_infra_errors)
    ks = _resolve_ks(judged, ks)
    counts = [Counts(problem.benchmark, problem.id, problem.n, problem.correct) for problem in judged]
    value_by_benchmark = {
        name: estimators.pass_at_ks([p.n for p in group], [p.correct for p in group], ks)
        for name, group in _by_benchmark(counts).items()
    }
    rows = _rows("pass@k", ks, _by_benchmark(counts), value_by_benchmark, {}, ci_seed=seed if ci else None)
    problems = [_entry(problem, {}) for problem in counts] if per_problem else None
    return _result("pass@k", samples, rows, problems, about)


def ucc_result(
    samples: Samples,
    *,
    similarities: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str = "math",
    ks: Sequence[int] | None = None,
    ci: bool = False,
    seed: int = 0,
    per_problem: bool = False,
    grade: Grade | None = None,
    regrade: bool = False,
    allow_infra_errors: bool = False,
    **about: Unpack[About],
) -> Result:
    """UCC@k and UCR of every benchmark under every setting (similarity x threshold), and averages over benchmarks.

    ``similarities`` None means tfidf, but exact for countdown; ``thresholds`` None means each similarity's default.
    The other arguments are those of `passk_result`.

    Raises:
        UsageError: as `passk_result`; an unknown similarity, linkage or tokens; a threshold for `exact`.
        DataError: a sample cannot be judged.
    """
    settings_of = {
        name: clustering_settings(name, similarities, thresholds, linkage, tokens)
        for name in dict.fromkeys(row.benchmark for row in samples.rows)
    }
    judged = judge(samples, grade=grade, regrade=regrade, allow_infra_errors=allow_infra_errors)
    ks = _resolve_ks(judged, ks)
    counts_of: dict[Setting, list[Counts]] = {}
    for problem in judged:
        for setting, counts in cluster_counts(problem, settings_of[problem.benchmark]).items():
            counts_of.setdefault(setting, []).append(counts)
    rows: list[Row] = []
    problems: list[ProblemEntry] = []
    for setting, all_counts in counts_of.items():
        groups = _by_benchmark(all_counts)
        ucc, ucr = {}, {}
        for name, group in groups.items():
            ucc[name] = _checked_ucc(group, ks)
            ucr[name] = np.array([[estimators.ucr(p.n, p.sizes or ())] for p in group])
        ci_seed = seed if ci else None
        # A mean over the benchmarks that happen to use this setting would pass for the mean over all.
        average = len(groups) == len(settings_of)
        rows += _rows("ucc@k", ks, groups, ucc, setting._asdict(), ci_seed=ci_seed, average=average)
        rows += _rows("ucr", [None], groups, ucr, setting._asdict(), ci_seed=ci_seed, average=average)
        problems += [_entry(problem, setting._asdict()) for problem in all_counts]
    return _result("ucc@k", samples, rows, problems if per_problem else None, about)


def clustering_settings(
    benchmark: str,
    similarities: Sequence[str] | None,
    thresholds: Sequence[float] | None,
    linkage: str,
    tokens: str,
) -> list[Setting]:
    """Every combination asked for, with defaults resolved for ``benchmark``; raises UsageError as `cluster` does."""
    check_linkage(linkage)
    check_tokens(tokens)
    settings: list[Setting] = []
    for similarity in similarities or (["exact"] if is_countdown(benchmark) else ["tfidf"]):
        if similarity not in SIMILARITIES:
            raise UsageError(f"unknown similarity {similarity!r}; choose from {', '.join(SIMILARITIES)}")
        if similarity == "exact" and thresholds and not similarities:
            raise UsageError(
                f"{benchmark} is clustered by `exact` unless told otherwise, which has no threshold (found "
                f"{thresholds[0]}); add --similarity tfidf or leave --threshold out"
            )
        resolved = [resolve_threshold(similarity, threshold) for threshold in thresholds or ()]
        for threshold in resolved or [resolve_threshold(similarity, None)]:
            settings.append(Setting(similarity, threshold, linkage, tokens))
    return list(dict.fromkeys(settings))


def cluster_counts(problem: Judged, settings: Sequence[Setting]) -> dict[Setting, Counts]:
    """Cluster sizes of the correct completions under each setting; one similarity matrix serves all thresholds."""
    texts = problem.completions
    if is_countdown(problem.benchmark):  # white space around a chain is not another solution
        texts = [text.strip() for text in texts]
    unique = distinct(texts)
    matrix_of: dict[tuple[str, str], Floats] = {}
    counts_of = {}
    for setting in settings:
        found_share = None
        if setting.threshold is None:
            sizes = cluster_sizes(by_first_appearance(unique.which_N))
            found_share = _found_share(problem, len(sizes)) if is_countdown(problem.benchmark) else None
        else:
            key = (setting.similarity, setting.tokens)
            if key not in matrix_of:
                matrix_of[key] = similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens)
            labels = cluster_distinct(unique, matrix_of[key], threshold=setting.threshold, linkage=setting.linkage)
            sizes = cluster_sizes(labels)
        counts_of[setting] = Counts(problem.benchmark, problem.id, problem.n, problem.correct, sizes, found_share)
    return counts_of


def _found_share(problem: Judged, num_found: int) -> float:
    from evals.countdown import count_solutions, parse_prompt

    num_solutions = count_solutions(*parse_prompt(str(problem.answer)))
    return num_found / num_solutions if num_solutions else 0.0


def _resolve_ks(problems: Sequence[Judged], ks: Sequence[int] | None) -> list[int]:
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


def _rows(
    metric: str,
    ks: Sequence[int] | Sequence[None],
    groups: Mapping[str, Sequence[Counts]],
    value_by_benchmark: Mapping[str, Floats],
    setting: Mapping[str, Any],
    *,
    ci_seed: int | None,
    average: bool = True,
) -> list[Row]:
    """A row for each benchmark and k, and with ``average`` the unweighted mean over benchmarks."""
    blocks = []
    for name, group in groups.items():
        value_PK = value_by_benchmark[name]
        interval_K = benchmark_intervals(value_PK, seed=ci_seed) if ci_seed is not None else None
        blocks.append((name, group, value_PK.mean(axis=0), interval_K))
    if average:
        everyone = [problem for group in groups.values() for problem in group]
        average_K = np.mean([mean_K for _, _, mean_K, _ in blocks], axis=0)
        interval_K = average_intervals(list(value_by_benchmark.values()), seed=ci_seed) if ci_seed is not None else None
        blocks.append((AVERAGE, everyone, average_K, interval_K))
    rows = []
    for name, group, mean_K, interval_K in blocks:
        for position, k in enumerate(ks):
            extra: dict[str, Any] = dict(setting)
            if interval_K is not None:
                extra["ci_low"], extra["ci_high"] = interval_K[position]
            shares = [problem.found_share for problem in group if problem.found_share is not None]
            if len(shares) == len(group) and name != AVERAGE:
                extra["share_of_all_solutions"] = float(np.mean(shares))
            rows.append(
                Row(
                    metric=metric,
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
    sampling = about.get("sampling", SamplingInfo())
    counts = {len(problem.samples) for problem in samples.problems()}
    if sampling.n is None and len(counts) == 1:
        sampling = sampling.model_copy(update={"n": counts.pop()})
    return Result(
        metric=metric,
        label=about.get("label"),
        model=about.get("model"),
        method=about.get("method"),
        seed=about.get("sample_seed"),
        sampling=sampling,
        grader=about.get("grader", GraderInfo()),
        rows=rows,
        problems=problems,
        warnings=_warnings(samples),
    )


def _warnings(samples: Samples) -> list[str]:
    from evals.benchmarks import registry

    warnings = list(samples.warnings)
    ids: dict[str, set[str]] = {}
    for row in samples.rows:
        ids.setdefault(row.benchmark, set()).add(row.id)
    for name, present in ids.items():
        known = registry().get(name)
        if known is not None and known.count > len(present):
            warnings.append(f"{name} has {known.count} problems, the samples hold {len(present)} of them")
    return warnings
