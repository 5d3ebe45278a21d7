"""How much better one set of samples does than another on the same problems, and whether that could be chance.

Differences are taken problem by problem before anything is averaged. Most of the spread between problems is common
to both sets (some problems are easy, some are not) and cancels.
"""

# Axes: P problems, K values of k.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from evals.intervals import average_paired_differences
from evals.metrics.beside import check_beside_pass
from evals.metrics.counted import Counted
from evals.metrics.counting import by_benchmark, clustering_settings, resolve_ks
from evals.metrics.pairing import check_pairs, told_of_sides
from evals.metrics.passk_ucc import Estimate, passk_estimates, ucc_estimates
from evals.results.comparison import Comparison, DifferenceRow
from evals.results.document import AVERAGE
from evals.samples.types import Samples

LEAST_PROBLEMS = 10  # of a benchmark: with 5, a model that is compared with itself has p < 0.05 in 17 % of all cases


def compare_passk(
    a: Samples | Counted,
    b: Samples | Counted,
    *,
    names: tuple[str, str],
    ks: Sequence[int] | None = None,
    also: Sequence[str] = (),
    taus: Sequence[float] = (0.5,),
    seed: int = 0,
) -> Comparison:
    """Pass@k of ``b`` minus that of ``a`` with paired intervals and p-values; options as in `passk_result`.

    Raises:
        DataError: the two hold different problems (also under one id), or different numbers of samples of one; see also
            `passk_result`.
        UsageError: as `passk_result`.
    """
    check_beside_pass(also, taus)
    a, b, warnings = _paired(a, b, names)
    ks = resolve_ks(a.problems, ks)
    counts_a, counts_b = (side.with_votes() if "maj" in also else side.problems for side in (a, b))
    estimates_a = passk_estimates(counts_a, ks, also=also, taus=taus)
    estimates_b = passk_estimates(counts_b, ks, also=also, taus=taus)
    return _comparison("pass@k", names, estimates_a, estimates_b, seed, warnings)


def compare_ucc(
    a: Samples | Counted,
    b: Samples | Counted,
    *,
    names: tuple[str, str],
    similarities: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    linkage: str = "components",
    tokens: str | None = None,
    ks: Sequence[int] | None = None,
    seed: int = 0,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """UCC@k, UCR, clusters and effective number of ``b`` minus those of ``a``; options as in `ucc_result`.

    ``on_progress`` counts the problems of ``a``, then those of ``b``.

    Raises: as `compare_passk` and `ucc_result`.
    """
    a, b, warnings = _paired(a, b, names)
    settings_of = {
        name: clustering_settings(name, similarities, thresholds, linkage, tokens, kind)
        for name, kind in {**b.kinds, **a.kinds}.items()
    }
    ks = resolve_ks(a.problems, ks)
    counts_a, counts_b = (side.with_clusters(settings_of, jobs=jobs, on_progress=on_progress) for side in (a, b))
    return _comparison(
        "ucc@k",
        names,
        ucc_estimates(counts_a, ks),
        ucc_estimates(counts_b, ks),
        seed,
        warnings,
    )


def _paired(a: Samples | Counted, b: Samples | Counted, names: tuple[str, str]) -> tuple[Counted, Counted, list[str]]:
    """The counts of both, which are of the same problems, and warnings about them."""
    a, b = Counted.of(a), Counted.of(b)
    found = check_pairs(a, b, names=names)
    sizes = {name: len(group) for name, group in by_benchmark(a.problems).items()}
    few = [
        f"{name} has only {num} problem(s) here: with fewer than {LEAST_PROBLEMS} the intervals are too narrow and "
        f"p is too small; a test that swaps the sides of problems in all ways has no p below {min(1, 2 / 2**num):.2g}"
        for name, num in sizes.items()
        if num < LEAST_PROBLEMS
    ]
    return a, b, [*found, *told_of_sides(a.warnings, b.warnings, names=names), *few]


def _comparison(
    metric: str,
    names: tuple[str, str],
    estimates_a: Sequence[Estimate],
    estimates_b: Sequence[Estimate],
    seed: int,
    warnings: list[str],
) -> Comparison:
    rows = [row for pair in zip(estimates_a, estimates_b, strict=True) for row in _rows(*pair, seed=seed)]
    return Comparison(metric=metric, a=names[0], b=names[1], bootstrap_seed=seed, rows=rows, warnings=warnings)


def _rows(a: Estimate, b: Estimate, *, seed: int) -> list[DifferenceRow]:
    assert (a.metric, a.extra) == (b.metric, b.extra)
    blocks: Mapping[str, list[str]] = {name: [name] for name in a.groups}
    if a.is_averaged and len(a.groups) > 1:
        blocks = {**blocks, AVERAGE: list(a.groups)}
    rows = []
    for name, members in blocks.items():
        values_a, values_b = [a.values[member] for member in members], [b.values[member] for member in members]
        differences = average_paired_differences(values_a, values_b, seed=seed)
        mean_aK, mean_bK = (np.mean([one.mean(axis=0) for one in values], axis=0) for values in (values_a, values_b))
        group = [problem for member in members for problem in a.groups[member]]
        for k, mean_a, mean_b, difference in zip(a.ks, mean_aK, mean_bK, differences, strict=True):
            rows.append(
                DifferenceRow(
                    metric=a.metric,
                    benchmark=name,
                    k=k,
                    a=float(mean_a),
                    b=float(mean_b),
                    difference=difference.mean,
                    ci_low=difference.low,
                    ci_high=difference.high,
                    p=difference.p,
                    num_problems=len(group),
                    n=min(problem.n for problem in group),
                    **a.extra,
                )
            )
    return rows
