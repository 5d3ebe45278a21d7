"""The results of a sweep for tables and curves: under the paper's labels, one result for each seed.

Imports no torch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from evals.errors import DataError, UsageError
from evals.figures.method_looks import method_title
from evals.files.metric_rows import last_mean
from evals.results.document import Result, Row, read_result
from evals.results.entries import ENTROPY
from evals.results.labels import labels_of
from quatro.config import Config
from quatro.runs.identity import read_config
from quatro.runs.metrics import is_imported, read_metrics
from quatro.runs.points import SWEEP, is_sweep, point_config, read_points, refuse_other_base
from quatro.runs.status import read_status
from quatro.runs.tag import Tag
from quatro.sample.measure import PASSK, UCC
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.plan import METHOD_AXIS, SEED_AXIS

if TYPE_CHECKING:
    from evals.tables.parts import Table

logger = logging.getLogger(__name__)


_ENTROPY_METRIC = "entropy/token_mean"


@dataclass(frozen=True)
class SweptRun:
    """A finished run of a sweep; ``settings`` are its ``axes`` without the seed, key -> value as text."""

    name: str
    cell: str
    settings: Mapping[str, str]
    seed: int
    folder: Path
    axes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def config(self) -> Config:
        """Raises DataError unless the run is what the sweep planned under this name."""
        return point_config(self.folder.parents[1], self.name, self.axes)


class SweptResult(NamedTuple):
    """A result with the label of its setting and the heading of its cell in place of what stands in ``path``."""

    result: Result
    path: Path


def read_sweep(folder: Path) -> tuple[list[SweptRun], int]:
    """The runs of a sweep that are done, in the order of its plan, and how many were planned.

    Raises:
        DataError: there is no sweep in ``folder``, or its sweep.yaml has no points.
    """
    if not is_sweep(folder):
        raise DataError(f"{folder} is not a sweep (no {SWEEP} in it); `quatro sweep` makes one")
    points = read_points(folder)
    runs = []
    for name, (cell, settings) in points.items():
        others = {key: value for key, value in settings.items() if key != SEED_AXIS}
        if read_status(folder / "runs" / name).get("status") == "done":
            seed = int(settings.get(SEED_AXIS, "0"))
            runs.append(SweptRun(name, cell, others, seed, folder / "runs" / name, settings))
    return runs, len(points)


def label_of(settings: Mapping[str, str], *, method: str) -> str:
    """What the paper calls a setting: `Ours delta=0.01`, `GSPO`; other keys behind it, the preset `paper` unsaid.

    A method of the user's own goes by its name.
    """
    name = settings.get(METHOD_AXIS, method)
    preset = settings.get("method.preset", "paper")
    said = (METHOD_AXIS, "method.preset")
    rest = [f"{key.removeprefix('method.')}={value}" for key, value in settings.items() if key not in said]
    head = "Ours" if name == "quatro" else method_title(name)
    return " ".join([head, *rest, *([f"({preset})"] if preset != "paper" else [])])


def labelled_results(
    folder: Path, *, top_p: float | None = None, temperature: float | None = None, cell: str | None = None
) -> list[SweptResult]:
    """Pass@k, UCC@k and final entropy of every finished run, and of the untrained models, first in each cell.

    ``top_p`` and ``temperature`` choose among the samples as `chosen_tag` does; ``cell`` None is all of them. The model
    stands as a heading, with the cell where it has several.

    Raises:
        UsageError: as `chosen_tag`; an unknown cell.
        DataError: not a sweep, none of its runs is done, or a result cannot be read.
    """
    runs = chosen_runs(folder, cell)
    tag = chosen_tag(folder, runs, top_p, temperature)
    found: list[SweptResult] = []
    trained = []
    headings_with_base = set()
    cells_of = _cells_of_models(runs)
    for run in runs:
        config = run.config
        heading = f"{config.model}, {run.cell}" if len(cells_of[config.model]) > 1 else config.model
        if heading not in headings_with_base:
            headings_with_base.add(heading)
            base = base_folder(folder, config.model, config.rollout.max_new_tokens)
            found += _measured(base, tag, "Base", heading) if base is not None else []
        label = label_of(run.settings, method=config.method.name)
        found += _measured(run.folder, tag, label, heading)
        trained.append((run, label, heading))
    return found + _final_entropies(trained)


def labelled_runs(paths: Sequence[Path], *, cell: str | None = None) -> dict[str, list[Path]]:
    """Run directories by label: a run goes by its name, the runs of a sweep by their settings, with all seeds.

    Raises:
        UsageError: two labels are the same, or a sweep has no such ``cell``.
        DataError: a path is neither a run nor a sweep, or no run of a sweep is done.
    """
    found: dict[str, list[Path]] = {}
    for path, name in zip(paths, labels_of(paths), strict=True):
        if is_sweep(path):
            own: dict[str, list[Path]] = {}
            runs = chosen_runs(path, cell)
            has_cells = len({run.cell for run in runs}) > 1
            for run in runs:
                label = label_of(run.settings, method=run.config.method.name)
                own.setdefault(f"{label}, {run.cell}" if has_cells else label, []).append(run.folder)
        elif (path / "config.yaml").is_file():
            own = {name: [path]}
        elif is_imported(path):
            raise DataError(
                f"{path} holds imported metrics, which say neither the settings nor the cost of a run; leave it out"
            )
        else:
            raise DataError(f"{path} is neither a run nor a sweep; `quatro runs list` shows the runs")
        twice = found.keys() & own.keys()
        if twice:
            raise UsageError(f"two of the paths hold {min(twice)!r}; give each a table of its own")
        found |= own
    return found


def _cells_of_models(runs: Sequence[SweptRun]) -> dict[str, set[str]]:
    """The cells of each model that the runs began from."""
    found: dict[str, set[str]] = {}
    for run in runs:
        found.setdefault(run.config.model, set()).add(run.cell)
    return found


def chosen_runs(folder: Path, cell: str | None) -> list[SweptRun]:
    """The finished runs of a sweep, or of one of its cells.

    Raises:
        UsageError: there is no such cell.
        DataError: no run is done.
    """
    runs, _ = read_sweep(folder)
    if not runs:
        raise DataError(f"{folder}: no run of this sweep is done yet; `quatro sweep {folder}` goes on with it")
    cells = list(dict.fromkeys(run.cell for run in runs))
    if cell is None:
        return runs
    if cell not in cells:
        known = ", ".join(name for name in cells if name) or "none: it has no cells"
        raise UsageError(f"--cell {cell}: {folder} has no finished run in such a cell; known: {known}")
    return [run for run in runs if run.cell == cell]


def chosen_tag(folder: Path, runs: Sequence[SweptRun], top_p: float | None, temperature: float | None) -> Tag:
    """The samples of a sweep at this ``top_p`` and ``temperature``; None is the only one that was measured.

    A temperature of 1 goes before others that were measured beside it.

    Raises:
        UsageError: nothing was measured like this, or several ways of sampling fit.
    """
    fitting = fitting_tags(folder, runs, top_p, temperature)
    if temperature is None:
        fitting = [tag for tag in fitting if tag.temperature == 1] or fitting
    if len(fitting) > 1:
        values = {"--temperature": {t.temperature for t in fitting}, "--top-p": {t.top_p for t in fitting}}
        options = " and ".join(option for option, found in values.items() if len(found) > 1)
        raise UsageError(f"{folder} was measured at {_listed(fitting)}; choose one with {options}")
    return fitting[0] if fitting else Tag()


def fitting_tags(folder: Path, runs: Sequence[SweptRun], top_p: float | None, temperature: float | None) -> list[Tag]:
    """Every way of sampling that was measured, at this ``top_p`` and ``temperature`` where they are given.

    Raises:
        UsageError: one of them was given, and nothing was measured at it.
    """
    known = sorted(
        (tag for tag in tags_with(runs, PASSK) if tag == Tag(tag.temperature, tag.top_p)),
        key=lambda tag: (tag.temperature, tag.top_p),
    )
    given = {"--top-p": top_p, "--temperature": temperature}
    fitting = [tag for tag in known if top_p in (None, tag.top_p) and temperature in (None, tag.temperature)]
    if not fitting and (top_p, temperature) != (None, None):
        asked = " ".join(f"{option} {value:g}" for option, value in given.items() if value is not None)
        held = f"{folder} was measured at {_listed(known) or 'nothing'}"
        raise UsageError(f"{asked}: {held}; `quatro sweep --eval` measures")
    return fitting


def _listed(tags: Sequence[Tag]) -> str:
    """``T 0.6, top_p 0.7 | T 1, top_p 0.7``."""
    return " | ".join(f"T {tag.temperature:g}, top_p {tag.top_p:g}" for tag in tags)


def tags_with(runs: Sequence[SweptRun], file: str) -> set[Tag]:
    """The tags under which some of the runs have samples with ``file`` beside them."""
    names = {path.parent.name for run in runs for path in run.folder.glob(f"samples/*/{file}")}
    return {tag for name in names if (tag := Tag.parse(name)) is not None}


def base_folder(folder: Path, model: str, max_tokens: int) -> Path | None:
    """Where the samples of the untrained ``model``, drawn to that length, are; raises as `refuse_other_base`."""
    for path in sorted((folder / BASE_CELL).glob("*")):
        refuse_other_base(path)
        for file in sorted(path.glob(f"samples/*/{PASSK}"))[:1]:
            head = read_result(file)
            if (head.model, head.method, head.sampling.max_tokens) == (model, None, max_tokens):
                return path
    return None


def _measured(run: Path, tag: Tag, label: str, heading: str) -> list[SweptResult]:
    files = [tag.folder(run) / name for name in (PASSK, UCC)]
    own = {"label": label, "model": heading}
    return [SweptResult(read_result(file).model_copy(update=own), file) for file in files if file.is_file()]


def _final_entropies(runs: Sequence[tuple[SweptRun, str, str]]) -> list[SweptResult]:
    """Of runs with their labels and headings. Where it is unknown of one seed, it is of the setting."""
    found, unknown, files = [], set(), []
    for run, label, heading in runs:
        file = run.folder / "metrics.jsonl"
        value = last_mean(list(read_metrics(run.folder)), _ENTROPY_METRIC)
        if value is None:
            unknown.add((label, heading))
            files.append(str(file))
            continue
        row = Row(metric=ENTROPY, benchmark="training", k=None, value=value, num_problems=0, n=0)
        found.append(SweptResult(Result(metric=ENTROPY, label=label, model=heading, rows=[row]), file))
    if files:
        logger.warning("no mean of %s over the last iterations, which lack it: %s", _ENTROPY_METRIC, ", ".join(files))
    return [one for one in found if (one.result.label, one.result.model) not in unknown]


def run_tables(layout: Literal["settings", "cost"], runs: Mapping[str, Sequence[Path]]) -> list[Table]:
    """The hyper-parameters of runs by label (each with all seeds), or what training them cost.

    Raises:
        UsageError: a configuration cannot be read.
        DataError: a metrics.jsonl is broken, or has no iteration.
    """
    from evals.tables.cost import cost_table
    from evals.tables.settings import HyperParameter, settings_tables
    from quatro.config.hyperparameters import hyperparameters

    if layout == "cost":
        return [cost_table(runs)]
    configs = {label: [read_config(folder) for folder in folders] for label, folders in runs.items()}
    return settings_tables(
        {label: [HyperParameter(*one) for one in hyperparameters(c)] for label, c in configs.items()}
    )
