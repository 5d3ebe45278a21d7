"""Runs a sweep: trains the points that are missing, measures them, and writes the tables of results.

    sweeps/<name>/ sweep.yaml  configs/<point>.yaml  runs/<point>/  base/<model>/  logs/<point>.txt
                   summary.csv

Each point is trained by a child process (`_Sweep._train`, `children.py`) from a file that holds its whole
configuration: the runs cannot disturb each other, and what ran is what was planned. Planning imports no torch.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evals.errors import DataError, LockedError, QuatroError, UsageError
from evals.files.frames import TEXT, frame_of, write_frame
from evals.files.whole import write_text
from evals.results.training_metrics import SUMMARY_METRICS, last_mean
from quatro.config import config_to_yaml, differing_keys, load_config, pinned
from quatro.config.load import refuse_lost
from quatro.processes.stop import StopRequest
from quatro.runs.identity import read_config
from quatro.runs.metrics import read_metrics
from quatro.runs.points import SWEEP, config_file, is_sweep, read_points, refuse_other_point
from quatro.runs.status import RunLock, is_locked, read_status, warnings_in
from quatro.sample.folder import measure_samples
from quatro.sweep import measure
from quatro.sweep.children import POLL_S, Children, Slot, last_error, launched, make_slots, note_error, num_gpus
from quatro.sweep.plan import Point, SweepPlan

SweepProgress = Callable[[int, str], None]  # (points done, what happened last)


@dataclass(frozen=True)
class PointOutcome:
    """The state of a point: ``status`` as in its status.json, ``killed`` or ``missing``; ``reason`` if it is not done.

    With an evaluation a trained point is ``unmeasured`` until ``measured`` holds its numbers. ``warnings`` are what the
    training and the sampling of the point warned of.
    """

    point: Point
    status: str
    reason: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        point = {"name": self.point.name, "cell": self.point.cell or None, "settings": self.point.settings}
        others = ("status", "reason", "measured", "warnings")
        return {**point, **{name: getattr(self, name) for name in others}}


def all_points(plan: SweepPlan, evaluation: measure.SweepEvaluation | None) -> list[Point]:
    """The points of the plan, after the base models where something is measured."""
    return [*(measure.base_points(plan) if evaluation is not None else ()), *plan.points]


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    *,
    train_command: Sequence[str],
    sample_command: Sequence[str] = (),
    evaluation: measure.SweepEvaluation | None = None,
    jobs: int = 1,
    gpus: Sequence[str] = (),
    stop: StopRequest | None = None,
    progress: SweepProgress | None = None,
) -> list[PointOutcome]:
    """Train every point that is not done, by ``train_command CONFIG -o RUN``, then write summary.csv.

    With an ``evaluation``, ``sample_command`` draws from each trained point and once from the base. A failed point
    does not stop the others. ``progress`` is told how it goes. After ``stop`` no point is begun and those that run are
    asked to save and end.

    Raises:
        UsageError: ``folder`` holds a run of the same name with another configuration, or the GPUs cannot be divided
            among the points.
        LockedError: another process runs this sweep.
    """
    assert evaluation is None or sample_command
    slots = make_slots(jobs, gpus, gpus_each=max(point.config.processes or 1 for point in plan.points))
    folder.mkdir(parents=True, exist_ok=True)
    with closing(RunLock(folder)):
        whole = write_plan(plan, folder, evaluation)
        points = all_points(plan, evaluation)
        waiting = [point for point in points if status_of(point, folder, evaluation).status != "done"]
        for point in waiting:
            refuse_lost(point.config)
        sweep = _Sweep(folder, train_command, sample_command, evaluation, Children(stop or StopRequest()), progress)
        sweep.num_done = len(points) - len(waiting)
        sweep.run(waiting, slots)
        outcomes = {point.name: status_of(point, folder, evaluation) for point in all_points(whole, evaluation)}
        write_summary(list(outcomes.values()), folder)
    return [outcomes[point.name] for point in points]


def status_of(point: Point, folder: Path, evaluation: measure.SweepEvaluation | None = None) -> PointOutcome:
    """What the point's status.json says, whether it has been measured, and what it warned of.

    A run whose status is `running` and that no process holds was `killed`.

    Raises DataError if what lies there is not the run of this point, or its parts are not of one run.
    """
    run, log = measure.run_folder(folder, point), log_file(folder, point)
    state = {"status": "done"} if point.cell == measure.BASE_CELL else read_status(run)
    if (run / "config.yaml").is_file() and state:
        refuse_other_point(run, point.config)
        read_config(run)
    status, reason = str(state.get("status", "missing")), ""
    status = "killed" if status == "running" and not is_locked(run) else status
    numbers = measure.measured(evaluation, run) if status == "done" else {}
    if not state:
        reason = last_error(log) or "not run yet"
    elif status != "done":
        reason = str(state.get("reason") or last_error(log) or "ended without a word")
    elif numbers is None:
        status, reason = "unmeasured", last_error(log, or_last_line=False) or "not sampled yet"
    return PointOutcome(point, status, reason, numbers or {}, warnings_in(run / "log.txt", log))


def write_plan(plan: SweepPlan, folder: Path, evaluation: measure.SweepEvaluation | None = None) -> SweepPlan:
    """Writes sweep.yaml, which says what is measured too, and one configuration file a point; returns the whole plan.

    The whole plan has the points of ``plan``, and then those that were planned before and have begun.

    Raises UsageError if a point of that name was planned with another configuration.
    """
    for name in ("configs", "logs", "runs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for point in plan.points:
        path = config_file(folder, point.name)
        if path.exists() and differing_keys([pinned(load_config(path)), point.config]):
            raise UsageError(
                f"{path} holds another configuration than the one asked for; name another folder with -o, "
                f"or compare them with `quatro config diff`"
            )
    for point in plan.points:
        write_text(config_file(folder, point.name), config_to_yaml(point.config, folder=folder / "configs"))
    points = (*plan.points, *_begun_before(folder, besides={point.name for point in plan.points}))
    lines = [f"name: {json.dumps(plan.name)}", "points:"]
    lines += [f"  {json.dumps(point.name)}: {json.dumps(dict(point.settings))}" for point in points]
    if any(point.cell for point in points):
        lines += ["cells:", *(f"  {json.dumps(point.name)}: {json.dumps(point.cell)}" for point in points)]
    if plan.num_collapsed:
        lines.append(f"num_collapsed: {plan.num_collapsed}")
    if evaluation is not None:
        lines.append(f"evaluation: {json.dumps(evaluation.recorded(folder))}")
    write_text(folder / SWEEP, "\n".join([*lines, ""]))
    return replace(plan, points=points)


def _begun_before(folder: Path, *, besides: Collection[str]) -> list[Point]:
    """The other points of the sweep in ``folder`` whose runs have begun; none where its sweep.yaml is damaged."""
    try:
        known = read_points(folder) if is_sweep(folder) else {}
    except DataError:
        return []
    return [
        Point(name, settings, load_config(config_file(folder, name)), cell)
        for name, (cell, settings) in known.items()
        if name not in besides and (folder / "runs" / name).is_dir() and config_file(folder, name).is_file()
    ]


@dataclass
class _Sweep:
    """One call of `run_sweep`: threads take the waiting points in turn, each into a free slot."""

    folder: Path
    train_command: Sequence[str]
    sample_command: Sequence[str]
    evaluation: measure.SweepEvaluation | None
    children: Children
    progress: SweepProgress | None
    num_done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, points: Sequence[Point], slots: Sequence[Slot]) -> None:
        free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in slots:
            free.put(slot)

        def work(point: Point) -> None:
            slot = free.get()
            try:
                self._work(point, slot)
            finally:
                free.put(slot)

        with ThreadPoolExecutor(max_workers=len(slots)) as pool:
            try:
                for future in as_completed([pool.submit(work, point) for point in points]):
                    future.result()
            except BaseException:  # a second Ctrl-C: the threads must let go of their children, or nothing ends
                self.children.abandoned.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _work(self, point: Point, slot: Slot) -> None:
        if self.children.is_stopping:
            return
        try:
            if point.cell != measure.BASE_CELL:
                self._train(point, slot)
            if self.evaluation is not None and status_of(point, self.folder).status == "done":
                self._measure(point, slot, self.evaluation)
        except (QuatroError, OSError) as error:  # this point's own trouble: the others go on
            note_error(log_file(self.folder, point), error)
        outcome = status_of(point, self.folder, self.evaluation)
        with self.lock:
            self.num_done += outcome.status == "done"
        self._say(point, outcome.status)

    def _say(self, point: Point, what: str) -> None:
        if self.progress is not None:
            self.progress(self.num_done, f"{point.name} {what}")

    def _train(self, point: Point, slot: Slot) -> None:
        """Begin or resume the run; one that a killed sweep left running is waited for instead."""
        run = measure.run_folder(self.folder, point)
        while True:
            if is_locked(run):
                self._say(point, "runs already")
                while not self.children.is_stopping and is_locked(run):
                    time.sleep(POLL_S)
            if self.children.is_stopping or status_of(point, self.folder).status == "done":
                return
            has_begun = (run / "config.yaml").exists()  # written last: without it nothing has begun
            self._say(point, "resumes" if has_begun else "trains")
            own = [str(run), "--resume"] if has_begun else [str(config_file(self.folder, point.name)), "-o", str(run)]
            command = launched([*self.train_command, *own], point.config.processes or 1)
            code = self.children.run(command, log_file(self.folder, point), slot, is_first=True)
            # A child of a killed sweep may have been about to take the lock when this one looked.
            if code != LockedError.exit_code and not is_locked(run):
                return

    def _measure(self, point: Point, slot: Slot, evaluation: measure.SweepEvaluation) -> None:
        run = measure.run_folder(self.folder, point)
        log = log_file(self.folder, point)
        for tag in evaluation.tags:
            if measure.measured(evaluation, run, tag) is not None:
                continue
            if self.children.is_stopping:
                return
            self._say(point, f"is sampled, {tag}")
            own = measure.sample_arguments(evaluation, point, run, tag, num_gpus(slot))
            command = launched([*self.sample_command, *own], 1)
            while code := self.children.run(command, log, slot, is_first=False):
                if code != LockedError.exit_code or self.children.is_stopping:
                    return
                time.sleep(1.0)  # the child of a killed sweep still draws into this file
            self._say(point, f"is measured, {tag}")
            measure_samples(tag.folder(run), n=evaluation.n, label=point.name)


def log_file(folder: Path, point: Point) -> Path:
    """What the processes of a point wrote."""
    return folder / "logs" / f"{point.name}.txt"


def write_summary(outcomes: Sequence[PointOutcome], folder: Path) -> None:
    """summary.csv: a row for each point, with means of training metrics over its last iterations and sample metrics."""
    axes = (key for outcome in outcomes for key in outcome.point.settings if key != "steps")
    measured = (name for outcome in outcomes for name in outcome.measured)
    place = ("point", "cell", "status") if any(outcome.point.cell for outcome in outcomes) else ("point", "status")
    columns = {**dict.fromkeys(place, TEXT), "steps": "int64", **dict.fromkeys(axes, TEXT)}
    columns |= {**dict.fromkeys((*SUMMARY_METRICS, *measured), "float64"), "reason": TEXT}
    write_frame(frame_of([_row(outcome, folder) for outcome in outcomes], columns), folder / "summary.csv")


def _row(outcome: PointOutcome, folder: Path) -> dict[str, Any]:
    point, rows = outcome.point, list(read_metrics(folder / "runs" / outcome.point.name))
    about = {"point": point.name, "cell": point.cell, "status": outcome.status, "reason": outcome.reason}
    means = {name: last_mean(rows, name) for name in SUMMARY_METRICS}
    return {**about, **point.settings, "steps": len(rows), **means, **outcome.measured}
