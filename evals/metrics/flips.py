"""Flips: problems that the base policy failed and the tuned one solves, by difficulty.

A problem's difficulty is the base policy's number of correct samples c0; the tuned policy has c1 of as many. The
paper's flip rate can mean two things, and both are measured:

- newly solved, which its words say: the share of the problems with c0 = 0 that have c1 > 0. All of them lie in the
  first bucket.
- flip@k, which its figure with four buckets needs: the chance that k samples of the base all fail and k samples of
  the tuned policy hold a success, unbiased from counts and averaged over the problems of a bucket:

      flip@k = mean of C(n-c0, k) / C(n, k) * (1 - C(n-c1, k) / C(n, k)).

  At k = n it is the share of newly solved problems among all problems of the bucket.
"""

# Axes: P problems, K values of k.

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evals.estimators import fail_table, hit_table
from evals.files.frames import grouped
from evals.metrics.comparing import check_pairs, told_of_sides
from evals.metrics.counting import Counted, Counts
from evals.metrics.passk_ucc import Estimate, resolve_ks, rows_of
from evals.results.document import UNKNOWN, About, ProblemEntry, Result, Row
from evals.samples.about import head_of, warnings_of
from evals.samples.types import Samples

FLIP = "flip"
FLIP_AT_K = "flip@k"
DEFAULT_K = 16


HARDEST = "very hard"
# Of 256 samples of a problem in each bucket the base solves at most so many, and too many for the bucket before.
BUCKETS = {HARDEST: 8, "hard": 32, "medium": 128, "easy": 256}


class Pair(NamedTuple):
    """One problem: ``base`` of its n samples are correct before training, ``tuned`` of n after."""

    benchmark: str
    id: str
    n: int
    base: int
    tuned: int

    @property
    def bucket(self) -> str:
        return bucket_of(self.n, self.base)


def bucket_of(n: int, correct: int) -> str:
    """The bucket of a problem by the base's count c of n. It goes by the share: hard is 1/32 < c/n <= 1/8."""
    return next(name for name, upto in BUCKETS.items() if 256 * correct <= upto * n)


def bucket_bounds(n: int) -> dict[str, str]:
    """The base's counts of n that each bucket takes, such as `9-32` of 256; a dash where it takes none."""
    counts_of = grouped(map(str, range(n + 1)), lambda count: bucket_of(n, int(count)))
    ends = {name: dict.fromkeys((counts[0], counts[-1])) for name, counts in counts_of.items()}
    return {name: "-".join(ends.get(name, ())) or "-" for name in BUCKETS}


def flip_at_k(n: int, base_correct: int, tuned_correct: int, k: int) -> float:
    """The chance that k of the base's n samples all fail and k of the tuned policy's n hold a correct one.

    Raises ValueError for n < 1, k outside 1..n, or a count outside 0..n.
    """
    for count in (base_correct, tuned_correct):
        if not 0 <= count <= n:
            raise ValueError(f"c = {count} correct samples of n = {n}: c lies between 0 and n")
    return float(fail_table(n, [k])[0, base_correct] * hit_table(n, [k])[0, tuned_correct])


def flips_result(
    base: Samples | Counted,
    tuned: Samples | Counted,
    *,
    names: tuple[str, str],
    ks: Sequence[int] | None = None,
    ci: bool = False,
    per_problem: bool = False,
    about: About = UNKNOWN,
) -> Result:
    """Newly solved and flip@k for each benchmark and bucket, and means over benchmarks.

    A bucket without problems has no row. In the ``flip`` rows (newly solved, k null) `num_problems` is the number of
    problems that the base never solved. The ``flip@k`` rows are for ``ks`` (None: 16, or n where that is smaller), and
    their bucket "all" is every problem of the benchmark. ``ci`` adds intervals over the problems of a row.
    ``names`` are those of the two sides, for messages.

    Raises:
        DataError: the two hold different problems (also under one id), or different numbers of samples of one; or a
            sample has no grade.
        UsageError: a k is larger than some problem's n.
    """
    base, tuned = Counted.of(base), Counted.of(tuned)
    warnings = check_pairs(base, tuned, names=names)
    if ks is None:
        ks = [min([DEFAULT_K, *(problem.n for problem in base.problems)])]
    ks = resolve_ks(base.problems, ks)
    pairs = [
        Pair(one.benchmark, one.id, one.n, one.correct, other.correct)
        for one, other in zip(base.problems, tuned.problems, strict=True)
    ]
    rows = flip_rows(pairs, ks=ks, ci=ci)
    problems = [_entry(pair) for pair in pairs] if per_problem else None
    warnings += told_of_sides(*(warnings_of(side.warnings, side.problems) for side in (base, tuned)), names=names)
    return Result(
        metric=FLIP_AT_K,
        rows=rows,
        problems=problems,
        warnings=list(dict.fromkeys(warnings)),
        **head_of(about, tuned.problems),
        base=names[0],
        tuned=names[1],
    )


def flip_rows(*seeds: Sequence[Pair], ks: Sequence[int], ci: bool = False) -> list[Row]:
    """Rows of `flips_result` from counts; of several seeds against one base means over these."""

    def rows(metric: str, at: Sequence[int | None], bucket: str, value: Callable[[Pair, Any], float]) -> list[Row]:
        estimates = []
        for pairs in seeds:
            members = [one for one in pairs if (one.base == 0 if metric == FLIP else bucket in ("all", one.bucket))]
            groups = grouped(members, lambda pair: pair.benchmark)
            counts = {name: [Counts(*one[:3], one.tuned) for one in group] for name, group in groups.items()}
            values = {name: np.array([[value(one, k) for k in at] for one in group]) for name, group in groups.items()}
            # A mean over the benchmarks that have such problems would pass for the mean over all.
            is_averaged = {pair.benchmark for pair in pairs} == set(groups)
            estimates.append(Estimate(metric, at, counts, values, {"bucket": bucket}, is_averaged))
        return rows_of(*estimates, ci=ci) if estimates[0].groups else []

    found = rows(FLIP, [None], HARDEST, lambda one, k: float(one.tuned > 0))
    for name in (*BUCKETS, "all"):
        found += rows(FLIP_AT_K, ks, name, lambda one, k: flip_at_k(one.n, one.base, one.tuned, k))
    return found


def _entry(pair: Pair) -> ProblemEntry:
    known: dict[str, Any] = {"base_correct": pair.base, "bucket": pair.bucket}
    return ProblemEntry(benchmark=pair.benchmark, id=pair.id, n=pair.n, correct=pair.tuned, **known)
