"""The entries of tables: the label, model and numbers of one policy, from result files, runs or the paper.

An entry is everything with the same label and model. Files with different benchmarks complete one another. Files with
the same benchmarks are several seeds and are averaged, if their label was given on purpose; otherwise they are refused.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from evals.errors import DataError, UsageError
from evals.estimators import OF_COUNTS
from evals.files.frames import grouped
from evals.files.strict_json import shown
from evals.intervals import PROBLEMS, mean_of_seeds
from evals.results.document import AVERAGE, ProblemEntry, Result, largest_value
from evals.results.paper import paper
from evals.results.reading import Labelled, RunHead, Sources, told_apart
from evals.results.shown import metric_at
from evals.results.training_metrics import LAST_ITERATIONS, metric_rows
from evals.similarity import setting_of
from evals.text import visible

ENTROPY = "entropy"
DISTINCT = "distinct@k"
ENTROPY_METRIC = "entropy/token_mean"
MOST_ENTROPY = 100  # nats per token: that of more tokens than there are
# Folders of a run that hold a model and do not name it.
_PART_OF_RUN = re.compile(r"model|checkpoints|(step|checkpoint)-\d+")


class Key(NamedTuple):
    """Which number it is. ``setting`` says what counted as the same solution, or names the tau or bucket."""

    metric: str
    benchmark: str | None
    k: int | None
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """A share, a count or nats. ``over``: what the interval is over; ``misprint``: what is wrong in the paper."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    misprint: str | None = None
    over: str | None = None


@dataclass(frozen=True)
class Entry:
    """All numbers of one policy; ``num_results`` result files were averaged (1: none)."""

    label: str
    model: str | None
    numbers: Mapping[Key, Number]
    is_ours: bool = False
    is_published: bool = False
    num_results: int = 1

    def number(self, metric: str, benchmark: str | None, k: int | None, setting: str = "") -> Number | None:
        """The number, if there is one. The paper does not state its clustering: its numbers fit any setting."""
        return self.numbers.get(Key(metric, benchmark, k, "" if self.is_published else setting))

    def benchmarks(self, metric: str) -> list[str]:
        """Names in order of appearance, without the average."""
        found = (key.benchmark for key in self.numbers if key.metric == metric)
        return list(dict.fromkeys(name for name in found if name is not None and name != AVERAGE))

    def average(self, metric: str, k: int | None, setting: str = "") -> Number | None:
        """The unweighted mean over the entry's benchmarks; None if one of them lacks this k."""
        known = self.number(metric, AVERAGE, k, setting)
        if known is not None:
            return known
        found = [self.number(metric, name, k, setting) for name in self.benchmarks(metric)]
        parts = [number for number in found if number is not None]
        if not parts or len(parts) < len(found):
            return None
        misprint = "it averages one" if any(part.misprint for part in parts) else None
        return Number(sum(part.value for part in parts) / len(parts), misprint=misprint)


def own_entries(sources: Sources, metric: str) -> tuple[list[Entry], list[str]]:
    """An entry for each label and model that has ``metric``, and warnings.

    Raises:
        UsageError: two files hold the same number under a label that was only made of their names.
        DataError: a file has no row of the metric or one that cannot be true; files of several seeds do not match.
    """
    groups: dict[tuple[str, str | None], list[Labelled]] = {}
    names = _model_names(sources)
    for one in sources.results:
        if any(row.metric == metric for row in one.result.rows):
            groups.setdefault((one.label, names[one.result.model]), []).append(one)
        elif not any(folder in one.path.parents for folder in (*sources.runs, *sources.sweeps)):
            held = ", ".join(map(visible, dict.fromkeys(row.metric for row in one.result.rows)))
            raise DataError(f"{one.path}: it holds no {metric}, only {held}; leave it out here")
    entries = [_merged(label, model, group, metric) for (label, model), group in groups.items()]
    short = []
    for run in sources.runs if metric == ENTROPY else ():
        number = _final_entropy(run)
        head = sources.heads[run]
        label = visible(run.resolve().name)
        numbers = {Key(ENTROPY, None, None): number}
        entries.append(Entry(label, names[head.model], numbers, is_ours=_is_ours(label, head.method)))
        short += [f"{label} ({number.n})"] if (number.n or 0) < LAST_ITERATIONS else []
    warnings = [f"fewer than {LAST_ITERATIONS} iterations to average: {', '.join(short)}"] if short else []
    return entries, warnings + (_of_different_problems(sources.results) if metric == DISTINCT else [])


def _of_different_problems(results: Sequence[Labelled]) -> list[str]:
    """A warning for each benchmark whose distinct@k is over other problems in one result than in another one."""
    found: dict[tuple[str, int | None], dict[tuple[str, int, int], None]] = {}
    for one in results:
        num_all = {row.benchmark: row.num_problems for row in one.result.rows if row.metric == "ucc@k"}
        for row in one.result.rows:
            if row.metric == DISTINCT and row.benchmark != AVERAGE:
                told = one.label, row.num_problems, num_all.get(row.benchmark, row.num_problems)
                found.setdefault((row.benchmark, row.k), {})[told] = None
    # Of each benchmark the largest k, where the problems that are left differ most.
    largest = {
        name: (k, counts)
        for (name, k), counts in sorted(found.items(), key=lambda of: of[0][1] or 0)
        if len({label for label, *_ in counts}) > 1
    }
    warnings = []
    for name, (k, counts) in largest.items():
        if len({num for _, *nums in counts for num in nums}) > 1:
            words = ", ".join(f"{visible(label)} {num} of {num_all}" for label, num, num_all in counts)
            warnings.append(
                f"{visible(name)}: distinct@k is over the problems with k correct answers, which differ between these "
                f"results, so that they do not compare; at k = {k}: {words}"
            )
    return warnings


def renamed(entries: Sequence[Entry], labels: Sequence[str] | None, models: Sequence[str] | None) -> list[Entry]:
    """The entries with these ``labels``, one each, and ``models``: one for all, or one for each model that they have.

    Raises UsageError, which lists the names of the entries, if there are more or fewer.
    """
    held = list(dict.fromkeys(entry.model for entry in entries))
    models = list(models) * len(held) if models is not None and len(models) == 1 else models
    for option, given, found in (
        ("--labels", labels, [entry.label for entry in entries]),
        ("--models", models, [model or "model not stated" for model in held]),
    ):
        if given is not None and len(given) != len(found):
            raise UsageError(f"{option}: {len(given)} names, expected {len(found)}, one for each of {', '.join(found)}")
    named = dict(zip(held, models or held, strict=True))
    return [
        replace(entry, label=label, model=named[entry.model], is_ours=entry.is_ours or _is_ours(label, None))
        for entry, label in zip(entries, map(visible, labels or [entry.label for entry in entries]), strict=True)
    ]


def published_entries(metric: str, *, tables: Iterable[str]) -> list[Entry]:
    """The paper's methods with their numbers of ``metric`` in these tables, Pass@k as shares."""
    wanted = set(tables)
    scale = 0.01 if metric == "pass@k" else 1.0
    groups: dict[tuple[str, str | None, bool], dict[Key, Number]] = {}
    for series in paper().of(metric):
        if series.table not in wanted:
            continue
        numbers = groups.setdefault((series.label, series.model, series.is_ours), {})
        for k, value in series.values().items():
            numbers[Key(metric, series.benchmark, k)] = Number(value * scale, misprint=series.misprints.get(k))
    return [
        Entry(f"{label} (paper)", model, numbers, is_ours=is_ours, is_published=True)
        for (label, model, is_ours), numbers in groups.items()
    ]


def _merged(label: str, model_name: str | None, group: Sequence[Labelled], metric: str) -> Entry:
    parts = [_numbers(one, metric) for one in group]
    holders = {key: [i for i, numbers in enumerate(parts) if key in numbers] for part in parts for key in part}
    # The averages alone where there is nothing else.
    holders = {key: where for key, where in holders.items() if key.benchmark != AVERAGE} or holders
    num_results = _num_results(label, group, holders)
    # What each file knows of each problem, where the metric follows from it.
    known = [(one.result.problems or ()) if len(group) > 1 and metric in OF_COUNTS else () for one in group]
    problems: list[_Problems] = [
        grouped(some, lambda one: (one.benchmark, "" if metric == "pass@k" else setting_of(one))) for some in known
    ]
    seeds = {
        key: [_by_problem(group[i].path, problems[i], key, parts[i][key].value) for i in where]
        for key, where in holders.items()
        if len(where) > 1
    }
    merged = {key: _mean(key, [parts[i][key] for i in where], [seeds.get(key, [{}])]) for key, where in holders.items()}
    # A file's own average, which has an interval, is the entry's only if the file holds all of its benchmarks.
    names = {key.benchmark for key in holders}
    if all(names <= {key.benchmark for key in numbers} for numbers in parts):
        for key in parts[0]:
            if key.benchmark == AVERAGE and all(key in numbers for numbers in parts):
                members = [one for one in holders if (one.metric, *one[2:]) == (key.metric, *key[2:])]
                merged[key] = _mean(key, [numbers[key] for numbers in parts], [seeds.get(one, [{}]) for one in members])
    is_ours = _is_ours(label, group[0].result.method)
    return Entry(visible(label), model_name, merged, is_ours=is_ours, num_results=num_results)


def _num_results(label: str, group: Sequence[Labelled], holders: Mapping[Key, Sequence[int]]) -> int:
    """The number of files that hold each number; raises DataError if it is not the same for all of them."""
    most, least = max(holders, key=lambda key: len(holders[key])), min(holders, key=lambda key: len(holders[key]))
    num_most, num_least = len(holders[most]), len(holders[least])
    if num_most > 1:
        first, second = (group[i] for i in holders[most][:2])
        if not (first.was_given and second.was_given):
            raise UsageError(
                f"{first.path} and {second.path} both hold {_named(most)} and have no label to tell them apart; "
                "give each one with `quatro eval ... --label NAME -o FILE`"
            )
    if num_most != num_least:
        raise DataError(
            f"the files labelled {shown(label)} do not match: {num_most} hold {_named(most)}, but {num_least} hold "
            f"{_named(least)}; a mean over seeds needs the same numbers in every file; give other files another --label"
        )
    return num_most


def _numbers(one: Labelled, metric: str) -> dict[Key, Number]:
    numbers: dict[Key, Number] = {}
    for row in one.result.rows:
        if row.metric != metric:
            continue
        benchmark = None if metric == ENTROPY else row.benchmark
        name = benchmark if benchmark == AVERAGE else benchmark and visible(benchmark)
        key = Key(metric, name, row.k, setting_of(row))
        if key in numbers:
            raise DataError(f"{one.path}: it holds {_named(key)} twice")
        limit = _limit(row.metric, row.k, row.n)
        if row.value < 0 or (limit is not None and row.value > limit):
            raise DataError(f"{one.path}: {_named(key)} is {row.value}, expected a number in [0, {limit}]")
        over = row.ci_over or (None if row.ci_low is None else PROBLEMS)
        numbers[key] = Number(row.value, row.ci_low, row.ci_high, row.n, over=over)
    return numbers


def _limit(metric: str, k: int | None, n: int | None) -> int | None:
    return MOST_ENTROPY if metric == ENTROPY else largest_value(metric, k, n)


def _mean(key: Key, numbers: Sequence[Number], by_problem: Sequence[Sequence[Mapping[str, float]]]) -> Number:
    """The mean over seeds, of which ``numbers`` are, and its interval; ``by_problem`` is that of `mean_of_seeds`."""
    if len(numbers) == 1:
        return numbers[0]
    n = min(number.n or 0 for number in numbers) or None
    found = mean_of_seeds([number.value for number in numbers], by_problem, _limit(key.metric, key.k, n))
    return Number(found.mean, found.low, found.high, n, over=None if found.low is None else found.over)


_Problems = Mapping[tuple[str | None, str], Sequence[ProblemEntry]]  # by benchmark and setting


def _by_problem(path: Path, problems: _Problems, key: Key, value: float) -> dict[str, float]:
    """Each problem's number by id, or nothing; DataError if ``value`` is not their mean, or counts cannot be."""
    found = {}
    for problem in problems.get((key.benchmark, key.setting), ()):
        try:
            counts = problem.n, problem.correct, problem.clusters or (), key.k or 1
            found[problem.id] = OF_COUNTS[key.metric](*counts)
        except ValueError as error:
            raise DataError(f"{path}: problem {shown(problem.id)}: {error}") from None
    found = {id: number for id, number in found.items() if not math.isnan(number)}
    mean = math.fsum(found.values()) / len(found) if found else value
    if abs(mean - value) > 1e-6:
        raise DataError(f"{path}: {_named(key)} is {value}, but the mean of its problems is {mean}; measure again")
    return found


def _named(key: Key) -> str:
    name = metric_at(key.metric, key.k)
    name += f" of {shown(key.benchmark)}" if key.benchmark is not None else ""
    return f"{name} ({key.setting})" if key.setting else name


def _is_ours(label: str, method: str | None) -> bool:
    return label.lower().startswith("ours") or (method or "").split(" ")[0] == "quatro"


def _model_names(sources: Sources) -> dict[str | None, str | None]:
    """The name of each model that the results are of: models that began with one digest have one name."""
    first_with: dict[str, str] = {}
    alike: dict[str, str] = {}
    heads: list[Result | RunHead] = [*(one.result for one in sources.results), *sources.heads.values()]
    for one in heads:
        if one.model is not None:
            alike.setdefault(one.model, first_with.setdefault(one.base_digest or f"unknown: {one.model}", one.model))
    labels = model_labels({model: digest for digest, model in first_with.items()})
    return {None: None, **{model: labels[first] for model, first in alike.items()}}


def model_labels(digests: Mapping[str, str]) -> dict[str, str]:
    """The label of each model (model -> its digest): an id on the Hub or the name of a folder, spelled as in the paper.

    Where several would share one, the shortest part that their paths differ in stands behind it.
    """
    known = {series.model.lower(): series.model for series in paper().series if series.model is not None}
    labels = {}
    for model, digest in digests.items():
        parts = [part for part in re.split(r"[/\\]", model) if part] or [model]
        while len(parts) > 1 and _PART_OF_RUN.fullmatch(parts[-1]):
            parts.pop()
        is_on_hub = digest.partition("@")[0] == model
        labels[model] = known.get(parts[-1].lower(), visible(model if is_on_hub else parts[-1]))
    for label, models in grouped(labels, labels.__getitem__).items():
        if len(models) > 1:
            ends = told_apart([re.split(r"[/\\]", model.rstrip("/\\")) for model in models])
            labels |= {model: f"{label} ({visible(end)})" for model, end in zip(models, ends, strict=True)}
    return labels


def _final_entropy(run: Path) -> Number:
    """Mean entropy of the run's last iterations, in nats per token; ``n`` counts them."""
    file = run / "metrics.jsonl"
    if not file.exists():
        raise DataError(f"{file} does not exist: the run has not begun; `quatro train {run} --resume` continues it")
    last = [(at, row.get(ENTROPY_METRIC)) for at, row in metric_rows(file)][-LAST_ITERATIONS:]
    if not last:
        raise DataError(f"{file}: it has no iteration yet")
    values = []
    for at, value in last:
        if not (isinstance(value, (int, float)) and 0 <= value <= MOST_ENTROPY):
            raise DataError(f"{at}: {ENTROPY_METRIC} is {shown(value)}; the mean of the last iterations needs it")
        values.append(float(value))
    return Number(sum(values) / len(values), n=len(values))
