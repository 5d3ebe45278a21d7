"""What a run tells of itself while it is trained: status.json, log.txt, warnings, trackers."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping

from evals.errors import DataError, MissingError, QuatroError, UsageError
from evals.files.whole import write_json
from quatro.launch.health import Watch, startup_warnings
from quatro.loop.position import Parts, Position
from quatro.processes.stop import StopRequest
from quatro.runs.checkpoint import ends_early
from quatro.runs.directory import FollowedRun, RunDir, log_only
from quatro.runs.status import read_status
from quatro.runs.trackers import Trackers
from quatro.runs.views.summary import ending
from quatro.types import Observer, Stage

logger = logging.getLogger("quatro")


class Recorder:
    """Tells of a training: metrics.jsonl, status.json and the observers, after each iteration.

    ``metrics`` are those of the last iteration, or the step alone if none was finished. ``tell`` gets each `Stage`.
    Of the observers, None is left out.
    """

    def __init__(self, run: RunDir, *observers: Observer | None, tell: Callable[[Stage], None] | None = None) -> None:
        self.metrics: Mapping[str, float] = {}
        self._run = run
        self._observers = [one for one in observers if one is not None]
        self._tell = tell or (lambda stage: None)
        self._tell(Stage("load"))

    def begins(self, position: Position, parts: Parts) -> None:
        """Training begins at ``position``, or goes on from there, with these ``parts``."""
        self._position = position
        parts.stopwatch.tell = self._tell
        self.metrics = {"step": float(position.step)}
        self._run.set_status("running", step=position.step)

    def finished(self, metrics: Mapping[str, float]) -> None:
        """An iteration is finished."""
        self.metrics = metrics
        self._run.append_metrics(metrics)
        self._run.set_status("running", step=self._position.step)
        for observer in self._observers:
            observer(metrics)

    def ends(self, stop: StopRequest) -> bool:
        """Training has come to its end, or to a stop; returns whether the run is done."""
        run, step = self._run, self._position.step
        run.ended_early = ends_early(run.config, self._position.carried)
        is_done = step == run.config.steps or run.ended_early is not None
        if is_done:
            run.set_status("done", step=step, reason=run.ended_early)
        else:
            run.set_status("interrupted", step=step, reason=stop.signal.name if stop.signal else "asked to stop")
        return is_done


@contextlib.contextmanager
def recorded(run: RunDir, observer: Observer | None, stop: StopRequest) -> Iterator[Recorder]:
    """What tells of the training of ``run`` inside this context: to ``observer``, health warnings and trackers, too.

    Every status of a training is written here: `running`, and in the end `done`, `interrupted` or `failed` with the
    reason. log.txt gets what is logged. Of a run that another rank writes to, nothing is recorded.
    """
    if isinstance(run, FollowedRun):
        recorder = Recorder(run, observer)
        yield recorder
        recorder.ends(stop)
        return
    before, num_bytes = read_status(run.path), run.metrics_bytes
    with _logged(run) as log:
        try:
            run.set_status("running")
            for warning in startup_warnings(run.config):
                logger.warning(warning)
            with Trackers(run) as trackers:
                watch, doing = Watch(run.config, run.path), getattr(observer, "doing", None)
                recorder = Recorder(run, watch, trackers, observer, tell=doing)
                yield recorder
                is_done = recorder.ends(stop)
            if run.ended_early:
                logger.info("%s", run.ended_early)
        except (KeyboardInterrupt, SystemExit) as error:
            with contextlib.suppress(OSError):  # a full disk must not hide why the run ended
                run.set_status("interrupted", reason=type(error).__name__)
            raise
        except Exception as error:
            log_only(log, "the run ended with an error", error=error)  # the caller prints the error
            reason = str(error) if isinstance(error, QuatroError) else f"{type(error).__name__}: {error}"
            # A refused resume has changed nothing: the run keeps its status.
            is_refused = isinstance(error, UsageError | DataError | MissingError) and run.metrics_bytes == num_bytes
            with contextlib.suppress(OSError):
                if is_refused and before.get("status") in ("done", "interrupted"):
                    write_json(run.path / "status.json", before)
                else:
                    run.set_status("failed", reason=reason)
            raise
        run.ending = ending(run.path) if is_done else []
        for line in run.ending:
            log_only(log, line)


@contextlib.contextmanager
def _logged(run: RunDir) -> Iterator[logging.FileHandler]:
    """The handler that writes log.txt; it gets the same lines whether or not a program has set up logging.

    Where nothing else takes them, warnings go to stderr too, as they would without log.txt.
    """
    handler, level = run.log_handler(), logger.level
    others = [] if logger.hasHandlers() or logging.lastResort is None else [logging.lastResort]
    for one in (handler, *others):
        logger.addHandler(one)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield handler
    finally:
        logger.setLevel(level)
        for one in (handler, *others):
            logger.removeHandler(one)
        handler.close()
