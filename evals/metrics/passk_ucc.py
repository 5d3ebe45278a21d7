"""Pass@k and UCC@k, from samples with grades to the result document.

Once it is known who is correct, everything is a function of counts: n samples, c correct, cluster
sizes s_j. Means run over all problems of a benchmark; an unsolved one counts 0.
"""

# Axes: P problems, K values of k.

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from evals import estimators
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.files.frames import grouped
from evals.files.strict_json import shown
from evals.grading import OnProgress
from evals.intervals import Families, mean_intervals
from evals.metrics.counting import (
    BY_DEFAULT,
    Clustering,
    Counted,
    Counts,
    count_clusters,
    count_each,
    refuse_other_problems,
)
from evals.metrics.valid import Checked, checked, shares_of_right
from evals.results.document import (
    AVERAGE,
    COUNTS_OF_K,
    UNKNOWN,
    VALID,
    About,
    GraderInfo,
    ProblemEntry,
    Result,
    Row,
    largest_value,
)
from evals.results.shown import little_covered
from evals.samples.about import head_of, warnings_of
from evals.samples.types import GradedProblem, Sampled, Samples
from evals.similarity import Setting

LARGEST_DEFAULT_K = 256
Least = Mapping[tuple[str, str], int]  # by benchmark and id of a problem; see `least_correct`
# What can be asked for beside each of the two, as `--also`.
BESIDE = {"pass@k": ("maj", "g-pass", "pass^k"), "ucc@k": ("distinct",)}


def check_beside(metric: str, also: Sequence[str], taus: Sequence[float] = ()) -> None:
    """Raises UsageError for a name in ``also`` that does not go with ``metric``, or a tau outside [0, 1]."""
    for name in also:
        if name not in BESIDE[metric]:
            other = "ucc" if metric == "pass@k" else "passk"
            where = f" (it is one of `quatro eval {other} --also`)" if name in sum(BESIDE.values(), ()) else ""
            raise UsageError(f"unknown metric {name!r}{where}; choose from {', '.join(BESIDE[metric])}")
    for tau in taus:
        if not 0 <= tau <= 1:
            raise UsageError(f"tau is the required share of correct draws, in [0, 1]; found {tau}")


def passk_result(
    samples: Samples | Counted | Sequence[Counted],
    *,
    ks: Sequence[int] | None = None,
    also: Sequence[str] = (),
    taus: Sequence[float] = (0.5,),
    ci: bool = False,
    per_problem: bool = False,
    about: About = UNKNOWN,
) -> Result:
    """Pass@k of every benchmark, their average, and the metrics that ``also`` names.

    These are maj (maj@k), pass^k (all k are correct) and g-pass (G-Pass@k at each of ``taus``). ``ks`` None means 1, 2,
    4, ..., 256 up to the smallest n. Of several ``samples``, one of each seed on the same problems, rows are means over
    seeds. ``ci`` adds the intervals of `mean_intervals`. ``about`` goes into the document's head: see `About`.

    Raises:
        UsageError: a k is larger than some problem's n; an unknown name in ``also``; a tau outside [0, 1].
        DataError: a sample has no grade; seeds hold other problems than the first, or other numbers of samples.
    """
    check_beside("pass@k", also, taus)
    counted, *others = each_seed(samples, about.grader)
    ks = resolve_ks(counted.problems, ks)
    counts, *further = (one.with_votes() if "maj" in also else one.problems for one in (counted, *others))
    estimates = [passk_estimates(one, ks, also=also, taus=taus) for one in (counts, *further)]
    rows = _rows_over_seeds(estimates, ci=ci)
    problems = [_entry(problem, {}) for problem in counts] if per_problem else None
    result = _result("pass@k", (counted, *others), rows, problems, about)
    if "maj" in also and counted.grader.version is None:  # else the grader has said it
        result.warnings.extend(_without_votes(counts))
    return result


def ucc_result(
    samples: Samples | Counted | Sequence[Counted],
    clustering: Clustering = BY_DEFAULT,
    *,
    also: Sequence[str] = (),
    valid: str | None = None,
    ks: Sequence[int] | None = None,
    ci: bool = False,
    per_problem: bool = False,
    jobs: int | None = 1,
    on_progress: OnProgress = None,
    about: About = UNKNOWN,
) -> Result:
    """UCC@k, pairs, UCR, number and effective number of clusters under every setting, and averages over benchmarks.

    ``also`` may name distinct: clusters among k correct answers, over problems with as many in every seed. ``valid``
    names a checker (`checker_of`): metrics stand there again as `valid-...`, without false derivations, and the shares
    of false and unknown ones. ``jobs`` processes share the problems (None: one a usable core, where that saves time;
    not from a script without ``if __name__ == "__main__"``), ``on_progress(done, total)`` counts those clustered. The
    other arguments are those of `passk_result`.

    Raises:
        UsageError: as `passk_result`, `Clustering.settings` and `checker_of`.
        DataError: as `passk_result`.
    """
    check_beside("ucc@k", also)
    counted, *others = each_seed(samples)
    settings_of = {name: clustering.settings(name, kind) for name, kind in counted.kinds.items()}
    ks = resolve_ks(counted.problems, ks)
    texts = [one.texts for one in (counted, *others)]
    counts, *further = count_each(texts, settings_of, jobs=jobs, on_progress=on_progress)
    least = least_correct([counted.problems, *(one.problems for one in others)])
    estimates = [ucc_estimates(one, ks, least, also=also) for one in (counts, *further)]
    if valid is not None:
        found = [checked(one.texts, valid) for one in (counted, *others)]
        few = least_correct([one.problem for one in some] for some in found)
        for own, some, whole in zip(estimates, found, (counts, *further), strict=True):
            # A problem without a false derivation has its clusters already.
            again = count_clusters([one.problem for one in some if one.num_false], settings_of, jobs=jobs)
            anew = {(setting, one[:2]): one for setting, group in again.items() for one in group}
            left = {setting: [anew.get((setting, one[:2]), one) for one in group] for setting, group in whole.items()}
            told = _beside_false(ucc_estimates(left, ks, few, also=also), some)
            own += [one._replace(extra={**one.extra, "checker": valid}) for one in told]
    rows = _rows_over_seeds(estimates, ci=ci)
    entries = (_entry(problem, setting._asdict()) for setting, group in counts.items() for problem in group)
    result = _result("ucc@k", (counted, *others), rows, list(entries) if per_problem else None, about)
    if "distinct" in also:
        result.warnings.extend(_left_out(least, ks))
    result.warnings.extend(little_covered(rows))
    return result


def each_seed(samples: Samples | Counted | Sequence[Counted], grader: GraderInfo | None = None) -> list[Counted]:
    """The counts of each seed; raises DataError unless all have the same problems with as many samples."""
    seeds = [Counted.of(samples, grader)] if isinstance(samples, Samples | Counted) else list(samples)
    refuse_other_problems(seeds, [f"seed {number}" for number in range(1, len(seeds) + 1)])
    return seeds


def least_correct(seeds: Iterable[Iterable[Counts | GradedProblem]]) -> Least:
    """Of each problem the fewest correct samples that one of ``seeds`` has."""
    least: dict[tuple[str, str], int] = {}
    for one in (problem for problems in seeds for problem in problems):
        least[one[:2]] = min(one.correct, least.get(one[:2], one.correct))
    return least


def resolve_ks(problems: Sequence[Sampled], ks: Sequence[int] | None) -> list[int]:
    """The ks asked for, or 1, 2, 4, ..., 256 up to the smallest n; raises UsageError for one that is too large."""
    if not problems:
        raise DataError("no samples")
    smallest = min(problem.n for problem in problems)
    if ks is None:
        return [2**i for i in range(LARGEST_DEFAULT_K.bit_length()) if 2**i <= smallest]
    if not ks:
        raise UsageError("no k given; expected a list such as --k 1,2,4")
    for k in ks:
        if not isinstance(k, int) or k < 1:
            raise UsageError(f"k = {k}: k is a number of draws, an integer of at least 1")
    largest = max(ks)
    short = next((problem for problem in problems if problem.n < largest), None)
    if short is not None:
        raise UsageError(
            f"k = {largest} needs {largest} samples per problem, but {shown(short.id)} of {short.benchmark} has n = "
            f"{short.n}; draw more with `quatro sample --n {largest}`, or lower --k to {smallest}"
        )
    return list(dict.fromkeys(ks))


class Estimate(NamedTuple):
    """A metric of every problem: ``values`` holds a (P, K) array and ``groups`` its P problems for each benchmark.

    ``ks`` is [None] if the metric has no k; ``extra`` goes into every row. ``is_averaged`` is False if a benchmark is
    missing here, since a mean over the others would pass for the mean over all.
    """

    metric: str
    ks: Sequence[int | None]
    groups: Mapping[str, Sequence[Counts]]
    values: Mapping[str, Floats]
    extra: Mapping[str, Any]
    is_averaged: bool = True


def passk_estimates(
    counts: Sequence[Counts], ks: Sequence[int], *, also: Sequence[str] = (), taus: Sequence[float] = ()
) -> list[Estimate]:
    """Pass@k of every problem, then maj@k, pass^k and G-Pass@k where asked for."""
    groups = by_benchmark(counts)
    passed = {
        name: estimators.pass_at_ks([p.n for p in group], [p.correct for p in group], ks)
        for name, group in groups.items()
    }
    estimates = [Estimate("pass@k", ks, groups, passed, {})]
    if "maj" in also:
        maj = cache(estimators.maj_at_k)
        values = _of_each(groups, ks, lambda p, k: maj(p.n, p.correct, p.wrong or (), k))
        estimates.append(Estimate("maj@k", ks, groups, values, {}))
    g_pass = cache(estimators.g_pass_at_k)
    at_taus: list[tuple[str, float, dict[str, float]]] = [("pass^k", 1.0, {})] if "pass^k" in also else []
    at_taus += [("g-pass@k", tau, {"tau": tau}) for tau in dict.fromkeys(taus) if "g-pass" in also]
    for metric, tau, extra in at_taus:
        values = _of_each(groups, ks, lambda p, k, tau: g_pass(p.n, p.correct, k, tau), tau)
        estimates.append(Estimate(metric, ks, groups, values, extra))
    return estimates


def ucc_estimates(
    counts: Mapping[Setting, Sequence[Counts]], ks: Sequence[int], least: Least, *, also: Sequence[str] = ()
) -> list[Estimate]:
    """Under each setting UCC@k, pairs, UCR, number and effective number of clusters, then what ``also`` names.

    pairs is over the problems of which ``least``, made by `least_correct`, is 2; distinct@k over those where it is k.
    """
    num_benchmarks = len({problem.benchmark for group in counts.values() for problem in group})
    estimates: list[Estimate] = []
    for setting, found in counts.items():
        groups = by_benchmark(found)
        is_averaged = len(groups) == num_benchmarks
        extra = setting._asdict()
        ucc = {
            name: estimators.ucc_at_ks([p.n for p in group], [p.sizes or () for p in group], ks)
            for name, group in groups.items()
        }
        estimates.append(Estimate("ucc@k", ks, groups, ucc, extra, is_averaged))
        paired = by_benchmark([problem for problem in found if least[problem[:2]] > 1])
        for metric in ("pairs", "ucr", "num_clusters", "effective_number"):
            members = paired if metric == "pairs" else groups
            of_counts = estimators.OF_COUNTS[metric]
            values = _of_each(members, [1], lambda p, k, of: of(p.n, p.correct, p.sizes or (), k), of_counts)
            estimates.append(Estimate(metric, [None], members, values, extra, len(members) == num_benchmarks))
        if "distinct" in also:
            estimates += _distinct_estimates(found, ks, least, extra, num_benchmarks=num_benchmarks)
    return estimates


def _beside_false(estimates: Iterable[Estimate], found: Sequence[Checked]) -> Iterator[Estimate]:
    """The ``estimates`` without false derivations by their names; after each UCC the shares of false and unknown."""
    told = grouped(found, lambda one: one.problem.benchmark)
    for one in estimates:
        yield one._replace(metric=VALID + one.metric)
        counts = {name: np.array([p[1:] for p in told[name]]).T.tolist() for name in one.groups}
        for at, metric in enumerate(("false_share", "unknown_share") if one.metric == "ucc@k" else (), start=1):
            values = {name: shares_of_right(own[at], own[0])[:, None] for name, own in counts.items()}
            yield one._replace(metric=metric, ks=[None], values=values)


def by_benchmark(counts: Sequence[Counts]) -> dict[str, list[Counts]]:
    """The problems of each benchmark; raises DataError for a benchmark that is named like the average."""
    groups = {name: list(group) for name, group in groupby(counts, key=lambda problem: problem.benchmark)}
    if AVERAGE in groups:
        raise DataError(f"a benchmark is named {AVERAGE!r}, which is the name of the mean over benchmarks; rename it")
    return groups


def _distinct_estimates(
    counts: Sequence[Counts], ks: Sequence[int], least: Least, extra: Mapping[str, Any], *, num_benchmarks: int
) -> list[Estimate]:
    """Clusters among k draws from the correct answers alone, for every k over the same problems of a benchmark."""
    estimates = []
    largest = {name: largest_distinct_k(correct, ks) for name, correct in _correct_in(least).items()}
    for k in ks:
        reached = [one for one in counts if k <= largest[one.benchmark] <= least[one[:2]]]
        groups = by_benchmark(reached)
        values = {
            name: estimators.ucc_at_ks([p.correct for p in group], [p.sizes or () for p in group], [k])
            for name, group in groups.items()
        }
        estimates.append(Estimate("distinct@k", [k], groups, values, extra, len(groups) == num_benchmarks))
    return estimates


def _correct_in(least: Least) -> dict[str, list[int]]:
    """The numbers of correct answers of the solved problems of each benchmark."""
    return {
        name: [least[key] for key in keys if least[key]] for name, keys in grouped(least, lambda key: key[0]).items()
    }


def largest_distinct_k(solved: Sequence[int], ks: Sequence[int]) -> int:
    """The largest of ``ks`` of which half of the ``solved`` problems have as many correct answers, else the smallest.

    distinct@k is over the problems that have this many, so that its values for different k can be compared.
    """
    return max((k for k in ks if 2 * sum(c >= k for c in solved) >= len(solved) > 0), default=min(ks))


def _of_each(
    groups: Mapping[str, Sequence[Counts]], ks: Sequence[int], value: Callable[..., float], *more: Any
) -> dict[str, Floats]:
    """``value(problem, k, *more)`` of each problem at each k."""
    return {name: np.array([[value(p, k, *more) for k in ks] for p in group]) for name, group in groups.items()}


def _without_votes(counts: Sequence[Counts]) -> list[str]:
    warnings = []
    for name, group in by_benchmark(counts).items():
        num_silent, num_all = (sum(p.n - p.correct - sum(p.wrong or ()) for p in group), sum(p.n for p in group))
        if 10 * num_silent > num_all:
            warnings.append(
                f"{name}: {num_silent} of {num_all} samples are wrong and hold no answer that could be found, so they "
                "do not vote and maj@k is too high; `quatro eval grade --extraction last-number` looks for others"
            )
    return warnings


def _left_out(least: Least, ks: Sequence[int]) -> list[str]:
    warnings = []
    for name, solved in _correct_in(least).items():
        largest, most = largest_distinct_k(solved, ks), max(solved, default=0)
        if most < min(ks):
            warnings.append(
                f"{name}: no problem has {min(ks)} correct samples, so there is no distinct@k: at most {most}"
            )
        elif largest < max(ks):
            next_k = min(k for k in ks if k > largest)
            reached = sum(correct >= next_k for correct in solved)
            alone = f"; for these alone ask for --k {next_k}" if reached else ""
            warnings.append(
                f"{name}: distinct@k stops at {largest}, since only {reached} of {len(solved)} solved problems have "
                f"{next_k} correct samples{alone}"
            )
    return warnings


def blocks_of(seeds: Sequence[Estimate]) -> Iterator[tuple[str, list[Counts], list[Floats]]]:
    """Name and problems of each benchmark, then of their average, and for each member an (S, P, K) array of values."""
    first = seeds[0]
    blocks = [(name, [name]) for name in first.groups]
    if first.is_averaged:
        blocks.append((AVERAGE, list(first.groups)))
    for name, members in blocks:
        problems = [problem for member in members for problem in first.groups[member]]
        yield name, problems, [np.stack([one.values[member] for one in seeds]) for member in members]


def families_of(problems: Sequence[Counts]) -> Families:
    """Of each benchmark the number of every problem's family; raises DataError if a benchmark has only one."""
    if problems[0].family is None:
        return ()
    found = {
        name: np.unique([str(one.family) for one in group], return_inverse=True)[1]
        for name, group in by_benchmark(problems).items()
    }
    if alone := [name for name, of_problem in found.items() if not of_problem.any()]:
        raise DataError(f"{alone[0]}: its problems are of one family by --cluster; an interval needs two families")
    return list(found.values())


def means_of(values: Sequence[Floats]) -> list[float]:
    """The mean of each column over seeds and problems; over several benchmarks the unweighted mean of theirs.

    Sums are exact until they are rounded once: no order of problems and no other column changes a digit.
    """
    columns = zip(*(value_SPK.reshape(-1, value_SPK.shape[-1]).T.tolist() for value_SPK in values), strict=True)
    return [fmean(map(fmean, column)) for column in columns]


def coverage_of(seeds: Sequence[Estimate], name: str) -> float | None:
    """The mean coverage of the solved problems, beside counts of clusters; over benchmarks the mean of theirs."""
    if seeds[0].metric.removeprefix(VALID) not in COUNTS_OF_K:
        return None
    members = list(seeds[0].groups) if name == AVERAGE else [name]
    found = [[estimators.coverage(p.sizes) for one in seeds for p in one.groups[at] if p.sizes] for at in members]
    return float(np.mean([np.mean(values) for values in found])) if all(found) else None


def largest_of(estimate: Estimate, n: int) -> list[float]:
    """The largest value that a problem with ``n`` samples can have, at each k."""
    return [float(largest_value(estimate.metric, k, n) or 1) for k in estimate.ks]


def _rows_over_seeds(estimates: Sequence[Sequence[Estimate]], *, ci: bool) -> list[Row]:
    """The rows of all metrics; ``estimates`` are those of each seed."""
    return [row for seeds in zip(*estimates, strict=True) for row in rows_of(*seeds, ci=ci)]


def rows_of(*seeds: Estimate, ci: bool) -> list[Row]:
    """A row for each benchmark and k, and the unweighted mean over benchmarks; of several seeds means over these."""
    estimate = seeds[0]
    rows = []
    for name, problems, values in blocks_of(seeds):
        n = min(problem.n for problem in problems)
        extra: dict[str, Any] = {**estimate.extra, **({"num_seeds": len(seeds)} if len(seeds) > 1 else {})}
        shares = [problem.found_share for problem in problems if problem.found_share is not None]
        if len(shares) == len(problems) and name != AVERAGE:
            extra["share_of_all_solutions"] = float(np.mean(shares))
        extra |= {} if (covered := coverage_of(seeds, name)) is None else {"coverage": covered}
        found = mean_intervals(values, largest_of(estimate, n), families=families_of(problems)) if ci else None
        for position, (k, mean) in enumerate(zip(estimate.ks, means_of(values), strict=True)):
            if found is not None:
                own = found[position]
                extra |= {"ci_low": own.low, "ci_high": own.high, "ci_over": own.over}
            head: dict[str, Any] = {"metric": estimate.metric, "benchmark": name, "k": k, "value": mean}
            rows.append(Row(**head, num_problems=len(problems), n=n, **extra))
    return rows


def _entry(problem: Counts, setting: Mapping[str, Any]) -> ProblemEntry:
    optional = dict(setting)
    if problem.sizes is not None:
        optional["clusters"] = list(problem.sizes)
    return ProblemEntry(benchmark=problem.benchmark, id=problem.id, n=problem.n, correct=problem.correct, **optional)


def _result(
    metric: str, seeds: Sequence[Counted], rows: list[Row], problems: list[ProblemEntry] | None, about: About
) -> Result:
    own = dict.fromkeys(told for one in seeds for told in one.warnings)
    head, warnings = head_of(about, seeds[0].problems), warnings_of(list(own), seeds[0].problems)
    return Result(metric=metric, **head, rows=rows, problems=problems, warnings=warnings)
