"""Runs and sweeps as a report: status, configuration, metrics and samples as they are on disk. Imports no torch."""

from __future__ import annotations

import itertools
import logging
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import DataError, UsageError
from evals.files.frames import grouped
from evals.files.whole import write_whole
from evals.metrics.measuring import Progress, Source, paths_of, progress_line
from evals.report import BASE_CELL, BenchmarkView, Report, ReportRun, ReportSamples, result_rows, view_samples
from evals.report.document import document, report_page
from evals.results.document import UNKNOWN, About, SamplingInfo
from evals.results.entries import model_labels
from evals.results.reading import labels_of
from evals.results.training_metrics import BASE, COLUMNS, EVALUATED, PANELS, Rows
from evals.samples.about import SAMPLING, about_samples, sampled_benchmarks
from evals.samples.graded import read_graded
from evals.samples.reading import sample_files
from evals.text import escaped, size_text
from quatro.config import Config, value_texts
from quatro.runs import points
from quatro.runs.directory import INSIDE, step_number
from quatro.runs.identity import read_config
from quatro.runs.status import read_environment
from quatro.runs.views.rollouts import failures_text
from quatro.runs.views.series import run_folders
from quatro.runs.views.summary import RunSummary, describe_run

_NAMED = ("method.name", "seed")  # have a field of their own in `ReportRun`
logger = logging.getLogger(__name__)
ReportProgress = Callable[[int, int], None]  # samples files read, of how many
Grown = tuple[Rows, str]
ReadGrown = Callable[[RunSummary], Grown]
ReadViews = Callable[[Path], tuple[Sequence[BenchmarkView], Sequence[str]]]  # a samples file, and warnings about it


class _Place(NamedTuple):
    """Where a run is, or would be. ``config`` None: a base model with samples only.

    ``base`` is a base model's name where no sweep has named it, and ``samples`` its folders by their tags.
    """

    path: Path
    config: Config | None
    cell: str = ""
    settings: Mapping[str, str] = {}
    base: str = ""
    samples: Mapping[str, Path] = {}


def report(
    runs: Source,
    out: str | os.PathLike[str] = "report.html",
    *,
    problems: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Writes one page about runs or a sweep, for a browser, as `quatro report` does, and returns its path.

        >>> quatro.report("runs/first", "first.html", problems=2).name
        'first.html'

    Args:
        runs: one or several runs, or a sweep.
        out: the page, an .html file; it is replaced.
        problems: how many problems of each benchmark to show with samples. Default: 100, or fewer if they fill 8 MB.
        progress: as in `measure`.

    Raises:
        UsageError: a path is neither a run nor a sweep, or ``out`` is no .html file.
        DataError: a file of a run is damaged.
    """
    page, paths = Path(out), paths_of(runs)
    if page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {page}: a report is a page; name it .html, for example -o {page.stem or 'report'}.html")
    with (progress or progress_line)("reading samples files") as tell:
        found = gather_report(paths, progress=tell)
    values = document(found, num_problems=problems)
    content = report_page(values).encode("utf-8")
    write_whole(page, [content])
    for note in values["notes"]:
        logger.warning(note)
    logger.info(f"{len(found.runs)} runs, {size_text(len(content))}")
    return page


def _read_views(file: Path) -> tuple[Sequence[BenchmarkView], Sequence[str]]:
    samples, _ = read_graded([file])
    return view_samples(samples), samples.warnings


def read_grown(summary: RunSummary) -> Grown:
    """All rows of a run, but of each what a page shows; and in words on how many responses the reward failed."""
    shown = {"step", *(metric.name for metric in (*PANELS, *COLUMNS))}
    metrics = [
        {name: value for name, value in row.items() if name in shown or name.startswith((EVALUATED, BASE))}
        for row in summary.rows
    ]
    return metrics, failures_text(*(summary.reward_failures or (0, 0)))


def gather_report(
    paths: Sequence[Path],
    *,
    progress: ReportProgress | None = None,
    read: ReadViews = _read_views,
    grown: ReadGrown = read_grown,
    leave_out: tuple[type[Exception], ...] = (),
) -> Report:
    """The runs at ``paths``: run directories, or sweeps with all of their points and base models.

    Samples that cannot be read or judged are left out and named in the report's notes, and so are runs that raise one
    of ``leave_out``. ``progress`` is told after each samples file, which ``read`` reads; ``grown`` reads metrics.

    Raises:
        UsageError: a path is neither a run nor a sweep, or a configuration cannot be read.
        DataError: a metrics.jsonl is broken, or a run or base model is not what it says it is.
    """
    notes, found = list[str](), dict[Path, _Place]()
    for path in paths:
        try:
            found |= {place.path.resolve(): place for place in _places(path, notes)}
        except leave_out as error:
            notes.append(f"left out: {error}")
    bases = [folder.resolve() for place in found.values() if place.base for folder in place.samples.values()]
    places = [one for at, one in found.items() if one.base or at not in bases]  # a base may be named, too
    files = [_tags(place) for place in places]
    total = sum(len(tag_files) for tags in files for tag_files in tags.values())
    labels = iter(labels_of([place.path for place in places if not place.base]))
    names = [place.base or next(labels) for place in places]
    runs, done = [], itertools.count(1)

    def tell() -> None:
        if progress is not None:
            progress(next(done), total)

    parts = zip(places, names, _groups(names, places), _settings(places), files, strict=True)
    for place, name, group, settings, tags in parts:
        try:
            samples = _samples(place.path, tags, read, tell, notes)
            if samples or not place.base:
                runs.append(_run(place, name, group, settings, samples, grown))
        except leave_out as error:
            notes.append(f"left out: {error}")
    title = paths[0].resolve().name if len(paths) == 1 else f"{len(runs)} runs"
    return Report(title, [str(path) for path in paths], runs, list(dict.fromkeys(notes)))


def _places(path: Path, notes: list[str]) -> list[_Place]:
    """The run at ``path``, or the points of the sweep there in their order, and before them their base; or samples."""
    if path.is_file() or (path / SAMPLING).is_file():
        return [_Place(path, None, samples={path.name: path})]
    if (path / "config.yaml").is_file() or not points.is_sweep(path):
        runs = [(folder, read_config(folder)) for folder in run_folders([path])]
        return [place for run, config in runs for place in (*_base_of(run, config, notes), _Place(run, config))]
    bases = sorted(folder for folder in path.glob("base/*") if folder.is_dir())
    for folder in bases:
        points.refuse_other_base(folder)
    places = [_Place(folder, None, BASE_CELL) for folder in bases]
    for name, (cell, settings) in points.read_points(path).items():
        config = points.point_config(path, name, settings)
        places += [] if places else _base_of(path / "runs" / name, config, notes)
        places.append(_Place(path / "runs" / name, config, cell, settings))
    return places


def _base_of(run: Path, config: Config, notes: list[str]) -> list[_Place]:
    """The model that ``run`` began with, if its sweep, or samples/ here or beside the run, has samples of it.

    They are as long as those of the run. Where there are none, ``notes`` gets the command that draws some.
    """
    digest, longest = read_environment(run).get("model_digest"), config.rollout.max_new_tokens
    label = model_labels({config.model: digest or ""})[config.model]
    beside, found = run.resolve().parent.parent, dict[str, Path]()
    for place, pattern in ((beside, "base/*/samples/*"), (beside, "samples/*/*"), (Path(), "samples/*/*")):
        for folder in sorted(file.parent for file in place.glob(f"{pattern}/{SAMPLING}")):
            about = _about(folder)
            is_same = about.model == config.model or (digest is not None and about.base_digest == digest)
            if is_same and about.method is None and about.sampling.max_tokens in (None, longest):
                found.setdefault(folder.name, folder)
    if found:
        return [_Place(next(iter(found.values())).parent, None, BASE_CELL, base=f"base-{label}", samples=found)]
    sampled = next((file.parent for file in sorted(run.glob(f"samples/*/{SAMPLING}"))), run)
    how = _about(sampled).sampling
    options = {"-b": ",".join(sampled_benchmarks(sampled)) or "NAME", "-n": how.n, "--temperature": how.temperature}
    options |= {"--top-p": how.top_p, "--max-tokens": longest}
    words = [str(word) for option, value in options.items() if value is not None for word in (option, value)]
    words += [*("--stop=" + escaped(text) for text in config.stop), *points.asked_as(config)]
    command = shlex.join(["quatro", "sample", config.model, *words])
    notes.append(f"no samples of the base {label}: `{command}` draws them")
    return []


def _about(folder: Path) -> About:
    """What is known of the samples in ``folder``; empty where their sampling.json is damaged or not there."""
    try:
        return about_samples([folder / SAMPLING])
    except DataError:
        return UNKNOWN


def _groups(names: Sequence[str], places: Sequence[_Place]) -> list[str]:
    """A label for each run; runs that differ in their seed alone have the same."""

    def setting_of(number: int) -> tuple[str, str]:
        cell, config = places[number].cell, places[number].config
        return cell, names[number] if config is None else config.model_copy(update={"seed": 0}).model_dump_json()

    labels: dict[int, str] = {}
    for members in grouped(range(len(places)), setting_of).values():
        name, config = names[members[0]], places[members[0]].config
        label = _without_seed(name, config.seed) if config is not None and len(members) > 1 else name
        others = set(labels.values())
        label = label if label not in others else name if name not in others else f"{name} ({len(others)})"
        labels |= dict.fromkeys(members, label)
    return [labels[number] for number in range(len(places))]


def _without_seed(name: str, seed: int) -> str:
    shorter = re.sub(rf"[-_.,]?seed[=_-]?{seed}(?!\d)", "", name)
    shorter = shorter if shorter != name else name.removesuffix(f"-{seed}")
    return shorter or name


def _settings(places: Sequence[_Place]) -> list[dict[str, str]]:
    """What a run's sweep varies, or for runs of no sweep the keys on which they disagree; without method and seed."""
    leaves = [{} if place.config is None else value_texts(place.config) for place in places]
    differing = points.settings_that_differ(leaves, besides=_NAMED)
    return [
        {key: value for key, value in (place.settings or own).items() if key not in _NAMED}
        for place, own in zip(places, differing, strict=True)
    ]


def _run(
    place: _Place,
    name: str,
    group: str,
    settings: Mapping[str, str],
    samples: Sequence[ReportSamples],
    grown: ReadGrown,
) -> ReportRun:
    config = place.config
    shared: dict[str, Any] = {"name": name, "group": group, "cell": place.cell, "samples": samples}
    if config is None:
        return ReportRun(status=BASE_CELL, **shared)
    leaves = value_texts(config)
    shared |= {
        "seed": config.seed,
        "method": leaves["method.name"],
        "delta": config.method.kl_radius,
        "steps": config.steps,
        "settings": settings,
        "config": leaves,
    }
    if not (place.path / "config.yaml").is_file():
        return ReportRun(status="missing", reason="not begun", **shared)
    summary = describe_run(place.path)
    metrics, failures = grown(summary)
    return ReportRun(
        status=summary.status,
        reason="; ".join(filter(None, (failures, summary.reason))),
        step=summary.step,
        updated=summary.updated or "",
        folder=str(place.path),
        metrics=metrics,
        **shared,
    )


def _tags(place: _Place) -> dict[str, list[Path]]:
    """The samples files of each tag, which is the folder below ``samples`` that they are in."""
    if place.samples:
        return {tag: [at] if at.is_file() else sorted(at.glob("*.jsonl*")) for tag, at in place.samples.items()}
    folder = place.path / "samples"
    tags = defaultdict[str, list[Path]](list)
    for file in sample_files(folder) if any(folder.rglob("*.jsonl*")) else ():
        tags[file.parent.relative_to(folder).as_posix()].append(file)
    return tags


def _samples(
    run: Path, tags: Mapping[str, Sequence[Path]], read: ReadViews, tell: Callable[[], None], notes: list[str]
) -> list[ReportSamples]:
    """What the run was sampled to, one entry a tag."""
    found: list[ReportSamples] = []
    for tag, files in tags.items():
        views: list[BenchmarkView] = []
        for file in files:
            try:
                some, warnings = read(file)
            except (DataError, UsageError) as error:
                notes.append(f"left out: {error}")
            else:
                views += some
                notes += warnings
            tell()
        twice = {view.benchmark for view in views if [other.benchmark for other in views].count(view.benchmark) > 1}
        if twice:
            notes.append(f"left out: {run} {tag}: several files hold samples of {', '.join(sorted(twice))}")
            continue
        if views:
            try:
                about, rows = about_samples(files), result_rows(views)
            except DataError as error:
                notes.append(f"left out: {error}")
                continue
            words = _sampling_text(about.sampling, tag)
            if any(one.sampling == words for one in found):  # sampled that way before, at another step for example
                words = f"{words} ({tag})"
            found.append(ReportSamples(words, tag, rows, views, _step(about.checkpoint)))
            notes += [f"{run} {tag}: {told}" for view in views if (told := view.false_text)]
    return found


def _step(checkpoint: str | None) -> str:
    """`100` or `100, inside` of a checkpoint's name; empty of anything else."""
    step = None if checkpoint is None else step_number(checkpoint)
    return "" if step is None else f"{step}, inside" if str(checkpoint).endswith(INSIDE) else str(step)


def _sampling_text(sampling: SamplingInfo, tag: str) -> str:
    """`T 1, top_p 0.7` where it is known how samples were drawn, else the tag."""
    if sampling.temperature is None:
        return tag
    parts = [f"T {sampling.temperature:g}"]
    parts += [f"top_p {sampling.top_p:g}"] if sampling.top_p is not None else []
    parts += [f"top_k {sampling.top_k}"] if sampling.top_k else []
    return ", ".join(parts)
