"""A run directory: it explains itself, it can be used as a configuration, and one process at a time writes to it.

runs/<name>/ config.yaml  environment.json  status.json  metrics.jsonl  log.txt  lock
             checkpoints/  rollouts/step-000001.jsonl  samples/  figures/
             previous-1/  what a run drew and measured that ended here before its first checkpoint
"""

import contextlib
import hashlib
import itertools
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from evals.errors import UsageError
from evals.files import whole
from evals.text import visible
from quatro.config import Config, config_to_yaml, load_config
from quatro.config.load import lasting_digest
from quatro.runs.status import RunLock, changes, collect_environment, is_locked, now, read_environment, read_status

logger = logging.getLogger(__name__)

Status = Literal["running", "done", "failed", "interrupted"]
FOLDERS = ("checkpoints", "rollouts", "samples", "figures")
# What is of use although nothing can go on from it.
_WORK = ("metrics.jsonl", "rollouts", "tensorboard", "wandb")

# Of a response in a file: its text for each token, and whatever else its row says.
_TOKEN_BYTES, _ROW_BYTES = 4, 250


class _LogFile(logging.FileHandler):
    """log.txt; if it cannot be written, as on a full disk, the run goes on.

    Messages and tracebacks may quote a model: nothing in the file acts on the terminal that shows it.
    """

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), keep="\t\n")

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class RunDir(contextlib.AbstractContextManager["RunDir"]):
    """An open run directory, locked until `close`. Make one with `create` or `open`."""

    ended_early: str | None = None  # why training ended before `config.steps` iterations, if it did
    ending: Sequence[str] = ()  # what is said of the run once it is done

    def __init__(self, path: Path, config: Config, lock: RunLock) -> None:
        self.path = path
        self.config = config
        self._lock = lock
        self._metrics = (path / "metrics.jsonl").open("ab", buffering=0)
        self._metrics_digest = whole.file_digest(path / "metrics.jsonl")  # of the rows so far
        self._rollouts_sha256: dict[str, str] = {}

    @classmethod
    def create(cls, path: Path, config: Config, *, argv: Sequence[str] = ()) -> Self:
        """A new run with its config and environment on disk, status `running`.

        A run that ended before its first checkpoint is begun anew in its folder: nothing could go on from it. What
        it has drawn and measured is moved aside, and the new run goes on in its log.txt.

        Raises:
            UsageError: the directory exists and holds something.
            LockedError: another process is writing to it.
            OSError: it cannot be written.
        """
        if not (path.is_dir() and is_locked(path)):
            refuse_occupied(path)
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:
            lock = opened.enter_context(contextlib.closing(RunLock(path)))
            refuse_occupied(path)
            _set_aside(path, _WORK)
            for left in ("config.yaml", "status.json", "metrics.jsonl"):  # a directory with the first is a run
                (path / left).unlink(missing_ok=True)
            for folder in FOLDERS:
                (path / folder).mkdir(exist_ok=True)
            whole.write_json(path / "environment.json", collect_environment(argv))
            run = cls(path, config, lock)
            run.set_status("running", step=0)
            # Last: a directory with a config.yaml is a run.
            whole.write_text(path / "config.yaml", config_to_yaml(config, folder=path))
            opened.pop_all()
        return run

    @classmethod
    def open(cls, path: Path, *, config: Config | None = None, argv: Sequence[str] = ()) -> Self:
        """The run in ``path``, to go on with it; what has changed in the environment is recorded.

        ``config`` takes the place of the run's own, where a resume changes what it may.

        Raises UsageError if no run is there, and LockedError if another process is writing to it.
        """
        require_run(path)
        with contextlib.ExitStack() as opened:
            lock = opened.enter_context(contextlib.closing(RunLock(path)))
            for folder in FOLDERS:
                (path / folder).mkdir(exist_ok=True)
            for unfinished in [*path.glob(".*.tmp"), *path.glob("rollouts/.*.tmp")]:  # of a process that was killed
                unfinished.unlink()
            stored = load_config(path)
            run = cls(path, config or stored, lock)
            run._record_resume(argv)
            if run.config != stored:
                whole.write_text(path / "config.yaml", config_to_yaml(run.config, folder=path))
            opened.pop_all()
        return run

    def close(self) -> None:
        self._metrics.close()
        self._lock.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_status(self, status: Status, *, step: int | None = None, reason: str | None = None) -> None:
        """Write status.json; ``step`` iterations are finished (None keeps the number).

        It has the digest of the settings, and once the run has ended that of its metrics: `identity.py` compares both.
        """
        before = read_status(self.path)
        document = {
            "status": status,
            "reason": reason,
            "step": before.get("step", 0) if step is None else step,
            "steps": self.config.steps,
            "started": before.get("started") or now(),
            "updated": now(),
            "run_digest": lasting_digest(self.config),
        }
        if status != "running":
            document |= {key: value for key, value in self.written.items() if key.startswith("metrics_")}
        whole.write_json(self.path / "status.json", document)

    def add_to_environment(self, extra: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Record what is known only once the parts are built (device, threads).

        Returns the keys that had another value when the run began, with the values then and now; those stay as
        recorded.
        """
        document = read_environment(self.path)
        known = {key: document[key] for key in extra if document.get(key) is not None}
        whole.write_json(self.path / "environment.json", {**document, **extra, **known})
        return changes(known, {key: extra[key] for key in known})

    def _record_resume(self, argv: Sequence[str]) -> None:
        current = collect_environment(argv)
        document = read_environment(self.path) or current
        entry = {"time": current["time"], "argv": current["argv"], "changes": changes(document, current)}
        resumed = [*document.get("resumed", []), entry]
        whole.write_json(self.path / "environment.json", {**document, "resumed": resumed})

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl; a write that fails raises OSError and leaves the lines before it."""
        path = self.path / "metrics.jsonl"
        before = self.metrics_bytes
        row_bytes = whole.json_line(row)
        line = memoryview(row_bytes)
        with whole.naming(path):
            try:
                while line:
                    line = line[self._metrics.write(line) :]
            except OSError:
                self._metrics.truncate(before)
                raise
        self._metrics_digest.update(row_bytes)

    @property
    def metrics_bytes(self) -> int:
        """Size of metrics.jsonl."""
        return (self.path / "metrics.jsonl").stat().st_size

    def sync(self) -> None:
        """Push appended metrics to the disk, so that no checkpoint is ahead of its metrics after a power cut."""
        with whole.naming(self.path / "metrics.jsonl"):
            whole.flush_to_disk(self._metrics)

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> Path:
        """rollouts/step-000012.jsonl, whole or not at all."""
        path = self.path / "rollouts" / f"{step_name(step)}.jsonl"
        digest = hashlib.sha256()

        def lines() -> Iterator[bytes]:
            for row in rows:
                line = whole.json_line(row)
                digest.update(line)
                yield line

        whole.write_bytes(path, lines())
        self._rollouts_sha256[path.name] = digest.hexdigest()
        return path

    @property
    def written(self) -> dict[str, Any]:
        """What a checkpoint holds of metrics.jsonl and the rollouts, hashed as this run wrote them."""
        return {
            "metrics_bytes": self.metrics_bytes,
            "metrics_sha256": self._metrics_digest.hexdigest(),
            "rollouts_sha256": dict(self._rollouts_sha256),
        }

    def go_back(self, step: int, written: Mapping[str, Any]) -> None:
        """Cut metrics.jsonl and the rollouts back to ``step`` finished iterations, where ``written`` was stored.

        Without a checkpoint, where ``written`` is empty, they are moved aside.
        """
        path = self.path / "metrics.jsonl"
        if not written and _set_aside(self.path, ("metrics.jsonl", "rollouts")):
            (self.path / "rollouts").mkdir(exist_ok=True)
            self._metrics.close()
            self._metrics = path.open("ab", buffering=0)
        with whole.naming(path):
            self._metrics.truncate(written.get("metrics_bytes", 0))
        self.sync()
        self._metrics_digest = whole.file_digest(path)
        folder = self.path / "rollouts"
        for path in folder.glob("step-*.jsonl"):
            if (step_number(path.stem) or 0) > step:
                path.unlink()
        whole.fsync_directory(folder)
        self._rollouts_sha256 = dict(written.get("rollouts_sha256", {}))

    def log_handler(self) -> logging.FileHandler:
        """A handler that appends to log.txt; the caller adds it to a logger and closes it."""
        handler = _LogFile(self.path / "log.txt", encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        return handler


class FollowedRun(RunDir):
    """The run directory of all ranks but the first, which alone writes to it: it is only read."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config

    def _left_to_the_first(self, *_: Any, **__: Any) -> Any:
        return {}

    close = set_status = append_metrics = go_back = sync = write_rollouts = add_to_environment = _left_to_the_first
    written = property(_left_to_the_first)


def log_only(log: logging.Handler, text: str, *, error: BaseException | None = None) -> None:
    """Write a line to ``log`` and nowhere else, as an error with its traceback if ``error`` is given."""
    level = logging.INFO if error is None else logging.ERROR
    raised = None if error is None else (type(error), error, error.__traceback__)
    log.handle(logging.LogRecord("quatro", level, __file__, 0, text, (), raised))


def require_run(path: Path) -> None:
    """Raises UsageError unless ``path`` is a run."""
    if not (path / "config.yaml").is_file():
        raise UsageError(f"{path} is not a run directory: it has no config.yaml; `quatro runs list` shows the runs")


def default_run_path(stem: str, config: Config, *, root: Path = Path("runs")) -> Path:
    """``runs/<config stem>-<method>-<seed>``; a stem that is no plain file name gets a short hash in its place."""
    method = config.method.name.rpartition(":")[2]
    name = f"{stem}-{method}-{config.seed}"
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".-")
    if slug != name:
        slug = f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return root / slug


def folder_bytes(folder: Path) -> int:
    """Sizes of all files below ``folder``; a symbolic link counts as itself, not as what it leads to."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a run under way renames its files
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def rows_bytes(number: int, config: Config) -> int:
    """Of files with ``number`` responses, if all of them have the full length."""
    return number * (_ROW_BYTES + _TOKEN_BYTES * config.rollout.max_new_tokens)


def run_bytes(config: Config, num_trained: float) -> int:
    """Of a run: checkpoints that stay, with weights and both moments of the optimiser in float32, and rollouts."""
    every = config.checkpoint.every
    written = -(-config.steps // every) if every else 1
    kept = config.checkpoint.keep.last + (config.checkpoint.keep.best is not None)
    checkpoints = int(12 * num_trained) * min(kept, written)
    number = config.steps * config.prompts_per_step * config.rollouts_per_prompt
    return checkpoints + (rows_bytes(number, config) if config.save_rollouts else 0)


INSIDE = "-inside"


def step_name(step: int, *, is_inside: bool = False) -> str:
    """``step-000100``; ``step-000100-inside`` for what was stopped inside the iteration after it."""
    return f"step-{step:06d}{INSIDE if is_inside else ''}"


def step_number(name: str) -> int | None:
    """100 for ``step-000100`` and ``step-000100-inside``; None for any other name."""
    match = re.fullmatch(f"step-([0-9]{{6,}})(?:{INSIDE})?", name)
    return int(match.group(1)) if match else None


def refuse_occupied(path: Path) -> None:
    """Raises UsageError, with advice, for a folder with anything but what a killed `create` leaves behind."""
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise UsageError(f"{above} is a file: choose another run directory with -o DIR")
    if above != path:
        return
    present = set(os.listdir(path))
    if "config.yaml" in present and not is_abandoned(path):
        raise UsageError(
            f"{path} already holds a run: continue it with `quatro train {path} --resume`, take the next free name "
            "with --new, or choose another directory with -o DIR"
        )
    if present and "lock" not in present:  # which a run has from its first moment on
        raise UsageError(f"{path} is not empty and not a run (it holds {min(present)}): choose another with -o DIR")


def refuse_read_only(path: Path) -> None:
    """Raises OSError, which names the folder, if a run could not write to ``path`` or to a folder of it."""
    for folder in (path, *(path / name for name in FOLDERS if (path / name).is_dir())):
        whole.refuse_unwritable(folder)


def is_abandoned(path: Path) -> bool:
    """Whether the run in ``path`` ended before its first checkpoint, so that nothing could go on from it."""
    folders = ("checkpoints", "samples", "figures")
    kept = any(os.listdir(path / folder) for folder in folders if (path / folder).is_dir())
    return (path / "config.yaml").is_file() and not kept


def free_name(path: Path) -> Path:
    """``path`` itself if nothing is there, else the first free one of NAME-2, NAME-3, ..."""
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([path], names) if not name.exists())


def place_aside(path: Path) -> Path | None:
    """Where a run without a checkpoint moves what it drew and measured when it is begun anew; None if there is none."""
    if not any(file.stat().st_size for file in [*path.glob("metrics.jsonl"), *path.glob("rollouts/*")]):
        return None
    return next(aside for number in itertools.count(1) if not (aside := path / f"previous-{number}").exists())


def _set_aside(path: Path, names: Sequence[str]) -> bool:
    """Move ``names`` to `place_aside`, beside the configuration that they are of; whether there was something."""
    if (aside := place_aside(path)) is None:
        return False
    logger.warning("the metrics and rollouts from before the first checkpoint go to %s", aside)
    aside.mkdir()
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(path / "config.yaml", aside)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.rename(path / name, aside / name)
    whole.fsync_directory(aside)
    return True
