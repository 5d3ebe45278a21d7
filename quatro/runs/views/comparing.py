"""Runs side by side: the settings in which they differ, their last iterations, their evaluations and their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

from evals.errors import DataError, UsageError
from evals.files.metric_rows import Rows, is_finite, last_values, with_base
from evals.metrics.comparing import compare_passk
from evals.metrics.counted import Counted, count_samples
from evals.results.comparison import Comparison
from evals.results.reading import labels_of
from evals.samples.about import agreed_grader
from evals.samples.graded import Asked
from evals.training_metrics import EVALUATED, evaluation_metrics
from quatro.config import differing_keys
from quatro.runs.tag import Tag
from quatro.runs.views.summary import RunSummary, chosen_metrics, describe_run

METHOD = "method."
Value = TypeVar("Value")


class LastIterations(NamedTuple):
    """Mean of a metric over the last iterations of a run, and its standard deviation; None for a single one."""

    mean: float
    std: float | None
    num_iterations: int


class Evaluated(NamedTuple):
    """The value of a metric of an evaluation, and the iteration after which it was measured.

    ``error`` is its standard error over problems, where it is known.
    """

    value: float
    step: int
    error: float | None = None


@dataclass(frozen=True)
class RunsBeside:
    """Runs side by side; each list has an entry for each of ``runs``, None where a run has no such thing.

    ``settings`` are those in which runs differ, by key, as YAML. ``base``, ``last`` and ``best`` are of evaluations
    before and during training, by metric. ``samples`` compare Pass@k of the first run with that of each other, for
    samples that were drawn alike, if need be at other steps; what could not be compared, and how, is in ``notes``.
    """

    names: Sequence[str]
    runs: Sequence[RunSummary]
    settings: Mapping[str, Sequence[str | None]]
    metrics: Mapping[str, Sequence[LastIterations | None]]
    base: Mapping[str, Sequence[Evaluated | None]]
    last: Mapping[str, Sequence[Evaluated | None]]
    best: Mapping[str, Sequence[Evaluated | None]]
    samples: Sequence[Comparison]
    notes: Sequence[str]

    def of_methods(self) -> dict[str, dict[str, str]]:
        """For each method its settings that a method of the others has not, and that all of its runs share."""
        methods = self.settings.get(f"{METHOD}name", [])
        found: dict[str, dict[str, str]] = {method: {} for method in methods if method is not None}
        for key, values in self.settings.items():
            own = {method: {v for m, v in zip(methods, values, strict=True) if m == method} for method in found}
            if key.startswith(METHOD) and {None} in own.values() and all(len(texts) == 1 for texts in own.values()):
                for method, (text,) in own.items():
                    found[method] |= {} if text is None else {key.removeprefix(METHOD): text}
        return {method: settings for method, settings in found.items() if settings}

    @property
    def tags(self) -> list[str]:
        """Folders of samples of the first run that were compared."""
        return sorted({Path(found.a).name for found in self.samples})

    def compared(self, tag: str) -> list[Comparison | None]:
        """How the samples of each run but the first compare with those of the first in ``tag``."""
        by_run = {Path(found.b).parents[1]: found for found in self.samples if Path(found.a).name == tag}
        return [by_run.get(run.path) for run in self.runs[1:]]

    def sampled(self, tag: str) -> str:
        """``tag``, or for samples of several steps the settings that they share and the step of each run."""
        folders = [tag, *(Path(found.b).name if found else "" for found in self.compared(tag))]
        if len({name for name in folders if name}) == 1:
            return tag
        steps = [f"{name} step {_step(at)}" for name, at in zip(self.names, folders, strict=True) if at]
        return f"{_settings(tag)}, {', '.join(steps)}"

    def document(self) -> dict[str, Any]:
        """All of it as plain JSON values."""

        def plain(table: Mapping[str, Sequence[LastIterations | Evaluated | None]]) -> dict[str, Any]:
            return {name: [value and value._asdict() for value in values] for name, values in table.items()}

        return {
            "schema": 1,
            "runs": [
                {
                    "name": name,
                    "run": str(run.path),
                    "status": run.status,
                    "step": run.step,
                    "steps": run.steps,
                    "reward_failures": run.failures_document,
                }
                for name, run in zip(self.names, self.runs, strict=True)
            ],
            "settings": self.settings,
            "metrics": plain(self.metrics),
            "evaluation": {"base": plain(self.base), "last": plain(self.last), "best": plain(self.best)},
            "samples": [found.document() for found in self.samples],
            "notes": self.notes,
        }


def compare_runs(paths: Sequence[Path]) -> RunsBeside:
    """The runs at ``paths`` side by side; reads all of their metrics, and grades no samples.

    Raises:
        UsageError: a path is not a run, or is named twice.
        DataError: a file of a run cannot be read.
    """
    names = labels_of(paths)
    runs = [describe_run(path) for path in paths]
    configs = [run.config for run in runs]
    settings = {}
    for key, values in differing_keys([config for config in configs if config is not None]).items():
        known = iter(values)
        settings[key] = [None if config is None else next(known) for config in configs]
    names_of_metrics = [name for run in runs for row in run.rows for name in row]
    evaluated = evaluation_metrics(name for name in names_of_metrics if name.startswith(f"{EVALUATED}pass@"))

    def table(metrics: Iterable[str], value_of: Callable[[Rows, str], Value | None]) -> dict[str, list[Value | None]]:
        """Rows of metrics that a run has a value of."""
        found = {name: [value_of(run.rows, name) for run in runs] for name in metrics}
        return {name: values for name, values in found.items() if any(value is not None for value in values)}

    metrics = table(chosen_metrics(names_of_metrics), _last_iterations)
    base, last, best = (table(evaluated, value_of) for value_of in (_base, _last, _best))
    samples, notes = _compared_samples(paths)
    return RunsBeside(names, runs, settings, metrics, base, last, best, samples, notes)


def _last_iterations(rows: Rows, metric: str) -> LastIterations | None:
    values = last_values(rows, metric)
    if not values:
        return None
    return LastIterations(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def _evaluations(rows: Rows, metric: str) -> list[Evaluated]:
    found = [row for row in rows if is_finite(row.get(metric))]
    return [Evaluated(float(row[metric]), int(row["step"]), row.get(f"{metric}_se")) for row in found]


def _base(rows: Rows, metric: str) -> Evaluated | None:
    return next((found for found in _evaluations(with_base(rows), metric) if found.step == 0), None)


def _last(rows: Rows, metric: str) -> Evaluated | None:
    return next(reversed(_evaluations(rows, metric)), None)


def _best(rows: Rows, metric: str) -> Evaluated | None:
    return max(_evaluations(rows, metric), key=lambda found: found.value, default=None)


def _compared_samples(paths: Sequence[Path]) -> tuple[list[Comparison], list[str]]:
    """Pass@1 and Pass@n of each run minus those of the first, of every pair of folders that were drawn alike."""
    first, *others = paths
    found, notes = [], []
    counted: dict[Path, Counted] = {}

    def count(folder: Path) -> Counted:
        if folder not in counted:
            counted[folder] = count_samples([folder], asked=Asked(may_grade=False))
        return counted[folder]

    sampled = {path: sorted(folder for folder in path.glob("samples/*") if folder.is_dir()) for path in paths}
    for folders in [pair for other in others for pair in _pairs(sampled[first], sampled[other])]:
        try:
            a, b = map(count, folders)
            agreed_grader({str(folder): count(folder).grader for folder in folders})
            ks = [1, min(problem.n for problem in a.problems)]
            found.append(compare_passk(a, b, names=(str(folders[0]), str(folders[1])), ks=ks))
        except (DataError, UsageError) as error:
            notes.append(f"{folders[0]} and {folders[1]} are not compared: {error}")
            continue
        if folders[0].name != folders[1].name:
            at = _step(folders[1].name)
            notes.append(
                f"{folders[0]} is compared with {folders[1]}, which is of another step"
                + (f"; `quatro sample {first} --step {at}` draws at that step" if at.isdigit() else "")
            )
    if not found and not notes and any(sampled.values()):
        held = [f"{path} has {', '.join(one.name for one in own) or 'none'}" for path, own in sampled.items()]
        notes.append(f"no samples were drawn as those of {first}, so none are compared: {'; '.join(held)}")
    return found, notes


def _pairs(first: Sequence[Path], other: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Folders of two runs with the same tag; or, where there are none of some settings, those of their last steps."""
    pairs = [(a, b) for a in first for b in other if a.name == b.name]
    paired = {_settings(a.name) for a, _ in pairs}
    last_a, last_b = ({_settings(one.name): one for one in side} for side in (first, other))
    pairs += [(a, last_b[key]) for key, a in last_a.items() if key in last_b and key not in paired]
    return sorted(pairs)


def _settings(name: str) -> str:
    """The tag ``name`` without the step of the checkpoint; another name as it is."""
    tag = Tag.parse(name)
    return name if tag is None else str(replace(tag, step=None, is_inside=False))


def _step(name: str) -> str:
    """The step of the checkpoint in a tag, as text."""
    tag = Tag.parse(name)
    if tag is None or tag.step is None:
        return "no step"
    return f"inside step {tag.step + 1}" if tag.is_inside else str(tag.step)
