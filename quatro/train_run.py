"""`train_run` trains a run directory from its first status to its last one: `quatro train` calls it."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from evals.errors import DataError, MissingError, QuatroError, UsageError
from evals.files.whole import write_json
from quatro.processes.stop import StopRequest
from quatro.runs.directory import RunDir
from quatro.runs.status import read_status
from quatro.types import Observer

if TYPE_CHECKING:
    from quatro.launch.prepare import Prepared
    from quatro.processes.world import World


def train_run(
    run: RunDir,
    *,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    world: World | None = None,
    prepared: Prepared | None = None,
) -> Mapping[str, float]:
    """Train in ``run`` until all iterations are done or ``stop`` is requested; returns the last metrics.

    Only rank 0 of ``world`` calls it. status.json says `running` with the number of finished iterations, and in the
    end `done`, `interrupted` or `failed` with the reason. log.txt gets what is logged.

    Raises:
        What `quatro.train.train` raises, after it has become the reason in status.json.
    """
    # torch loads here, not with the command line.
    from quatro.launch.health import Watch, startup_warnings
    from quatro.runs.trackers import Trackers, observers
    from quatro.train import train

    stop = stop or StopRequest()  # it also says whether another rank was asked to stop
    logger = logging.getLogger("quatro")
    handler = run.log_handler()
    logger.addHandler(handler)
    before, num_bytes = read_status(run.path), run.metrics_bytes
    try:
        run.set_status("running")
        for warning in startup_warnings(run.config):
            logger.warning(warning)
        with Trackers(run) as trackers:
            observer = observers(
                Watch(run.config, run.path / "rollouts"), partial(_log_evaluation, handler), trackers, observer
            )
            metrics = train(run.config, run, observer=observer, stop=stop, world=world, prepared=prepared)
        step = int(metrics["step"])
        if step == run.config.steps or run.ended_early:
            run.set_status("done", step=step, reason=run.ended_early)
            if run.ended_early:
                logger.warning("%s", run.ended_early)
        else:
            run.set_status("interrupted", step=step, reason=stop.signal.name if stop.signal else "asked to stop")
        return metrics
    except (KeyboardInterrupt, SystemExit) as error:
        with contextlib.suppress(OSError):  # a full disk must not hide why the run ended
            run.set_status("interrupted", reason=type(error).__name__)
        raise
    except Exception as error:
        # For log.txt only: the caller prints the error.
        record = logger.makeRecord(
            logger.name, logging.ERROR, __file__, 0, "the run ended with an error", (), sys.exc_info()
        )
        handler.handle(record)
        reason = str(error) if isinstance(error, QuatroError) else f"{type(error).__name__}: {error}"
        # A refused resume has changed nothing: the run keeps its status.
        is_refused = isinstance(error, UsageError | DataError | MissingError) and run.metrics_bytes == num_bytes
        with contextlib.suppress(OSError):
            if is_refused and before.get("status") in ("done", "interrupted"):
                write_json(run.path / "status.json", before)
            else:
                run.set_status("failed", reason=reason)
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def _log_evaluation(log: logging.Handler, metrics: Mapping[str, float]) -> None:
    """A line for log.txt; the terminal shows evaluations by itself."""
    found = [f"{name} {value:.4g}" for name, value in metrics.items() if name.startswith("eval/")]
    if found:
        text = f"iteration {int(metrics['step'])}: {', '.join(found)}"
        log.handle(logging.LogRecord("quatro", logging.INFO, __file__, 0, text, (), None))
