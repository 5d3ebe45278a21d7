"""A finished sweep as numbers: per run over its steps, per problem from its samples."""

# Axes: S seeds, P problems.
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evals.errors import DataError
from evals.estimators import Floats
from evals.results.training_metrics import LAST_ITERATIONS
from experiments.counts import Counts, counts_in
from quatro.config.yaml_text import load_yaml
from quatro.runs.metrics import read_metrics
from quatro.runs.points import base_name
from quatro.runs.status import read_environment
from quatro.sample.folder import Tag
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.results import SweptRun, is_measured, read_sweep

BENCHMARK = "countdown-600"
ALL, NUCLEUS = TAGS = (Tag(), Tag(top_p=0.7))  # the whole distribution, the paper's evaluation


@dataclass(frozen=True)
class Run(SweptRun):
    """A run of a sweep, or an untrained model that its runs begin from (cell `base`)."""

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return list(read_metrics(self.folder))

    @cached_property
    def model(self) -> str:
        """What the run began with. Other keys of its configuration may be gone from the program by now."""
        return str(load_yaml(self.folder / "config.yaml").data["model"])

    @cached_property
    def digest(self) -> str | None:
        """Of the weights that the run began with; None of a run that did not record it."""
        return read_environment(self.folder).get("model_digest")

    def values(self, metric: str) -> Floats:
        """The finite values of a training metric, by step."""
        found = [row[metric] for row in self.rows if isinstance(row.get(metric), (int, float))]
        return np.array(found, dtype=np.float64)

    def counts(self, tag: Tag) -> Counts:
        (counts,) = counts_in(self.folder, tag).values()
        return counts


Group = Mapping[int, Run]  # seed -> run


@dataclass(frozen=True)
class Measure:
    """A number of a run for each problem (P,); P is 1 for what has no problems. ``name`` is its heading.

    ``largest`` is that of a share or of a count among samples, whose intervals stay between 0 and it.
    """

    name: str
    of: Callable[[Run], Floats]
    largest: float | None = None

    def __call__(self, run: Run) -> Floats:
        return self.of(run)


@dataclass(frozen=True, eq=False)  # so that a measure may be made of it
class Results:
    """The finished runs of a sweep, and its base models by name."""

    folder: Path
    runs: tuple[Run, ...]
    bases: Mapping[str, Run]
    num_points: int

    def group(self, cell: str, settings: Mapping[str, str]) -> Group:
        """The runs of ``cell`` that have exactly these settings besides the seed."""
        return {run.seed: run for run in self.runs if run.cell == cell and run.settings == settings}

    def groups(self, cell: str) -> list[tuple[Mapping[str, str], Group]]:
        """All groups of a cell in the order of the plan."""
        found: dict[tuple[tuple[str, str], ...], dict[int, Run]] = {}
        for run in self.runs:
            if run.cell == cell:
                found.setdefault(tuple(run.settings.items()), {})[run.seed] = run
        return [(dict(key), group) for key, group in found.items()]

    def bases_of(self, group: Group) -> Group | None:
        """The untrained model that each run of ``group`` began with, by its seed; None without one of them."""
        names = {seed: base_name(run.model) for seed, run in group.items()}
        found = {
            seed: self.bases.get(f"{name}~{group[seed].digest}", self.bases.get(name)) for seed, name in names.items()
        }
        return {seed: base for seed, base in found.items() if base is not None} if all(found.values()) else None

    def distinct_bases(self, group: Group) -> Group:
        """The untrained models that the runs of ``group`` began with, each once; by a number, for none has a seed."""
        found = self.bases_of(group) or {}
        return dict(enumerate({base.name: base for _, base in sorted(found.items())}.values()))


def read_results(folder: Path) -> Results:
    """What of a sweep is trained and measured.

    Raises:
        DataError: there is no sweep in ``folder``.
    """
    runs, num_points = read_sweep(folder)
    bases = {
        path.name: Run(path.name, BASE_CELL, {}, path)
        for path in sorted((folder / BASE_CELL).glob("*"))
        if _is_whole(path)
    }
    return Results(folder, tuple(Run(**vars(run)) for run in runs if _is_whole(run.folder)), bases, num_points)


@cache
def last(metric: str) -> Measure:
    """The mean over the last steps of a run."""
    return Measure(f"final {metric}", lambda run: _one(np.mean(run.values(metric)[-LAST_ITERATIONS:])))


@cache
def mean_of(metric: str, largest: float | None = None) -> Measure:
    """NaN for a run without this metric."""

    def mean(run: Run) -> Floats:
        found = run.values(metric)
        return _one(np.mean(found) if found.size else math.nan)

    return Measure(f"mean {metric}", mean, largest)


@cache
def max_of(metric: str) -> Measure:
    return Measure(f"largest {metric}", lambda run: _one(np.max(run.values(metric))))


@cache
def log_of(measure: Measure) -> Measure:
    return Measure(f"log {measure.name}", lambda run: np.log(measure(run)))


@cache
def passed(k: int, tag: Tag) -> Measure:
    return Measure(f"Pass@{k}, {_words(tag)}", lambda run: run.counts(tag).passed(k), 1.0)


@cache
def unique(k: int, tag: Tag) -> Measure:
    return Measure(f"UCC@{k}, {_words(tag)}", lambda run: run.counts(tag).unique(k), float(k))


@cache
def unique_ratio(tag: Tag) -> Measure:
    return Measure(f"UCR, {_words(tag)}", lambda run: run.counts(tag).unique_ratio(), 1.0)


def _words(tag: Tag) -> str:
    return f"top_p {tag.top_p:g}{'' if tag.temperature == 1 else f', T {tag.temperature:g}'}"


def table(group: Group, measure: Measure) -> Floats | None:
    """(S, P); None where no run is done."""
    return np.stack([measure(group[seed]) for seed in sorted(group)]) if group else None


def difference(
    group: Group, other: Group | None, measure: Measure, other_measure: Measure | None = None
) -> Floats | None:
    """(S, P): the first minus the second, paired by seed and problem; None where no seed is in both.

    Raises:
        DataError: two runs of one seed began with different weights, or were sampled on different numbers of problems.
    """
    second = other_measure or measure
    if other is None:
        return None
    rows = []
    for seed in sorted(set(group) & set(other)):
        first_P, second_P = measure(group[seed]), second(other[seed])
        names = f"{group[seed].folder} and {other[seed].folder}"
        if None not in (digests := {group[seed].digest, other[seed].digest}) and len(digests) > 1:
            raise DataError(
                f"{names} began with other weights of {group[seed].model}, which another machine teaches otherwise: "
                "they cannot be paired; train both on one machine"
            )
        if len(first_P) != len(second_P):
            raise DataError(
                f"{names} hold samples of {len(first_P)} and {len(second_P)} problems; draw what is missing"
            )
        rows.append(first_P - second_P)
    return np.stack(rows) if rows else None


def commits(results: Results) -> list[str]:
    """Versions of the program that the runs were made with, as `version (commit)`."""
    found = set()
    for run in results.runs:
        about = read_environment(run.folder)
        commit = str(about.get("commit") or "no commit known")
        short, _, dirty = commit.partition("-")
        found.add(f"{about.get('quatro')} ({short[:7] if len(short) == 40 else short}{', changed' if dirty else ''})")
    return sorted(found)


def training_seconds(results: Results) -> float:
    return math.fsum(float(np.sum(run.values("perf/step_s"))) for run in results.runs)


def _is_whole(run: Path) -> bool:
    return all(is_measured(run, tag) for tag in TAGS)


def _one(value: Any) -> Floats:
    return np.array([float(value)])


def json_text(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
