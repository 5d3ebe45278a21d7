"""Reading what tables and figures are given: result documents, or run and sweep directories that hold some."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from evals.errors import DataError, UsageError
from evals.files.belonging import run_of
from evals.files.strict_json import shown
from evals.results.document import AVERAGE, Comparison, Result, Row, read_result
from evals.similarity import BY_MODEL
from evals.text import visible


class RunHead(NamedTuple):
    """What a run says about itself; ``base_digest`` is that of the model that it began with."""

    model: str | None = None
    method: str | None = None
    base_digest: str | None = None


Expand = Callable[[Path], Sequence[tuple[Result, Path]] | None]


@dataclass(frozen=True)
class Labelled:
    """A result and its label. ``was_given``: the label stands in the document and was not made from a file name."""

    result: Result
    label: str
    was_given: bool
    path: Path


@dataclass(frozen=True)
class Sources:
    """Result documents and run directories, with all of their numbers."""

    results: Sequence[Labelled]
    runs: Sequence[Path]
    heads: Mapping[Path, RunHead] = field(default_factory=dict)
    sweeps: Sequence[Path] = ()

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(one.result.metric for one in self.results))

    @property
    def benchmarks(self) -> list[str]:
        rows = (row for one in self.results for row in one.result.rows)
        return list(dict.fromkeys(row.benchmark for row in rows if row.benchmark != AVERAGE))


def read_sources(
    paths: Sequence[Path], *, describe: Callable[[Path], RunHead] | None = None, expand: Expand | None = None
) -> Sources:
    """The documents in ``paths``; a run directory stands for its metrics.jsonl and its results/*.json.

    ``describe`` reads a run's configuration, which this package cannot do: it says the model and method of documents
    in a run that name none. A document without a label is called like its run, or like its file, or like what tells
    these apart. ``expand`` finds the labelled results of a sweep and their files; None: the folder is no sweep.

    Raises UsageError if a path is given twice, and DataError if a file is no result document, or a folder no run, or if
    models of other revisions decided what two of them count.
    """
    results, runs, heads, sweeps = [], [], {}, []
    counts = Counter(path.resolve() for path in paths)
    for path in paths:
        if counts[path.resolve()] > 1:
            raise UsageError(f"{path} was given {counts[path.resolve()]} times; give it once")
    names = _names([path for path in paths if not path.is_dir()])
    for path in paths:
        if not path.is_dir():
            results.append(_labelled(path, names[path], run_of(path), describe))
            continue
        if expand is not None and (found := expand(path)) is not None:
            sweeps.append(path)
            results += [Labelled(result, str(result.label), True, file) for result, file in found]
            continue
        if not (path / "config.yaml").is_file():
            raise DataError(
                f"{path} is not a run directory (no config.yaml in it); `quatro runs list` shows them, and "
                "`quatro paper SWEEP` draws the figures of a sweep"
            )
        runs.append(path)
        heads[path] = describe(path) if describe is not None else RunHead()
        for file in sorted((path / "results").glob("*.json")):
            results.append(_labelled(file, path.resolve().name, path, describe))
    for kind in BY_MODEL if len(results) > 1 else ():
        named = ((row.similarity or "", one.path) for one in results for row in one.result.rows)
        told = [f"{path} by {visible(name)}" for name, path in dict(named).items() if name.startswith(kind)]
        if len(told) > 1:
            raise DataError(f"{' and '.join(told)}: numbers by two models do not compare; measure all with one of them")
    return Sources(results, runs, heads, sweeps)


def named_by_samples(sources: Sources) -> Sources:
    """``sources`` in which results without a label are called by the method of their samples.

    If several have the same or it is not known, they are called by the part in which their paths differ. Results of a
    run have its name.
    """

    def is_unnamed(one: Labelled) -> bool:
        return not one.was_given and not any(run in one.path.parents for run in sources.runs)

    unnamed = [one for one in sources.results if is_unnamed(one)]
    methods = Counter(one.result.method for one in unnamed)
    taken = {None, *(one.label for one in sources.results if not is_unnamed(one))}
    known = [method for method, times in methods.items() if times == 1 and method not in taken]
    results = [
        replace(one, label=str(one.result.method)) if is_unnamed(one) and one.result.method in known else one
        for one in sources.results
    ]
    return replace(sources, results=results)


def _names(files: Sequence[Path]) -> dict[Path, str]:
    """What each file is called if its document has no label."""
    runs = {file: run_of(file) for file in files}
    of_runs = [run.name for run in runs.values() if run is not None]
    return {
        file: run.name if run is not None and of_runs.count(run.name) == 1 else name
        for (file, run), name in zip(runs.items(), labels_of(files), strict=True)
    }


def _labelled(path: Path, name: str, run: Path | None, describe: Callable[[Path], RunHead] | None) -> Labelled:
    """The result in ``path``, with what its ``run`` says where it does not itself; ``name``: without a label."""
    result = read_result(path)
    missing = [name for name in RunHead._fields if getattr(result, name) is None]
    if run is not None and describe is not None and missing:
        head = describe(run)
        result = result.model_copy(update={name: getattr(head, name) for name in missing})
    return Labelled(result, result.label or name, result.label is not None, path)


def rows_by_label(paths: Sequence[Path], metrics: Collection[str], *, made_by: str) -> dict[str, list[Row]]:
    """The rows of ``metrics`` in ``paths`` by label: that of the document, or as `named_by_samples`.

    A run directory stands for its results/*.json, of which those without such rows are left out. ``made_by`` is the
    command that makes the files, for messages.

    Raises:
        UsageError: two files have the same label, or a path occurs twice.
        DataError: a file is no result document or holds none of ``metrics``.
    """
    sources = named_by_samples(read_sources(paths))
    rows: dict[str, list[Row]] = {}
    from_file: dict[str, Path] = {}
    for one in sources.results:
        found = [row for row in one.result.rows if row.metric in metrics]
        if not found and any(run in one.path.parents for run in sources.runs):
            continue
        if not found:
            raise DataError(f"{one.path}: it holds no {' or '.join(metrics)}; make it with `{made_by}`")
        label = visible(one.label)
        if from_file.setdefault(label, one.path) != one.path:
            raise UsageError(
                f"{from_file[label]} and {one.path} are both labelled {shown(label)}; give each its own with "
                "--label when you make it"
            )
        rows.setdefault(label, []).extend(found)
    if not rows:
        raise DataError(f"{', '.join(map(str, paths))}: no results with {' or '.join(metrics)}; make them: `{made_by}`")
    return rows


def labels_of(paths: Sequence[Path]) -> list[str]:
    """A name for each path, the shortest part in which they differ; raises UsageError if a path occurs twice.

    These parts are `base` and `tuned` for ``base/samples/math500.jsonl`` and ``tuned/samples/math500.jsonl``.
    """
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise UsageError(f"{path} is named twice; name each once")
    stems = [path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json") for path in resolved]
    parts = [[*path.parts[:-1], stem] for path, stem in zip(resolved, stems, strict=True)]
    if len({one[-1] for one in parts}) == len(parts):
        return [one[-1] for one in parts]
    return told_apart(parts)


def sides_of(comparison: Comparison) -> list[str]:
    """The names of A and B; those of their files if both are the same one."""
    sides = [Path(comparison.a), Path(comparison.b)]
    return labels_of(sides) if sides[0].resolve() != sides[1].resolve() else [one.name for one in sides]


def told_apart(paths: Sequence[Sequence[str]]) -> list[str]:
    """Of each path, given by its parts, the shortest end that no other has, without what all of them end with."""
    while all(len(one) > 1 and one[-1] == paths[0][-1] for one in paths):
        paths = [one[:-1] for one in paths]
    length = 1
    while length < max(map(len, paths)) and len({tuple(one[-length:]) for one in paths}) < len(paths):
        length += 1
    return ["/".join(one[-length:]) for one in paths]
