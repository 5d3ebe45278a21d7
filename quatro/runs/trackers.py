"""Metrics in TensorBoard, Weights & Biases, trackio and trackers of the user's own, beside metrics.jsonl.

All are copies. metrics.jsonl is the record, a tracker that fails is said once and then counted, and a resumed run cuts
what ours hold back to where metrics.jsonl was cut back to.
"""

import contextlib
import importlib.util
import io
import logging
import math
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.errors import MissingError, UsageError, how_to_install
from evals.files.own_code import file_of, import_own, is_own, line_of_own
from evals.files.whole import naming, write_text
from quatro.config import Config, config_to_yaml
from quatro.config.blocks import TrackingConfig
from quatro.registry import TRACKERS
from quatro.runs.directory import RunDir
from quatro.runs.metrics import read_metrics

logger = logging.getLogger(__name__)

FINISH_TIMEOUT_S = 60.0  # for the last upload; what is left behind then stays in RUN/wandb
MOST_FAILURES = 10  # after so many a tracker is asked no more: each may take a minute

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Tracked:
    """What a tracker is given in `start(run)`, before `log(step, metrics)` and `end(is_failed=)`.

    ``rows`` are the iterations before ``first_step``, with their metrics.
    """

    path: Path
    name: str
    config: Config
    first_step: int

    @property
    def rows(self) -> list[tuple[int, dict[str, float]]]:
        steps = ((int(row["step"]), row) for row in read_metrics(self.path))
        return [(step, plain_values(row)) for step, row in steps if step < self.first_step]


def own_tracker(spec: str) -> Any:
    """The user's own class that ``spec`` names; raises UsageError if it cannot be imported or lacks a method."""
    found = import_own(spec, "tracker")
    if lacking := [name for name in ("start", "log", "end") if not callable(getattr(found, name, None))]:
        raise UsageError(f"tracker {spec!r} lacks {', '.join(lacking)}; add it in {file_of(spec)} (docs/extending.md)")
    return found


class Trackers(contextlib.AbstractContextManager["Trackers"]):
    """An observer for `quatro.train.train`: sends the metrics of each iteration to the trackers of the run's config.

    Opens them at the first iteration it sees: that one, and none after it, is new to them. With several processes only
    the one that writes metrics.jsonl has one of these. Never raises for a tracker's sake.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._closed = run.config.tracking.enabled
        self._open: dict[str, Any] = {}
        self._failures = Counter[str]()

    def __call__(self, metrics: Row) -> None:
        step, values, run = int(metrics["step"]), plain_values(metrics), self._run
        for name in self._closed:
            with self._surviving(name):
                tracker = TRACKERS[name]()
                tracker.start(Tracked(run.path, run.config.tracking.name or run.path.resolve().name, run.config, step))
                self._open[name] = tracker
        self._closed = []
        for name, tracker in self._open.items():
            if self._failures[name] < MOST_FAILURES:
                with self._surviving(name):
                    tracker.log(step, values)

    @contextlib.contextmanager
    def _surviving(self, name: str) -> Iterator[None]:
        try:
            yield
        # A full disk, no network, a bug of theirs: none of it is worth a training run.
        except (Exception, SystemExit) as error:
            self._failures[name] += 1
            if self._failures[name] == 1:
                place = f" ({line_of_own(error, name)})" if is_own(name) else ""
                said = f"{type(error).__name__}: {error}{place}"
                logger.warning("tracker %s failed: %s; the run goes on, and metrics.jsonl has everything", name, said)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for name, tracker in self._open.items():
            with self._surviving(name):
                tracker.end(is_failed=kind is not None)
        self._open = {}
        for name, count in self._failures.items():
            if count > 1:
                logger.warning("tracker %s failed %d times (after %d it is asked no more)", name, count, MOST_FAILURES)


def require_trackers(tracking: TrackingConfig) -> None:
    """Asked before a run begins, so that it does not begin without what its configuration promises.

    Raises:
        MissingError: a package is not installed, or wandb is to go online and has no credentials here.
        UsageError: as `own_tracker`.
    """
    for name in tracking.enabled:
        if is_own(name):
            own_tracker(name)
            continue
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a mere folder of that name, such as a run's, is no package
            raise MissingError(
                f"tracking asks for {name}, and that package is not installed; run "
                f"{how_to_install(name if name == 'trackio' else 'tracking')}, or train without it: -s tracking=[]"
            )
    if "wandb" in tracking.enabled and tracking.wandb != "offline":
        import wandb

        if not wandb.login(prompt=False, verify=False):
            raise MissingError(
                "tracking.wandb is online and there are no credentials on this machine; run `wandb login`, or train "
                "with -s tracking.wandb=offline and run `wandb sync` later"
            )


def plain_values(row: Row) -> dict[str, float]:
    """The metrics of one iteration that are finite numbers, without the step itself."""
    return {
        name: float(value)
        for name, value in row.items()
        if name != "step" and isinstance(value, (int, float)) and math.isfinite(value)
    }


class _TensorBoard:
    """One event file of RUN/tensorboard, written record by record.

    TensorBoard's own writer hands records to a thread, which after a failed write leaves whoever flushes waiting for
    ever; its records are simple enough to be written here.
    """

    def start(self, run: Tracked) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = run.path / "tensorboard"
        folder.mkdir(exist_ok=True)
        present = sorted(folder.glob("events.out.tfevents.*"))
        # Readers take the files of a folder in the order of their names. Numbers, unlike times, never go backwards.
        last = int(present[-1].suffix.removeprefix(".")) if present else 0
        self._path = folder / f"events.out.tfevents.{last + 1:06d}"
        self._file = self._path.open("ab", buffering=0)
        self._records = RecordWriter(self._file)
        self._write(step=0, file_version="brain.Event:2")
        if present:
            # Readers forget what they have from this iteration on: the resumed run makes it again.
            self._write(step=run.first_step, session_log={"status": "START"})
        else:
            for step, values in run.rows:
                self.log(step, values)
        config = "".join(f"    {line}\n" for line in config_to_yaml(run.config).splitlines())  # as code, in Markdown
        self._write(step=run.first_step, summary=text_pb("config", config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write(step=step, summary={"value": [{"tag": name, "simple_value": v} for name, v in metrics.items()]})

    def end(self, *, is_failed: bool) -> None:
        self._file.close()

    def _write(self, **event: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        size = self._file.tell()
        try:
            with naming(self._path):
                self._records.write(Event(wall_time=time.time(), **event).SerializeToString())
        except OSError:
            self._file.truncate(size)  # behind a cut record nothing is read
            raise


class _Wandb:
    """A Weights & Biases run whose id stands in RUN/wandb/run-id, so that a resumed run goes on with it.

    The server refuses iterations that it has. Offline there is nobody to ask, and folders of one run that are uploaded
    one after the other replace each other: so the newest is given the whole history, and older ones are removed.
    """

    def start(self, run: Tracked) -> None:
        import wandb

        tracking, folder = run.config.tracking, run.path / "wandb"
        folder.mkdir(exist_ok=True)
        if not (id_file := folder / "run-id").exists():
            write_text(id_file, secrets.token_hex(4) + "\n")
        run_id = id_file.read_text(encoding="utf-8").strip()
        superseded = list(folder.glob(f"offline-run-*-{run_id}*"))
        is_offline = tracking.wandb == "offline"
        self._run = wandb.init(
            mode=tracking.wandb or "online",
            project=tracking.project,
            name=run.name,
            id=run_id,
            resume=None if is_offline else "allow",
            dir=run.path,
            config=run.config.model_dump(mode="json"),
            settings=wandb.Settings(silent=True, console="off", finish_timeout=FINISH_TIMEOUT_S),
        )
        # Online, the iteration after the last that the server has; else 0.
        self._next_step = self._run.step
        for step, values in run.rows:
            self.log(step, values)
        for old in superseded if is_offline else ():
            shutil.rmtree(old)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step >= self._next_step:
            self._run.log(dict(metrics), step=step, commit=True)

    def end(self, *, is_failed: bool) -> None:
        self._run.finish(exit_code=int(is_failed))


class _Trackio:
    """A run of trackio, in its own folder on this machine or wherever its environment variables say.

    Of a resumed run a new one takes the place, with the whole history; the old one's id stands in RUN/trackio-id.
    """

    def start(self, run: Tracked) -> None:
        import trackio

        project, id_file = run.config.tracking.project, run.path / "trackio-id"
        with contextlib.redirect_stdout(io.StringIO()):  # where only data goes
            with contextlib.suppress(OSError, ValueError):  # there is none, or its project is gone
                old = id_file.read_text(encoding="utf-8").strip()
                for one in [one for one in trackio.Api().runs(project) if one.id == old]:
                    one.delete()
            settings = run.config.model_dump(mode="json")
            self._run = trackio.init(project, run.name, config=settings, embed=False)
        write_text(id_file, f"{self._run.id}\n")
        for step, values in run.rows:
            self.log(step, values)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def end(self, *, is_failed: bool) -> None:
        import trackio

        with contextlib.redirect_stdout(io.StringIO()):
            trackio.finish()  # not the run's own, which leaves it to be finished, and said, at the exit
