"""How much better one set of samples does than another on the same problems, and whether that could be chance.

Differences are taken problem by problem before anything is averaged. Most of the spread between problems is common
to both sets (some problems are easy, some are not) and cancels.
"""

# Axes: P problems, K values of k.

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from evals.errors import DataError, UsageError
from evals.estimators import PARTS, ucc_parts
from evals.files.strict_json import shown
from evals.grading import OnProgress, same_answer
from evals.intervals import average_paired_differences, holm
from evals.metrics.counting import BY_DEFAULT, Clustering, Counted, count_each, refuse_other_problems
from evals.metrics.passk_ucc import (
    Estimate,
    blocks_of,
    check_beside,
    coverage_of,
    each_seed,
    families_of,
    largest_of,
    least_correct,
    means_of,
    passk_estimates,
    resolve_ks,
    ucc_estimates,
)
from evals.results.document import AVERAGE, Comparison, DifferenceRow
from evals.results.shown import little_covered
from evals.samples.types import GradedProblem, Samples
from evals.similarity import setting_of

_BEFORE = 15  # characters that are shown before the place where two texts begin to differ
_MOST = 60


Side = Samples | Counted | Sequence[Counted]  # several: the samples of each seed


def compare_passk(
    a: Side,
    *others: Side,
    names: Sequence[str],
    ks: Sequence[int] | None = None,
    also: Sequence[str] = (),
    taus: Sequence[float] = (0.5,),
) -> Comparison:
    """Pass@k of each of ``others`` minus that of ``a``, with paired intervals and p-values; options as `passk_result`.

    Raises:
        DataError: the two hold different problems (also under one id), or different numbers of samples of one; see also
            `passk_result`.
        UsageError: as `passk_result`; the two have different numbers of seeds.
    """
    check_beside("pass@k", also, taus)
    sides, warnings = _paired([a, *others], names)
    ks = resolve_ks(sides[0][0].problems, ks)
    estimates = [
        [passk_estimates(one.with_votes() if "maj" in also else one.problems, ks, also=also, taus=taus) for one in side]
        for side in sides
    ]
    return _comparison("pass@k", names, estimates, warnings)


def compare_ucc(
    a: Side,
    *others: Side,
    names: Sequence[str],
    clustering: Clustering = BY_DEFAULT,
    ks: Sequence[int] | None = None,
    jobs: int | None = 1,
    on_progress: OnProgress = None,
) -> Comparison:
    """UCC@k and its parts (`ucc_parts`), distinct@k and what stands beside UCC@k, of ``others`` minus those of ``a``.

    Options as in `ucc_result`. ``on_progress`` counts the problems of all.

    Raises: as `compare_passk` and `ucc_result`.
    """
    sides, warnings = _paired([a, *others], names)
    kinds = {name: kind for side in reversed(sides) for name, kind in side[0].kinds.items()}
    settings_of = {name: clustering.settings(name, kind) for name, kind in kinds.items()}
    ks = resolve_ks(sides[0][0].problems, ks)
    least = least_correct([one.problems for side in sides for one in side])
    texts = [one.texts for side in sides for one in side]
    counts = iter(count_each(texts, settings_of, jobs=jobs, on_progress=on_progress))
    estimates = [[ucc_estimates(next(counts), ks, least, also=["distinct"]) for _ in side] for side in sides]
    return _comparison("ucc@k", names, estimates, warnings)


def _paired(sides: Sequence[Side], names: Sequence[str]) -> tuple[list[list[Counted]], list[str]]:
    """The counts of each seed of all, which are of the same problems, and warnings about them."""
    seeds = [each_seed(side) for side in sides]
    found: list[str] = []
    for other, name in zip(seeds[1:], names[1:], strict=True):
        if len(seeds[0]) != len(other):
            raise UsageError(f"A has {len(seeds[0])} seeds and B has {len(other)}; compare as many of each")
        both = names[0], name
        found += [told for pair in zip(seeds[0], other, strict=True) for told in check_pairs(*pair, names=both)]
        own = [[told for one in side for told in one.warnings] for side in (seeds[0], other)]
        found += told_of_sides(*own, names=both)
    return seeds, list(dict.fromkeys(found))


def _with_parts(a: Sequence[Estimate], b: Sequence[Estimate]) -> tuple[list[Estimate], list[Estimate]]:
    """The estimates of a seed, and the parts of the difference in UCC@k (`ucc_parts`), which need both sides."""
    both = list(a), list(b)
    for one, other in [pair for pair in zip(a, b, strict=True) if pair[0].metric == "ucc@k"]:
        ks = [k for k in one.ks if k is not None]
        parts = {  # (P, K, parts, sides)
            name: np.array(
                [
                    ucc_parts(p.n, p.sizes or (), q.sizes or (), ks)
                    for p, q in zip(group, other.groups[name], strict=True)
                ]
            )
            for name, group in one.groups.items()
        }
        for at, part in enumerate(PARTS):
            for side, estimates in enumerate(both):
                values = {name: value[:, :, at, side] for name, value in parts.items()}
                estimates.append(one._replace(metric=f"ucc@k/{part}", values=values))
    return both


def _large_rests(rows: Sequence[DifferenceRow]) -> list[str]:
    """A warning that names where the rest is more than a tenth of a difference in UCC@k, if there is such a place."""
    of = {(row.metric, row.benchmark, setting_of(row), row.k): row.difference for row in rows}
    rests = {key[1:]: abs(rest) for key, rest in of.items() if key[0] == "ucc@k/rest" and key[1] != AVERAGE}
    large = [key for key, rest in rests.items() if rest > abs(of["ucc@k", *key]) / 10]
    where = ", ".join(f"{name} at k = {k} ({setting})" for name, setting, k in large)
    why = "of some problems A or B has too few correct samples to be compared at equal numbers; lower --k"
    return [f"more than a tenth of the change in UCC@k is `rest`, {where}: {why}"] if large else []


def _comparison(
    metric: str, names: Sequence[str], estimates: Sequence[Sequence[Sequence[Estimate]]], warnings: list[str]
) -> Comparison:
    """``estimates`` are those of each seed of all sides; where there are more than two, rows name theirs."""
    rows: list[DifferenceRow] = []
    for name, side in zip(names[1:], estimates[1:], strict=True):
        pairs = [_with_parts(*pair) for pair in zip(estimates[0], side, strict=True)]
        by_metric = [list(zip(*each, strict=True)) for each in zip(*pairs, strict=True)]
        own = [row for pair in zip(*by_metric, strict=True) for row in _rows(*pair)]
        own = [row for row in own if (row.metric, row.k) != ("distinct@k", 1)]  # one correct answer is one solution
        warnings = [*warnings, *little_covered(own), *_large_rests(own)]
        rows += [row.model_copy(update={"samples_b": name}) for row in own] if len(names) > 2 else own
    whole = [row for row in rows if "/" not in row.metric]  # the parts of a difference have no p of their own
    adjusted = {id(row): p for row, p in zip(whole, holm([row.p for row in whole]), strict=True)}
    rows = [row.model_copy(update={"p_adjusted": adjusted.get(id(row))}) for row in rows]
    warnings = list(dict.fromkeys(warnings))
    return Comparison(metric=metric, a=names[0], b=", ".join(names[1:]), rows=rows, warnings=warnings)


def _rows(seeds_a: Sequence[Estimate], seeds_b: Sequence[Estimate]) -> list[DifferenceRow]:
    a, b = seeds_a[0], seeds_b[0]
    assert (a.metric, a.extra) == (b.metric, b.extra)
    rows = []
    for (name, problems, values_a), (_, _, values_b) in zip(blocks_of(seeds_a), blocks_of(seeds_b), strict=True):
        if name == AVERAGE and len(a.groups) == 1:
            continue
        n = min(problem.n for problem in problems)
        covered = {"coverage_a": coverage_of(seeds_a, name), "coverage_b": coverage_of(seeds_b, name)}
        extra = {**a.extra, **{key: value for key, value in covered.items() if value is not None}}
        differences = average_paired_differences(values_a, values_b, largest_of(a, n), families=families_of(problems))
        for k, mean_a, mean_b, found in zip(a.ks, means_of(values_a), means_of(values_b), differences, strict=True):
            head: dict[str, Any] = {"metric": a.metric, "benchmark": name, "k": k, "a": mean_a, "b": mean_b}
            ends: dict[str, Any] = {"ci_low": found.low, "ci_high": found.high, "ci_over": found.over, "p": found.p}
            rows.append(DifferenceRow(**head, difference=found.mean, **ends, num_problems=len(problems), n=n, **extra))
    return rows


def check_pairs(a: Counted, b: Counted, *, names: tuple[str, str]) -> list[str]:
    """Warnings where only reference answers differ.

    Raises DataError as `refuse_other_problems`, and for an id that means two problems; the first one is named.
    """
    refuse_other_problems([a, b], names)
    pairs = list(zip(a.texts, b.texts, strict=True))
    prompts_a = {(one.benchmark, one.prompt) for one in a.texts if one.prompt}
    others = [pair for pair in pairs if _are_namesakes(*pair, prompts_a)]
    if others:
        one, other = others[0]
        raise DataError(
            f"{shown(one.id)} of {one.benchmark} is another problem in {names[1]} than in {names[0]} ({len(others)} of "
            f"{len(b.problems)} ids are): {_told(one, other, names)}; an id must mean the same problem in both: "
            "`quatro eval import` makes ids from the prompts where rows have none, or takes them from any field, such "
            "as that of the prompt (`--column id=FIELD`)"
        )
    spelled = [other for one, other in pairs if str(one.answer) != str(other.answer)]
    if not spelled:
        return []
    return [
        f"{len(spelled)} of {len(b.problems)} problems have another reference answer in {names[1]} than in {names[0]}, "
        f"such as {shown(spelled[0].id)} of {spelled[0].benchmark}"
    ]


def told_of_sides(a: Sequence[str], b: Sequence[str], *, names: tuple[str, str]) -> list[str]:
    """The warnings of both sides; one of a single side names it."""
    return list(
        dict.fromkeys(
            warning if warning in other or name in warning else f"{name}: {warning}"
            for name, own, other in ((names[0], a, b), (names[1], b, a))
            for warning in own
        )
    )


def _are_namesakes(one: GradedProblem, other: GradedProblem, prompts_a: Set[tuple[str, str]]) -> bool:
    """Whether a problem of A and one of B share their id and no more.

    Prompts may differ by their template. So it is another problem if its prompt is that of another id of A; else if the
    prompts differ, or are unknown, and the reference answers are not equal.
    """
    if one.prompt and one.prompt == other.prompt:
        return False
    answers = str(one.answer), str(other.answer)
    is_same = answers[0] == answers[1] or (one.kind.grader == "math" and same_answer(*answers))
    return not is_same or bool(one.prompt and (other.benchmark, other.prompt) in prompts_a)


def _told(one: GradedProblem, other: GradedProblem, names: tuple[str, str]) -> str:
    """The prompts, or else the reference answers, of both sides; long ones from where they begin to differ."""
    if one.prompt is None or other.prompt is None or one.prompt == other.prompt:
        what, texts = "reference answer", [str(one.answer), str(other.answer)]
    else:
        pairs = enumerate(zip(one.prompt, other.prompt, strict=False))
        place = next((place for place, (char, other_char) in pairs if char != other_char), 0)
        begin = max(0, place - _BEFORE)
        dots = "..." if begin else ""
        what, texts = "prompt", [f"{dots}{text[begin : begin + _MOST]}" for text in (one.prompt, other.prompt)]
    return f"the {what} is " + " and ".join(f"{shown(text)} in {name}" for text, name in zip(texts, names, strict=True))
