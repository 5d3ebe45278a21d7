"""Metrics in TensorBoard and Weights & Biases, beside metrics.jsonl: RUN/tensorboard and RUN/wandb.

Both are copies. metrics.jsonl is the record, a tracker that fails is switched off with one warning, and a resumed run
cuts both back to where metrics.jsonl was cut back to.
"""

import contextlib
import importlib.util
import logging
import math
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from evals.errors import MissingError, how_to_install
from evals.files.whole import naming, write_text
from quatro.config import config_to_yaml
from quatro.config.blocks import TrackingConfig
from quatro.runs.directory import RunDir
from quatro.runs.metrics import read_metrics

logger = logging.getLogger(__name__)

FINISH_TIMEOUT_S = 60.0  # for the last upload; what is left behind then stays in RUN/wandb

Row = Mapping[str, Any]


class Trackers:
    """An observer for `quatro.train.train`: sends the metrics of each iteration to the trackers of the run's config.

    Opens them at the first iteration it sees: that one, and none after it, is new to them. With several processes only
    the one that writes metrics.jsonl has one of these. Never raises for a tracker's sake.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._closed = {name: TRACKERS[name] for name in enabled(run.config.tracking)}
        self._open: dict[str, _TensorBoard | _Wandb] = {}

    def __call__(self, metrics: Row) -> None:
        step, values = int(metrics["step"]), plain_values(metrics)
        for name, tracker_of in self._closed.items():
            with self._surviving(name):
                self._open[name] = tracker_of(self._run, step)
        self._closed = {}
        for name, tracker in list(self._open.items()):
            with self._surviving(name):
                tracker.send(step, values)

    @contextlib.contextmanager
    def _surviving(self, name: str) -> Iterator[None]:
        try:
            yield
        # A full disk, no network, a bug of theirs: none of it is worth a training run.
        except Exception as error:
            self._open.pop(name, None)
            said = f"{type(error).__name__}: {error}"
            logger.warning("%s is off for the rest of this run: %s; metrics.jsonl has everything", name, said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for name, tracker in list(self._open.items()):
            with self._surviving(name):
                tracker.close(is_failed=kind is not None)
        self._open = {}


def enabled(tracking: TrackingConfig) -> list[str]:
    """The trackers that a configuration asks for."""
    asked = {"tensorboard": tracking.tensorboard, "wandb": tracking.wandb is not None}
    return [name for name, is_on in asked.items() if is_on]


def require_trackers(tracking: TrackingConfig) -> None:
    """Asked before a run begins, so that it does not begin without what its configuration promises.

    Raises MissingError if a package is not installed, or wandb is to go online and has no credentials here.
    """
    for name in enabled(tracking):
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a mere folder of that name, such as a run's, is no package
            raise MissingError(
                f"tracking.{name} is on and the package {name!r} is not installed; run {how_to_install('tracking')}, "
                f"or switch it off with -s tracking.{name}={OFF[name]}"
            )
    if tracking.wandb == "online":
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


def rows_before(run: RunDir, step: int) -> list[Row]:
    """The rows of metrics.jsonl before iteration ``step``."""
    return [row for row in read_metrics(run.path) if row["step"] < step]


class _TensorBoard:
    """One event file of RUN/tensorboard, written record by record.

    TensorBoard's own writer hands records to a thread, which after a failed write leaves whoever flushes waiting for
    ever; its records are simple enough to be written here.
    """

    def __init__(self, run: RunDir, first_step: int) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = run.path / "tensorboard"
        folder.mkdir(exist_ok=True)
        present = sorted(folder.glob("events.out.tfevents.*"))
        # Readers take the files of a folder in the order of their names. Numbers, unlike times, never go backwards.
        last = int(present[-1].suffix.removeprefix(".")) if present else 0
        self._path = folder / f"events.out.tfevents.{last + 1:06d}"
        self._file = self._path.open("xb", buffering=0)
        self._records = RecordWriter(self._file)
        self._write(step=0, file_version="brain.Event:2")
        if present:
            # Readers forget what they have from this iteration on: the resumed run makes it again.
            self._write(step=first_step, session_log={"status": "START"})
        else:
            for row in rows_before(run, first_step):
                self.send(int(row["step"]), plain_values(row))
        config = "".join(f"    {line}\n" for line in config_to_yaml(run.config).splitlines())  # as code, in Markdown
        self._write(step=first_step, summary=text_pb("config", config))

    def send(self, step: int, values: Mapping[str, float]) -> None:
        self._write(step=step, summary={"value": [{"tag": name, "simple_value": v} for name, v in values.items()]})

    def close(self, *, is_failed: bool) -> None:
        self._file.close()

    def _write(self, **event: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        with naming(self._path):
            self._records.write(Event(wall_time=time.time(), **event).SerializeToString())


class _Wandb:
    """A Weights & Biases run whose id stands in RUN/wandb/run-id, so that a resumed run goes on with it.

    The server refuses iterations that it has. Offline there is nobody to ask, and folders of one run that are uploaded
    one after the other replace each other: so the newest is given the whole history, and older ones are removed.
    """

    def __init__(self, run: RunDir, first_step: int) -> None:
        import wandb

        tracking, folder = run.config.tracking, run.path / "wandb"
        folder.mkdir(exist_ok=True)
        if not (id_file := folder / "run-id").exists():
            write_text(id_file, secrets.token_hex(4) + "\n")
        run_id = id_file.read_text(encoding="utf-8").strip()
        superseded = list(folder.glob(f"offline-run-*-{run_id}*"))
        is_offline = tracking.wandb == "offline"
        self._run = wandb.init(
            mode=tracking.wandb,
            project=tracking.project,
            name=tracking.name or run.path.resolve().name,
            id=run_id,
            resume=None if is_offline else "allow",
            dir=run.path,
            config=run.config.model_dump(mode="json"),
            settings=wandb.Settings(silent=True, console="off", finish_timeout=FINISH_TIMEOUT_S),
        )
        # Online, the iteration after the last that the server has; else 0.
        self._next_step = self._run.step
        for row in rows_before(run, first_step):
            self.send(int(row["step"]), plain_values(row))
        for old in superseded if is_offline else ():
            shutil.rmtree(old)

    def send(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self._next_step:
            self._run.log(dict(values), step=step, commit=True)

    def close(self, *, is_failed: bool) -> None:
        self._run.finish(exit_code=int(is_failed))


TRACKERS: dict[str, type[_TensorBoard | _Wandb]] = {"tensorboard": _TensorBoard, "wandb": _Wandb}
OFF = {"tensorboard": "false", "wandb": "null"}
