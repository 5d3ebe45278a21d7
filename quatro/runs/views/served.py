"""Runs, sweeps and samples as `quatro view` serves them: the document of the report, kept up to date, and more.

Samples are read by an index of their files. So the page opens with the counts; clusters are counted in the background,
one samples file after the other; and a problem is read again when somebody opens it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from evals.benchmarks.prompts import THOUGHT
from evals.errors import DataError, QuatroError, UsageError
from evals.files.frames import grouped
from evals.metrics.counting import BY_DEFAULT, Clustering, Counts
from evals.metrics.studies.pairs import Pairs
from evals.report import BenchmarkView, ProblemView, view_problem
from evals.report.answers import LONGEST_NAME, Json, Opened, answers_of, capped, key_of, question_of
from evals.report.document import document, report_page, rounded
from evals.report.serving import Routes
from evals.samples.about import SAMPLING, refuse_misplaced, stem_of
from evals.samples.graded import graded_copy, graded_problem
from evals.samples.index import SamplesIndex
from evals.samples.types import graded_of
from evals.similarity import SIMILARITIES, Setting
from evals.text import visible
from quatro.dual import solve_dual
from quatro.runs.directory import step_number
from quatro.runs.identity import read_config
from quatro.runs.status import warnings_in
from quatro.runs.views.report import Grown, gather_report, read_grown
from quatro.runs.views.rollouts import read_rollouts
from quatro.runs.views.summary import RunSummary

TICK_S = 1.0
LONGEST_RESPONSE = 4_000
_MOST_WARNINGS = 3
_MOST_OPEN = 8  # problems that are kept as they were read
_WHOLE = {"clusters": 60, "texts": 12, "wrong": 12, "longest": 20_000}
_REST, _REST_AFTER_NEWS = 150, 4  # times as long as looking took: idle, it takes less than 1 % of the time
_FILES = ("config.yaml", "sweep.yaml", "environment.json", "status.json", "metrics.jsonl", "log.txt")
_WATCHED = (*_FILES, "rollouts", "samples/*", "graded/*")
_State = tuple[int, int, int]
logger = logging.getLogger(__name__)


@dataclass
class _File:
    """A samples file as it was when its inode, size and time were ``state``; ``labels`` is where its labels are.

    ``views`` have no clusters until ``is_whole``. ``fault`` says why it cannot be shown.
    """

    index: SamplesIndex
    labels: Path
    state: _State = (0, -1, 0)
    views: Sequence[BenchmarkView] = ()
    is_whole: bool = False
    fault: QuatroError | None = None


class View:
    """What is at ``paths``: runs, sweeps, samples, and folders with runs and sweeps somewhere below.

    What a link elsewhere leads to is not shown. ``who`` signs labels, whose pairs are drawn by ``seed``. Raises
    UsageError if a path does not exist.
    """

    def __init__(self, paths: Sequence[Path], who: str = "you", seed: int = 0) -> None:
        for path in paths:
            if not path.exists():
                raise UsageError(f"{path}: no such run, sweep, samples file or folder; `quatro runs list` shows runs")
        self.paths, self.who, self._pairs, self._lock = paths, who, Pairs(seed), threading.RLock()
        self._files, self._sources, self._runs = dict[Path, _File](), dict[str, tuple[_File, str]](), dict[str, Path]()
        self._document = Json()
        self._made_of: object = None  # the state of the files then
        self._metrics = dict[Path, tuple[_State, Grown]]()
        self._open = lru_cache(_MOST_OPEN)(self._read_problem)

    # ---- what the page asks for

    @property
    def routes(self) -> Routes:
        return {one.__name__: one for one in (self.document, self.rollouts, self.answers, self.why, self.pair)}

    def page(self, token: str) -> str:
        return report_page({**self.document(), "token": token, "similarities": list(SIMILARITIES)})

    def document(self) -> Json:
        """The document of a report on all there is, as it was when the files were last looked at."""
        return self._document or self.refresh()

    def rollouts(self, run: str, step: str = "") -> Json:
        """The responses of an iteration, by default the last one, by prompt, with its lambda and how its dual ended."""
        folder = self._runs[run]
        files = list(folder.glob("rollouts/step-*.jsonl"))
        self._refuse_outside(*files)
        number, rows = read_rollouts(folder, int(step) if step else None)
        steps = sorted(step_number(path.stem) or 0 for path in files)
        method = read_config(folder).method.model_dump()
        prompts = [
            {"id": capped(id, LONGEST_NAME).text, **_dual(own, method), "rows": [_response(row) for row in own]}
            for id, own in grouped(rows, lambda row: str(row.get("id"))).items()
        ]
        return {"step": number, "steps": steps, "prompts": prompts}

    def answers(self, source: str, id: str, **how: str) -> Json:
        """All answers to a problem, clustered as asked; see `answers_of`."""
        one, setting = self._opened(source, id), self._setting(source, **how)
        head = {"n": one.graded.n, "correct": one.graded.correct, "setting": setting.words("≥")}
        found = answers_of(one.problem, one.graded, one.clusters(setting), **_WHOLE)
        one.expect_more()
        return {**head, **found}

    def why(self, source: str, id: str, a: str, b: str, **how: str) -> Json:
        """Why two right answers are one solution or two."""
        return self._opened(source, id).why(a, b, self._setting(source, **how))

    def pair(self, source: str) -> Json:
        """A pair of right answers that has no label yet."""
        file, benchmark = self._sources[source]
        if file.labels.is_symlink():
            self._refuse_outside(file.labels)
        pair = self._pairs.draw(file.index, benchmark, file.labels)
        head = {"pair": pair.key, "id": capped(pair.problem.id, LONGEST_NAME).text, **question_of(pair.problem)}
        return {**head, "texts": [capped(text, LONGEST_RESPONSE) for text in pair.texts]}

    def label(self, source: str, pair: str, label: str) -> Json:
        """Keeps a label beside the samples: all that is ever written."""
        file, _ = self._sources[source]
        number = self._pairs.keep(file.labels, pair, label, self.who)
        return {"labels": number, "samples": quote(str(file.index.file)), "file": quote(str(file.labels))}

    def _opened(self, source: str, shown: str) -> Opened:
        file, benchmark = self._sources[source]
        own = [id for name, id in list(file.index.places) if name == benchmark]
        return self._open(source, next((id for id in own if capped(id, LONGEST_NAME).text == shown), ""), file.state)

    def _read_problem(self, source: str, id: str, state: _State) -> Opened:
        """The problem as it is while the file is in ``state``."""
        file, benchmark = self._sources[source]
        return Opened(file.index.problem(benchmark, id), self._setting(source).tokens)

    def _setting(self, source: str, similarity: str = "", threshold: str = "", linkage: str = "components") -> Setting:
        file, benchmark = self._sources[source]
        if file.fault:
            raise file.fault.with_traceback(None)  # it is raised often, and would grow
        usual = next(view.setting for view in file.views if view.benchmark == benchmark)
        similarity = similarity or usual.similarity
        if similarity not in SIMILARITIES:  # others would run the user's code, or ask a model
            raise UsageError(f"unknown similarity {similarity!r}; choose from {', '.join(SIMILARITIES)}")
        cut = float(threshold) if threshold else usual.threshold if similarity == usual.similarity else None
        cuts = None if similarity == "exact" or cut is None else [cut]
        return Clustering([similarity], cuts, linkage, usual.tokens).settings(benchmark)[0]

    # ---- what changes

    def watch(self, tell: Callable[[], None]) -> None:
        """For ever: looks whether files have changed, and tells the news."""
        while True:
            began, before = time.monotonic(), self._document
            try:
                self.refresh()
            except OSError:  # a file that went while it was looked at
                self._made_of = None
            except Exception:  # whatever it is, later news must not be lost
                logger.exception("the page is not up to date")
            if is_new := self._document is not before:
                tell()
            time.sleep(max(TICK_S, (time.monotonic() - began) * (_REST_AFTER_NEWS if is_new else _REST)))

    def refresh(self) -> Json:
        """The document, made anew if a file has changed: a few calls of stat a run."""
        with self._lock:
            tops = list(dict.fromkeys(top for path in self.paths for top in _walk(path)))
            folders = [one for top in tops for one in (top, *top.glob("runs/*"), *top.glob("base/*"))]
            watched = [path for one in folders for path in (one, *chain(*map(one.glob, _WATCHED)))]
            watched += [file for file in self._files if file.exists()]
            state = [(path, found.st_mtime_ns, found.st_size) for path in watched if (found := path.lstat())]
            if state != self._made_of:
                self._made_of = state
                self._document = self._made(
                    tops, [path for path in watched if path.name in _FILES and path.is_symlink()]
                )
            return self._document

    def count(self) -> None:
        """For ever: counts the clusters of one samples file after the other, at the lowest priority."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while True:
            self.count_waiting()
            time.sleep(TICK_S)

    def count_waiting(self) -> None:
        """Counts the clusters of the files of which they are not known."""
        with self._lock:
            waiting = [(one, one.state, one.views) for one in self._files.values() if not one.is_whole]
        for file, state, views in waiting:
            fault = None
            try:
                refuse_misplaced(file.index.file)
                views = [_clustered(file.index, view) for view in views]
            except Exception as error:  # the other files are counted
                told = f"{file.index.file}: {type(error).__name__}: {error}"
                fault = error if isinstance(error, QuatroError) else DataError(told)
            with self._lock:
                if file.state == state:  # else rows came, and it is its turn again
                    file.views, file.fault, file.is_whole, self._made_of = views, fault, True, None

    def _made(self, tops: Sequence[Path], links: Sequence[Path]) -> Json:
        outside = [link for link in links if not self._holds(link)]
        tops = [top for top in tops if not any(link.is_relative_to(top) for link in outside)]
        found = gather_report(tops, read=self._read, grown=self._grown, leave_out=(Exception,))
        values = document(found, num_problems=0)
        notes = [note for note in values["notes"] if "--problems N" not in note]  # a server has the answers of all
        notes += [f"left out: {link} leads out of what is shown" for link in outside]
        self._runs = {}
        for run, shown in zip(found.runs, values["runs"], strict=True):
            folder = Path(run.folder)
            told = warnings_in(folder / "log.txt")[-_MOST_WARNINGS:] if run.folder else ()
            notes += [f"{shown['name']}: {visible(words)}" for words in told]
            if run.folder and self._holds(folder / "rollouts") and any(folder.glob("rollouts/step-*.jsonl")):
                shown["source"] = key_of(folder)
                self._runs[shown["source"]] = folder
        return {**values, "notes": notes}

    def _grown(self, summary: RunSummary) -> Grown:
        """The metrics of a run, read again when there are more."""
        file = summary.path / "metrics.jsonl"
        state = _state(file) if file.exists() else (0, 0, 0)
        if self._metrics.get(summary.path, (None,))[0] != state:
            self._metrics[summary.path] = state, read_grown(summary)
        return self._metrics[summary.path][1]

    def _refuse_outside(self, *files: Path) -> None:
        for file in files:
            if not self._holds(file):
                raise UsageError(f"{file} lies outside of what is shown; name it, too, to see it")

    def _holds(self, path: Path) -> bool:
        """Whether ``path`` lies at or below what is shown, and not only a link to it."""
        return any(path.resolve().is_relative_to(one.resolve()) for one in self.paths)

    def _read(self, file: Path) -> tuple[Sequence[BenchmarkView], Sequence[str]]:
        """The views of a samples file, or of its graded copy; raises DataError if it is damaged."""
        copy, labels = graded_copy(file), file.with_name(f"{stem_of(file)}.labels")
        file = file if copy is None or copy.stale else copy.file
        self._refuse_outside(file)
        state, known = _state(file), self._files.get(file)
        if known is None or state != known.state:
            is_grown = known is not None and state[0] == known.state[0] and state[1] > known.state[1]
            if known is None or not is_grown or known.fault:
                known = self._files[file] = _File(SamplesIndex(file), labels)
            known.state, known.is_whole = state, False
            try:
                known.index.update()
                known.views = list(_first_views(known.index))
            except QuatroError as error:
                known.views, known.fault, known.is_whole = (), error, True
            self._sources |= {view.source: (known, view.benchmark) for view in known.views}
        if known.fault:
            raise known.fault.with_traceback(None)
        counted = [view for view in known.views if view.problems]
        is_all = len(counted) == len(known.views)
        return counted, [] if is_all else [f"{file}: answers without a grade are being graded"]


def _walk(path: Path) -> list[Path]:
    """The runs, sweeps and samples at and below ``path``, without what is inside of them."""
    found = [path] if path.is_file() else []
    for folder, inner, files in os.walk(path):
        if {"config.yaml", "sweep.yaml", SAMPLING} & set(files):
            inner.clear()
            found.append(Path(folder))
        inner[:] = sorted(name for name in inner if not name.startswith("."))
    return found or sorted(path.glob("*.jsonl*"))  # such as imported samples


def _first_views(index: SamplesIndex) -> Iterator[BenchmarkView]:
    """Counts alone, which the index holds; no problems where some answers have no grade."""
    for benchmark, keys in grouped(index.places, lambda key: key[0]).items():
        setting = BY_DEFAULT.settings(benchmark, graded_of(index.problem(*keys[0])).kind)[0]
        places = [(key, index.places[key]) for key in keys]
        is_graded = all(one.num_correct + one.num_wrong == len(one.starts) for _, one in places)
        problems = [ProblemView(Counts(*key, len(one.starts), one.num_correct)) for key, one in places] * is_graded
        yield BenchmarkView(benchmark, setting, problems, key_of(f"{index.file} {benchmark}"))


def _clustered(index: SamplesIndex, view: BenchmarkView) -> BenchmarkView:
    ids = [id for benchmark, id in list(index.places) if benchmark == view.benchmark]
    problems = index.problems(view.benchmark, ids)
    return replace(view, problems=[view_problem(one, graded_problem(one), view.setting, 0) for one in problems])


def _state(file: Path) -> _State:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _response(row: Mapping[str, Any]) -> Json:
    """A rollout for the page: texts that can be seen, and numbers."""
    head = {name: rounded(row.get(name)) for name in ("reward", "advantage", "num_tokens")}
    texts = {name: capped(str(row.get(name) or ""), LONGEST_RESPONSE) for name in ("completion", THOUGHT, "error")}
    return {**head, **texts, "is_truncated": row.get("finish_reason") == "length", "correct": row.get("correct")}


def _dual(rows: Sequence[Mapping[str, Any]], method: Mapping[str, Any]) -> Json:
    """lambda and status of a prompt by QUATRO's dual; of another method, whether all rewards are the same."""
    rewards = [row["reward"] for row in rows if row.get("reward") is not None]
    is_flat = len(set(rewards)) < 2
    if is_flat or method.get("temperature") != "dual":
        return {"lam": None, "status": "degenerate" * is_flat}
    bounds = {name: method[name] for name in ("boundary_cap", "advantage_floor")}
    found = solve_dual(np.array([rewards], dtype=float), method["delta"], **bounds)
    return {"lam": rounded(float(found.lam[0])), "status": found.status[0]}
