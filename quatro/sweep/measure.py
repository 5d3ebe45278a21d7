"""Sampling and measuring the runs of a sweep: Pass@1, Pass@n and UCC@n of benchmarks, and the same of the base."""

import itertools
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.benchmarks.problems import benchmark_name
from evals.errors import UsageError
from evals.results.document import read_result
from evals.results.entries import model_labels
from evals.text import escaped
from quatro.config.paths import PATHS, digest_of, relative
from quatro.config.yaml_text import scalar_text
from quatro.registry import ENGINES
from quatro.runs.points import asked_as, base_name
from quatro.runs.status import read_environment
from quatro.sample.folder import PASSK, UCC, Tag
from quatro.sweep.plan import Point, SweepPlan

BASE_CELL = "base"


@dataclass(frozen=True)
class SweepEvaluation:
    """``n`` samples of every problem of each benchmark, at each of ``temperatures`` with each of ``top_ps``."""

    benchmarks: tuple[str, ...]
    n: int = 256
    temperatures: tuple[float, ...] = (1.0,)
    top_ps: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(f"--eval-n {self.n}: expected at least 1 sample per problem")
        if not self.benchmarks or len(set(self.benchmarks)) < len(self.benchmarks):
            raise UsageError(f"--eval {','.join(self.benchmarks)}: expected different benchmarks, or all")
        for option, values, most, example in (
            ("--eval-top-p", self.top_ps, 1.0, "(0, 1], such as 1,0.7"),
            ("--eval-temperature", self.temperatures, math.inf, "above 0, such as 0.6,1"),
        ):
            if not values or len(set(values)) < len(values) or not all(0 < value <= most for value in values):
                shown = ",".join(f"{value:g}" for value in values)
                raise UsageError(f"{option} {shown}: expected different numbers {'in ' if most == 1 else ''}{example}")

    def recorded(self, folder: Path) -> dict[str, Any]:
        """As the block `evaluation` of a sweep file in ``folder``; a file of problems is found after a move, too."""
        names, paths = list(self.benchmarks), {}
        for number, name in enumerate(self.benchmarks):
            if os.path.isfile(name):
                names[number] = relative(os.path.realpath(name), folder)
                paths[f"benchmarks.{number}"] = f"{digest_of(name)} {name}"
        found = {"benchmarks": names, "n": self.n, "temperature": self.temperatures, "top_p": self.top_ps}
        return {**found, PATHS: paths} if paths else found

    @property
    def tags(self) -> list[Tag]:
        """One for each way of sampling."""
        return [Tag(temperature, top_p) for temperature in self.temperatures for top_p in self.top_ps]


def base_points(plan: SweepPlan) -> list[Point]:
    """One stand-in point for each model that the sweep's runs begin from, asked as they ask and to their length."""
    found: dict[tuple[object, ...], Point] = {}
    configs = [point.config for point in plan.points]
    # As typed, so that they have the same names after a move.
    typed = {config.model: config.paths["model"].typed for config in configs if "model" in config.paths}
    labels = model_labels(dict.fromkeys(typed.values(), ""))
    for config in configs:
        rollout, data = config.rollout, config.data
        kwargs = scalar_text(data.chat_template_kwargs)
        asked = (data.template, data.system, kwargs, tuple(config.stop), rollout.thinking)
        if any((one.template, one.system) != asked[:2] for one in data.sources):
            raise UsageError(
                "a source of data.prompts has another prompt template than data.template, with which a sweep would ask "
                "the untrained model; set data.template to it too, or leave out --eval and use `quatro sample`"
            )
        key = (config.model, rollout.max_new_tokens, *asked)
        if key not in found:
            name = base_name(typed.get(config.model, config.model), labels.get(typed.get(config.model, "")))
            twins = sum(other.config.model == config.model for other in found.values())
            found[key] = Point(f"{name}-{config.rollout.max_new_tokens}" if twins else name, {}, config, BASE_CELL)
    names = [point.name for point in found.values()]
    if len(set(names)) < len(names):
        raise UsageError(
            "two base models of this sweep would share a folder: their names look the same in a file name, or they "
            "are asked with several templates or stop strings; sweep them apart"
        )
    return list(found.values())


def run_folder(folder: Path, point: Point) -> Path:
    """The run of a point; for a base, where its samples are."""
    return folder / ("base" if point.cell == BASE_CELL else "runs") / point.name


def other_weights(points: Iterable[Point], folder: Path) -> list[str]:
    """A line for each model whose weights were not the same when two of its runs began.

    An embedded model is taught on every machine, and each kind of processor rounds otherwise; a folder may change.
    """
    first_with: dict[str, dict[str, str]] = {}
    for point in points:
        digest = read_environment(run_folder(folder, point)).get("model_digest")
        if isinstance(digest, str):
            first_with.setdefault(point.config.model, {}).setdefault(digest, point.name)
    return [
        f"{model} had other weights when {' and '.join(list(names.values())[1:])} began than when "
        f"{next(iter(names.values()))} did: differences between such runs are in part those of the weights"
        for model, names in first_with.items()
        if len(names) > 1
    ]


def sample_arguments(evaluation: SweepEvaluation, point: Point, run: Path, tag: Tag, num_gpus: int = 0) -> list[str]:
    """What `quatro sample` is called with, an engine on each of several GPUs; drawing again draws what is missing."""
    config, is_base = point.config, point.cell == BASE_CELL
    what = [config.model if is_base else str(run), "-b", ",".join(evaluation.benchmarks), "-n", str(evaluation.n)]
    what += ["--temperature", f"{tag.temperature:g}", "--top-p", f"{tag.top_p:g}"]
    what += ["--max-tokens", str(config.rollout.max_new_tokens)]
    what += ["--stop=" + escaped(text) for text in config.stop]
    what += asked_as(config) if is_base else []
    what += [] if ENGINES[config.rollout.engine].is_recorded else ["--engine", config.rollout.engine]
    what += ["--gpus", ",".join(map(str, range(num_gpus)))] if num_gpus > 1 else []
    return [*what, "--grade", "-o", str(tag.folder(run))]


def measured(evaluation: SweepEvaluation | None, run: Path, *tags: Tag) -> dict[str, float] | None:
    """Name -> value as in summary.csv, of each of ``tags`` (none: of every way of sampling).

    None where one of them is not measured at this n, empty where nothing is to be measured.

    Raises DataError for a damaged result.
    """
    if evaluation is None:
        return {}
    found = {}
    for tag in tags or evaluation.tags:
        paths = [tag.folder(run) / name for name in (PASSK, UCC)]
        if not all(path.exists() for path in paths):
            return None
        passk, ucc = map(read_result, paths)
        wanted = ((passk, "pass@k", 1), (passk, "pass@k", evaluation.n), (ucc, "ucc@k", evaluation.n))
        for benchmark, (result, metric, k) in itertools.product(evaluation.benchmarks, wanted):
            name, how = benchmark_name(benchmark), str(tag).removeprefix("T1-")
            values = [row.value for row in result.rows if (row.metric, row.benchmark, row.k) == (metric, name, k)]
            if not values or values[0] is None:
                return None
            found[f"{name}/{how}/{metric.removesuffix('k')}{k}"] = values[0]
    return found
