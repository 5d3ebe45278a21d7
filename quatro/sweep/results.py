"""Results of a sweep under the paper's labels, of each seed or means over seeds. Imports no torch."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from evals.errors import DataError, UsageError
from evals.figures.method_looks import method_title
from evals.files.frames import grouped
from evals.metrics import flips
from evals.metrics.counting import Counts
from evals.metrics.passk_ucc import least_correct, passk_estimates, rows_of, ucc_estimates
from evals.results.document import AVERAGE, ProblemEntry, Result, Row, read_result
from evals.results.entries import ENTROPY, model_labels
from evals.results.training_metrics import last_mean
from evals.similarity import Setting
from quatro.config import Config
from quatro.runs.metrics import read_metrics
from quatro.runs.points import SWEEP, is_sweep, point_config, read_points, refuse_other_base
from quatro.runs.status import read_environment, read_status
from quatro.sample.folder import PASSK, UCC, Tag
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.plan import METHOD_AXIS, SEED_AXIS

logger = logging.getLogger(__name__)

_ENTROPY_METRIC = "entropy/token_mean"
_UNKNOWN = Setting("", None, "", "")  # what counted as one cluster, where a file does not say


@dataclass(frozen=True)
class SweptRun:
    """A finished run of a sweep; ``axes``, key -> value as text, are what it was planned with.

    ``models`` are the labels of the models that are an axis.
    """

    name: str
    cell: str
    axes: Mapping[str, str]
    folder: Path
    models: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, str]:
        """The axes without the seed."""
        return {key: value for key, value in self.axes.items() if key != SEED_AXIS}

    @property
    def seed(self) -> int:
        return int(self.axes.get(SEED_AXIS, "0"))

    @cached_property
    def config(self) -> Config:
        """Raises DataError unless the run is what the sweep planned under this name."""
        return point_config(self.folder.parents[1], self.name, self.axes)

    @cached_property
    def label(self) -> str:
        """What the paper calls its setting."""
        settings = {key: self.models[value] if key == "model" else value for key, value in self.settings.items()}
        return label_of(settings, method=self.config.method.name)

    @cached_property
    def base_digest(self) -> Any:
        """The digest of the model that it began from, if it is known."""
        return read_environment(self.folder).get("model_digest")

    @cached_property
    def base(self) -> Path | None:
        """Where the samples of the model are that it began from, if of its length; raises as `refuse_other_base`."""
        for path in sorted((self.folder.parents[1] / BASE_CELL).glob("*")):
            refuse_other_base(path)
            for file in sorted(path.glob(f"samples/*/{PASSK}"))[:1]:
                head = read_result(file)
                digest = self.base_digest
                is_model = head.model == self.config.model or (digest is not None and digest == head.source_digest)
                if is_model and (head.method, head.sampling.max_tokens) == (None, self.config.rollout.max_new_tokens):
                    return path
        return None


Labelled = tuple[Result, Path]  # a result under the label of its setting, and the file that it is of


def read_sweep(folder: Path) -> tuple[list[SweptRun], int]:
    """The runs of a sweep that are done, in the order of its plan, and how many were planned.

    Raises DataError if there is no sweep in ``folder``, or its sweep.yaml has no points.
    """
    if not is_sweep(folder):
        raise DataError(f"{folder} is not a sweep (no {SWEEP} in it); `quatro sweep` makes one")
    points = read_points(folder)
    models = model_labels({axes["model"]: "" for _, axes in points.values() if "model" in axes})
    runs = [
        SweptRun(name, cell, axes, folder / "runs" / name, models)
        for name, (cell, axes) in points.items()
        if read_status(folder / "runs" / name).get("status") == "done"
    ]
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
) -> list[Labelled]:
    """Pass@k, UCC@k and final entropy of every finished run, and of the untrained models, first in each cell.

    ``top_p`` and ``temperature`` choose among the samples as `chosen_tag` does; ``cell`` None is all of them. The model
    stands as a heading, with the cell where it has several.

    Raises:
        UsageError: as `chosen_tag`; an unknown cell.
        DataError: not a sweep, none of its runs is done, or a result cannot be read.
    """
    runs = chosen_runs(folder, cell)
    tag = chosen_tag(folder, runs, top_p, temperature)
    found: list[Labelled] = []
    trained = []
    headings_with_base = set[str]()
    for run in runs:
        model = run.config.model
        has_cells = len({one.cell for one in runs if one.config.model == model}) > 1
        # By a digest, all cells of a model would be one.
        digest = None if has_cells else run.base_digest
        heading: dict[str, Any] = {"model": f"{model}, {run.cell}" if has_cells else model, "base_digest": digest}
        own = _measured(run.folder, tag, run.label, heading)
        if own and heading["model"] not in headings_with_base:
            of_base = _measured(run.base, tag, "Base", heading) if run.base is not None else []
            if not of_base:
                logger.warning("the base %s was not sampled like this: `quatro sweep %s --eval NAME`", model, folder)
            found += of_base
            headings_with_base.add(heading["model"])
        found += own
        trained.append((run, heading))
    return found + _final_entropies(trained)


def chosen_runs(folder: Path, cell: str | None) -> list[SweptRun]:
    """A sweep's finished runs, or a cell's; raises DataError if none is done, UsageError for an unknown cell."""
    runs, _ = read_sweep(folder)
    if not runs:
        raise DataError(f"{folder}: no run of this sweep is done yet; `quatro sweep {folder}` goes on with it")
    chosen = [run for run in runs if cell in (None, run.cell)]
    if not chosen:
        known = ", ".join(dict.fromkeys(run.cell for run in runs if run.cell)) or "none: it has no cells"
        raise UsageError(f"--cell {cell}: {folder} has no finished run in such a cell; known: {known}")
    return chosen


def chosen_tag(folder: Path, runs: Sequence[SweptRun], top_p: float | None, temperature: float | None) -> Tag:
    """The samples of a sweep at this ``top_p`` and ``temperature``; None is the only one that was measured.

    A temperature of 1 goes before others that were measured beside it.

    Raises UsageError if nothing was measured like this, or several ways of sampling fit.
    """
    fitting = fitting_tags(folder, runs, top_p, temperature)
    if temperature is None:
        fitting = [tag for tag in fitting if tag.temperature == 1] or fitting
    differing = {"--temperature": {tag.temperature for tag in fitting}, "--top-p": {tag.top_p for tag in fitting}}
    if needed := [option for option, values in differing.items() if len(values) > 1]:
        raise UsageError(f"{folder} was measured at {_listed(fitting)}; choose one with {' and '.join(needed)}")
    return fitting[0] if fitting else Tag()


def fitting_tags(folder: Path, runs: Sequence[SweptRun], top_p: float | None, temperature: float | None) -> list[Tag]:
    """Every way of sampling that was measured, at this ``top_p`` and ``temperature`` where they are given.

    Raises UsageError if one of them was given, and nothing was measured at it.
    """
    names = {path.parent.name for run in runs for path in run.folder.glob(f"samples/*/{PASSK}")}
    tags = [tag for tag in map(Tag.parse, names) if tag is not None and tag == Tag(tag.temperature, tag.top_p)]
    known = sorted(tags, key=lambda tag: (tag.temperature, tag.top_p))
    fitting = [tag for tag in known if top_p in (None, tag.top_p) and temperature in (None, tag.temperature)]
    given = {"--top-p": top_p, "--temperature": temperature}
    asked = " ".join(f"{option} {value:g}" for option, value in given.items() if value is not None)
    if asked and not fitting:
        held = f"{folder} was measured at {_listed(known) or 'nothing'}"
        raise UsageError(f"{asked}: {held}; `quatro sweep --eval` measures")
    return fitting


def _listed(tags: Sequence[Tag]) -> str:
    """``T 0.6, top_p 0.7 | T 1, top_p 0.7``."""
    return " | ".join(f"T {tag.temperature:g}, top_p {tag.top_p:g}" for tag in tags)


def _measured(run: Path, tag: Tag, label: str, heading: Mapping[str, Any]) -> list[Labelled]:
    files = [file for name in (PASSK, UCC) if (file := tag.folder(run) / name).is_file()]
    results = [read_result(file) for file in files]
    # The counts of each problem, which an interval over seeds and problems is made of, are in ucc.json alone.
    own = {"label": label, **heading, "problems": results[-1].problems if results else None}
    return [(one.model_copy(update=own), file) for one, file in zip(results, files, strict=True)]


def _final_entropies(runs: Sequence[tuple[SweptRun, Mapping[str, Any]]]) -> list[Labelled]:
    """Of runs with their headings. Where it is unknown of one seed, it is of the setting."""
    found, unknown, files = [], set(), []
    for run, heading in runs:
        file = run.folder / "metrics.jsonl"
        value = last_mean(list(read_metrics(run.folder)), _ENTROPY_METRIC)
        if value is None:
            unknown.add((run.label, heading["model"]))
            files.append(str(file))
            continue
        row = Row(metric=ENTROPY, benchmark="training", k=None, value=value, num_problems=0, n=0)
        found.append((Result(metric=ENTROPY, label=run.label, rows=[row], **heading), file))
    if files:
        logger.warning("no mean of %s over the last iterations, which lack it: %s", _ENTROPY_METRIC, ", ".join(files))
    return [(result, file) for result, file in found if (result.label, result.model) not in unknown]


# ---- means over seeds and problems, of the counts of each problem


def problems_in(run: Path, tag: Tag) -> list[ProblemEntry]:
    """The counts of each problem in the samples ``tag`` of a run, by benchmark and id; DataError if there are none."""
    path = tag.folder(run) / UCC
    problems = read_result(path).problems
    if not problems:
        raise DataError(
            f"{path} lacks the counts of each problem; delete it and repeat the sweep's command, which measures the "
            "samples again"
        )
    return sorted(problems, key=lambda one: (one.benchmark, one.id))


def is_measured(run: Path, tag: Tag) -> bool:
    """Whether the samples ``tag`` of a run have been counted."""
    return (tag.folder(run) / UCC).is_file()


def temperature_rows(group: Mapping[int, Path], tag: Tag) -> list[Row]:
    """UCR and pass@1 of a setting on each benchmark; ``group`` is its run by seed."""
    seeds = []
    for problems in _of_each_seed(group, tag):
        counts = {
            setting: [Counts(one.benchmark, one.id, one.n, one.correct, one.clusters or ()) for one in some]
            for setting, some in grouped(problems, lambda one: Setting.of(one) or _UNKNOWN).items()
        }
        everyone = [one for some in counts.values() for one in some]
        ratios = [one for one in ucc_estimates(counts, [1], least_correct([everyone])) if one.metric == "ucr"]
        seeds.append([one._replace(is_averaged=False) for one in (*ratios, *passk_estimates(everyone, [1]))])
    return [row for estimates in zip(*seeds, strict=True) for row in rows_of(*estimates, ci=True)]


def flip_rows(group: Mapping[int, Path], base: Path, tag: Tag) -> list[Row]:
    """Newly solved problems, and flip@k of each bucket that is not empty at k = 1, 2, 4, ..., n, on each benchmark."""
    before = {(one.benchmark, one.id, one.n): one.correct for one in problems_in(base, tag)}
    keys = [
        [((one.benchmark, one.id, one.n), one.correct) for one in problems] for problems in _of_each_seed(group, tag)
    ]
    names = {key[0] for key, _ in keys[0]}
    if not names:
        return []
    wanted = [key for key in before if key[0] in names]
    if not all([key for key, _ in counts] == wanted for counts in keys):
        raise DataError(
            f"{tag.folder(base)}: the samples of the base and of a run hold different problems or numbers of samples; "
            "repeat the sweep's command"
        )
    seeds = [[flips.Pair(*key, before[key], correct) for key, correct in counts] for counts in keys]
    smallest = min(key[2] for key in wanted)
    ks = [*(2**power for power in range(smallest.bit_length()) if 2**power < smallest), smallest]
    return [row for row in flips.flip_rows(*seeds, ks=ks, ci=True) if row.benchmark != AVERAGE]


def _of_each_seed(group: Mapping[int, Path], tag: Tag) -> list[list[ProblemEntry]]:
    """The problems of the benchmarks that every seed has been measured on."""
    everyone = [problems_in(group[seed], tag) for seed in sorted(group)]
    names = set.intersection(*({one.benchmark for one in problems} for problems in everyone))
    return [[one for one in problems if one.benchmark in names] for problems in everyone]


def temperatures_by_label(runs: Sequence[SweptRun], tags: Sequence[Tag]) -> dict[str, list[Row]]:
    """UCR and pass@1 of every setting at each of ``tags``, which differ in their temperature alone.

    Raises UsageError for runs of several cells.
    """
    return _by_label(runs, tags, lambda runs, tag: temperature_rows(_by_seed(runs), tag))


def flips_by_label(runs: Sequence[SweptRun], tag: Tag) -> dict[str, list[Row]]:
    """Flips of every setting against the base that its runs began from.

    Raises UsageError for runs of several cells, and DataError if that base was not sampled.
    """

    def rows_at(runs: Sequence[SweptRun], tag: Tag) -> list[Row]:
        if (base := runs[0].base) is None:
            folder = runs[0].folder.parents[1]
            raise DataError(f"{folder}: the base was not sampled; add it with `quatro sweep {folder} --eval NAME`")
        return flip_rows(_by_seed(runs), base, tag)

    return _by_label(runs, [tag], rows_at)


def _by_seed(runs: Sequence[SweptRun]) -> dict[int, Path]:
    return {run.seed: run.folder for run in runs}


def _by_label(
    runs: Sequence[SweptRun], tags: Sequence[Tag], rows_at: Callable[[Sequence[SweptRun], Tag], list[Row]]
) -> dict[str, list[Row]]:
    """``rows_at`` the runs of each setting and each of ``tags``."""
    cells = list(dict.fromkeys(run.cell for run in runs))
    if len(cells) > 1:
        raise UsageError(f"the sweep has the cells {', '.join(cells)}; a figure of bars shows one: choose with --cell")
    found = {}
    for label, members in grouped(runs, lambda run: run.label).items():
        for tag in tags:
            if measured := [run for run in members if is_measured(run.folder, tag)]:
                name = label if len(tags) == 1 else f"{label}, T {tag.temperature:g}"
                found[name] = rows_at(measured, tag)
    return found
