"""Runs, sweeps and samples as `quatro view` serves them: the document of the report, kept up to date, and more.

Samples are read by an index of their files. So the page opens with the counts; clusters are counted in the background,
one samples file after the other; and a problem is read again when somebody opens it.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evals.benchmarks.catalogue import Kind, kind_of
from evals.benchmarks.prompts import THOUGHT
from evals.errors import QuatroError, UsageError
from evals.files.frames import grouped
from evals.metrics.counting import BY_DEFAULT, Clustering, Counts
from evals.metrics.studies.labels import text_hash
from evals.metrics.studies.pairs import Pairs
from evals.report import BenchmarkView, ProblemView, Report, view_problem
from evals.report.answers import LONGEST_NAME, LONGEST_PROMPT, Depth, Json, answers_of, capped, why
from evals.report.document import document, report_page, rounded
from evals.report.serving import Routes
from evals.samples.about import SAMPLING, stem_of
from evals.samples.graded import graded_copy, graded_problem
from evals.samples.index import SamplesIndex
from evals.samples.types import Problem
from evals.similarity import SIMILARITIES, Setting
from evals.text import visible
from quatro.dual import solve_dual
from quatro.runs.directory import step_number
from quatro.runs.identity import read_config
from quatro.runs.views.report import gather_report
from quatro.runs.views.rollouts import read_rollouts

TICK_S = 1.0
LONGEST_RESPONSE = 4_000
_LOG_BYTES, _MOST_WARNINGS = 64 * 1024, 3
_WHOLE = Depth(clusters=60, texts=12, wrong=12, longest=20_000)
_NOTHING = Depth(0, 0, 0, 0)
_BUSY = 0.05  # the largest share of the time that looking for news may take
_WATCHED = ("config.yaml", "sweep.yaml", "status.json", "metrics.jsonl", "rollouts", "samples", "graded")


@dataclass
class _File:
    """A samples file, read up to ``size``; ``views`` have no clusters until ``is_whole``."""

    index: SamplesIndex
    size: int = -1
    views: Sequence[BenchmarkView] = ()
    is_whole: bool = False


@dataclass
class View:
    """What is at ``paths``: runs, sweeps, samples, and folders with runs and sweeps somewhere below.

    What a link elsewhere leads to is not shown. ``who`` signs labels, whose pairs are drawn by ``seed``. Raises
    UsageError if a path does not exist.
    """

    paths: Sequence[Path]
    who: str = "you"
    seed: int = 0

    def __post_init__(self) -> None:
        for path in self.paths:
            if not path.exists():
                raise UsageError(f"{path}: no such run, sweep, samples file or folder; `quatro runs list` shows runs")
        self._lock, self._pairs = threading.RLock(), Pairs(self.seed)
        self._files, self._sources, self._runs = dict[Path, _File](), dict[str, tuple[_File, str]](), dict[str, Path]()
        self._tops, self._next_walk = list[Path](), 0.0
        self._made_of: object = None
        self._document: Json = {}

    # ---- what the page asks for

    @property
    def routes(self) -> Routes:
        return {one.__name__: one for one in (self.document, self.rollouts, self.answers, self.why, self.pair)}

    def page(self, token: str) -> str:
        return report_page({**self.document(), "token": token, "similarities": list(SIMILARITIES)}, is_live=True)

    def document(self) -> Json:
        """The document of a report on all there is, made anew if a file has changed."""
        with self._lock:
            if (state := self._state()) != self._made_of:
                self._document, self._made_of = self._made(), state
            return self._document

    def rollouts(self, run: str, step: str = "") -> Json:
        """The responses of an iteration, by default the last one, by prompt, with its lambda and how its dual ended."""
        folder = self._runs[run]
        number, rows = read_rollouts(folder, int(step) if step else None)
        steps = sorted(step_number(path.stem) or 0 for path in (folder / "rollouts").glob("step-*.jsonl"))
        method = read_config(folder).method.model_dump()
        prompts = [
            {"id": capped(id, LONGEST_NAME).text, **_dual(own, method), "rows": [_response(row) for row in own]}
            for id, own in grouped(rows, lambda row: str(row.get("id"))).items()
        ]
        return {"step": number, "steps": steps, "prompts": prompts}

    def answers(self, source: str, id: str, **how: str) -> Json:
        """All answers to a problem, clustered as asked; see `answers_of`."""
        problem, setting = self._problem(source, id), self._setting(source, **how)
        graded = graded_problem(problem)
        head = {"n": graded.n, "correct": graded.correct, "setting": setting.words("≥")}
        return {**head, **answers_of(problem, graded, setting, _WHOLE)}

    def why(self, source: str, id: str, a: str, b: str, **how: str) -> Json:
        """Why two right answers are one solution or two."""
        return why(graded_problem(self._problem(source, id)), a, b, self._setting(source, **how))

    def pair(self, source: str) -> Json:
        """A pair of right answers that has no label yet."""
        file, benchmark = self._sources[source]
        pair = self._pairs.draw(file.index, benchmark, _labels_of(file))
        texts = [[text_hash(text), *capped(text, LONGEST_RESPONSE)] for text in pair.texts]
        head = {"id": capped(pair.id, LONGEST_NAME).text, "prompt": capped(pair.prompt, LONGEST_PROMPT).text}
        return {**head, "answer": capped(pair.answer, LONGEST_NAME).text, "texts": texts}

    def label(self, source: str, a: str, b: str, label: str) -> Json:
        """Keeps a label beside the samples: all that is ever written."""
        file, _ = self._sources[source]
        number = self._pairs.keep(_labels_of(file), a, b, label, self.who)
        return {"labels": number, "samples": str(file.index.file), "file": str(_labels_of(file))}

    def _problem(self, source: str, shown: str) -> Problem:
        file, benchmark = self._sources[source]
        ids = (id for name, id in file.index.places if name == benchmark and capped(id, LONGEST_NAME).text == shown)
        return file.index.problem(benchmark, next(ids, ""))

    def _setting(self, source: str, similarity: str = "", threshold: str = "", linkage: str = "components") -> Setting:
        file, benchmark = self._sources[source]
        usual = next(view.setting for view in file.views if view.benchmark == benchmark)
        if not similarity:
            return usual
        cuts = [float(threshold)] if threshold and similarity != "exact" else None
        return Clustering([similarity], cuts, linkage, usual.tokens).settings(benchmark)[0]

    # ---- what changes

    def watch(self, tell: Callable[[], None]) -> None:
        """For ever: looks every second whether files have changed, and tells the news."""
        while True:
            began, before = time.monotonic(), self._document
            with suppress(QuatroError, OSError):  # such as a run that is being removed
                if self.document() is not before:
                    tell()
            time.sleep(max(TICK_S, (time.monotonic() - began) / _BUSY))

    def count(self) -> None:
        """For ever: counts the clusters of one samples file after the other, at the lowest priority."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while True:
            self.count_waiting()
            time.sleep(TICK_S)

    def count_waiting(self) -> None:
        """Counts the clusters of the files of which they are not known."""
        for file in [one for one in list(self._files.values()) if not one.is_whole]:
            size, views = file.size, file.views
            with suppress(QuatroError, OSError):
                views = [_clustered(file.index, view) for view in views]
            with self._lock:
                if file.size == size:  # else rows came, and it is its turn again
                    file.views, file.is_whole, self._made_of = views, True, None

    def _state(self) -> object:
        """Another value as soon as a file has changed: a few calls of stat a run."""
        state: list[object] = []
        places = [folder / name for folder in self._folders() for name in _WATCHED]
        for path in [*places, *list(self._files)]:
            with suppress(OSError):
                status = path.stat()
                state.append((path, status.st_mtime_ns, status.st_size))
        return state

    def _folders(self) -> list[Path]:
        """The runs, sweeps and samples at and below the paths; looking for new ones takes little of the time, too."""
        if (began := time.monotonic()) >= self._next_walk:
            self._tops = list(dict.fromkeys(top for path in self.paths for top in _walk(path)))
            self._next_walk = began + max(2 * TICK_S, (time.monotonic() - began) / _BUSY)
        return [folder for top in self._tops for folder in (top, *top.glob("runs/*"), *top.glob("base/*"))]

    def _made(self) -> Json:
        tops, notes = list(self._tops), list[str]()
        try:
            found = gather_report(tops, read=self._read) if tops else Report("", [], [])
        except (QuatroError, OSError):
            tops = [top for top in tops if self._is_sound(top, notes)]
            found = gather_report(tops, read=self._read) if tops else Report("", [], [])
        title = " ".join(path.resolve().name for path in self.paths)
        found = replace(found, title=title, notes=[*found.notes, *notes])
        values = document(found, num_problems=0)
        self._runs = {}
        for run, shown in zip(found.runs, values["runs"], strict=True):
            values["notes"] += [f"{shown['name']}: {words}" for words in _warnings(Path(run.folder)) if run.folder]
            if run.folder and any(Path(run.folder).glob("rollouts/step-*.jsonl")):
                shown["source"] = _key(run.folder)
                self._runs[shown["source"]] = Path(run.folder)
        return {**values, "notes": [note for note in values["notes"] if "--problems N" not in note]}

    def _is_sound(self, top: Path, notes: list[str]) -> bool:
        try:
            gather_report([top], read=self._read)
        except (QuatroError, OSError) as error:
            notes.append(f"left out: {error}")
            return False
        return True

    def _read(self, file: Path) -> tuple[Sequence[BenchmarkView], Sequence[str]]:
        """The views of a samples file, or of its graded copy; raises DataError if it is damaged."""
        copy = graded_copy(file)
        file = file if copy is None or copy.stale else copy.file
        if not any(file.resolve().is_relative_to(path.resolve()) for path in self.paths):
            raise UsageError(f"{file} lies outside of what is shown; name it, too, to see it")
        size, known = file.stat().st_size, self._files.get(file)
        if known is None or size < known.size:
            known = self._files[file] = _File(SamplesIndex(file))
        if size != known.size:
            known.index.update()
            known.size, known.is_whole = size, False
            known.views = list(_first_views(known.index))
            self._sources |= {view.source: (known, view.benchmark) for view in known.views}
        counted = [view for view in known.views if view.problems]
        is_all = len(counted) == len(known.views)
        return counted, [] if is_all else [f"{file}: answers without a grade are being graded"]


def _walk(path: Path) -> Iterator[Path]:
    """The runs, sweeps and samples at and below ``path``, without what is inside of them."""
    if path.is_file() or (path / SAMPLING).is_file():
        yield path
        return
    for folder, inner, files in os.walk(path):
        if {"config.yaml", "sweep.yaml"} & set(files):
            inner.clear()
            yield Path(folder)
        inner[:] = sorted(name for name in inner if not name.startswith("."))


def _warnings(run: Path) -> list[str]:
    """The last warnings in the log of a run."""
    file = run / "log.txt"
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _LOG_BYTES))
        said = (line.partition(" WARNING ") for line in stream.read().decode("utf-8", "replace").splitlines())
        return [visible(f"{when[:16]} {what.partition(': ')[2]}") for when, is_one, what in said if is_one][
            -_MOST_WARNINGS:
        ]
    return []


def _first_views(index: SamplesIndex) -> Iterator[BenchmarkView]:
    """Counts alone, which the index holds; no problems where some answers have no grade."""
    for benchmark, keys in grouped(index.places, lambda key: key[0]).items():
        first = index.problem(*keys[0])
        kind = next(filter(None, (Kind.recorded_in(row.extra) for row in first.samples)), None) or kind_of(benchmark)
        places = [(id, index.places[benchmark, id]) for _, id in keys]
        is_graded = all(place.num_graded == place.n for _, place in places)
        problems = [ProblemView(Counts(benchmark, id, place.n, place.num_correct)) for id, place in places]
        setting = BY_DEFAULT.settings(benchmark, kind)[0]
        yield BenchmarkView(benchmark, setting, problems * is_graded, _key(f"{index.file} {benchmark}"))


def _clustered(index: SamplesIndex, view: BenchmarkView) -> BenchmarkView:
    ids = [id for benchmark, id in list(index.places) if benchmark == view.benchmark]
    problems = (index.problem(view.benchmark, id) for id in ids)
    return replace(view, problems=[view_problem(one, graded_problem(one), view.setting, _NOTHING) for one in problems])


def _labels_of(file: _File) -> Path:
    return file.index.file.with_name(f"{stem_of(file.index.file)}.labels")


def _key(text: object) -> str:
    """A name for the page that says nothing of this machine."""
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _response(row: Mapping[str, Any]) -> Json:
    """A rollout for the page: texts that can be seen, and numbers."""
    head = {name: rounded(row.get(name)) for name in ("reward", "advantage", "num_tokens")}
    texts = {name: capped(str(row.get(name) or ""), LONGEST_RESPONSE) for name in ("completion", THOUGHT, "error")}
    return {**head, **texts, "is_truncated": row.get("finish_reason") == "length", "correct": row.get("correct")}


def _dual(rows: Sequence[Mapping[str, Any]], method: Mapping[str, Any]) -> Json:
    """lambda and status of a prompt, by QUATRO's dual; of another method the ratio of its rewards and advantages.

    The status is `degenerate` where all rewards are the same, which no method learns from.
    """
    kept = [row for row in rows if row.get("reward") is not None and row.get("advantage") is not None]
    rewards = [float(row["reward"]) for row in kept]
    if len(set(rewards)) < 2:
        return {"lam": None, "status": "degenerate"}
    if method.get("temperature") == "dual":
        bounds = {name: method[name] for name in ("boundary_cap", "advantage_floor")}
        found = solve_dual(np.array([rewards]), method["delta"], **bounds)
        return {"lam": rounded(float(found.lam[0])), "status": found.status[0]}
    low, high = (pick(kept, key=lambda row: row["reward"]) for pick in (min, max))
    apart = high["advantage"] - low["advantage"]
    return {"lam": rounded((high["reward"] - low["reward"]) / apart) if apart else None, "status": ""}
