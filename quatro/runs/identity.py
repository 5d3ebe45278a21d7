"""Whether a run is what it says it is: its configuration, status, metrics and checkpoints against one another.

Whoever reads a run to show or use it calls `read_config` in place of `load_config`, and `load_from` for a checkpoint
of it. What is compared is what the files hold, so a run that was moved or copied is as good as before. At the end: what
a resume asks besides, whether a checkpoint goes on with these settings, and whether anything is left to do.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.belonging import read_or_empty
from evals.files.whole import file_digest
from quatro.config import Config, differing_keys, load_config
from quatro.config.load import lasting_differences, lasting_digest, may_change
from quatro.config.paths import PATHS
from quatro.methods.base import AbsentMethod
from quatro.runs.checkpoint import STATE, Checkpoint, Step, complete_checkpoints, ends_early, find_checkpoint, load
from quatro.runs.directory import step_name, step_number
from quatro.runs.metrics import read_metrics
from quatro.runs.status import is_locked, read_status

logger = logging.getLogger(__name__)

PUT_BACK = "put it back as it was, or begin a new run from config.yaml"
_PUT_BACK_ONE = "one of the two was edited or is of another run: put back what belongs there"


def read_config(run: Path) -> Config:
    """The configuration of ``run``, whose status, newest checkpoint and metrics are those of such a run.

    Of a run that a process is training, and of one without checkpoints, less is compared.

    Raises:
        UsageError: as `load_config`.
        DataError: two of them do not belong together; names the files, what they say, and what to do.
    """
    config, status = load_config(run), read_status(run)
    state = newest_state(run, status)
    refuse_other_config(run, config, state, state.get("checkpoint", ""))
    digest = lasting_digest(config)
    if status.get("run_digest", digest) != digest and not isinstance(config.method, AbsentMethod):
        raise DataError(
            f"{run / 'config.yaml'} and {run / 'status.json'} are not of one run: the configuration has the digest "
            f"{digest}, and run_digest is {status['run_digest']}; {_PUT_BACK_ONE}. "
            f"`quatro doctor {run}` looks at every file"
        )
    try:
        for written in (status, state):
            refuse_changed_metrics(run, written)
    except DataError:
        deque(read_metrics(run), maxlen=0)  # names the line that is damaged, if one is
        raise
    return config


def run_digest(run: Path, config: Config) -> str:
    """What things that are made of ``run`` are marked with: the digest of its settings that it has recorded."""
    return read_status(run).get("run_digest") or lasting_digest(config)


def load_from(run: Path, step: Step | None = None) -> Checkpoint:
    """The newest checkpoint of ``run``, or that of ``step``, verified, and one that this run has written.

    Raises as `find_checkpoint` and `load`, and DataError if the checkpoint is of another run.
    """
    found = load(find_checkpoint(run, step))
    refuse_other_config(run, load_config(run), found.state, found.path.name)
    refuse_changed_metrics(run, found.state)
    return found


def newest_state(run: Path, status: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the newest checkpoint of ``run`` knows of it; empty without one, and while a process may replace it."""
    newest = complete_checkpoints(run)[-1:]
    if not newest or (status.get("status") == "running" and is_locked(run)):
        return {}
    state = read_or_empty(newest[0] / STATE)
    are_blocks = isinstance(state.get("config"), dict) and isinstance(state.get(PATHS, {}), dict)
    is_sound = are_blocks and type(state.get("metrics_bytes", 0)) is int
    return {**state, "checkpoint": newest[0].name} if is_sound else {}


def refuse_other_config(run: Path, config: Config, state: Mapping[str, Any], name: str) -> None:
    """Raises DataError if ``state``, of the checkpoint ``name``, has another configuration than ``config``."""
    if differing := lasting_differences(state["config"], state.get(PATHS, {}), config) if "config" in state else []:
        raise DataError(
            f"{run / 'config.yaml'} is not what {run / 'checkpoints' / name} was trained with: "
            f"{'; '.join(differing)}; {_PUT_BACK_ONE}. `quatro doctor {run}` looks at every file"
        )


def planned_differences(planned: Config, config: Config, *, only_lasting: bool = True) -> list[str]:
    """The keys on which ``config``, of a run, differs from that with which the run was to begin; both as `pinned`.

    A run has numbers for sizes of `auto`, and where a run is named as a model the checkpoint that was its newest or
    best one then. Keys that a resume may change count only without ``only_lasting``.
    """
    for key, name, found in (
        ("model", planned.model, config.model),
        ("kl.reference", planned.kl.reference, config.kl.reference),
    ):
        if _is_checkpoint_of(name, found, may_be_moved=only_lasting):
            planned = planned.with_values({key: found})
    pairs = differing_keys([one.with_sizes(config.sizes) for one in (planned, config)]).items()
    return [f"{key} is {now} there, not {then}" for key, (then, now) in pairs if not (only_lasting and may_change(key))]


def _is_checkpoint_of(name: str | None, model: str | None, *, may_be_moved: bool) -> bool:
    """Whether the folder ``model`` is that of a checkpoint which ``name``, of a run or checkpoint, may mean.

    With ``may_be_moved`` its place does not count.
    """
    checkpoint = Path(model or "").parent
    step = step_number(checkpoint.name)
    if name is None or step is None:
        return False
    run, _, named_step = name.rpartition("@")
    place = Path(run if named_step in ("best", str(step)) else name).resolve()
    if may_be_moved:
        return place.name in (checkpoint.name, checkpoint.absolute().parents[1].name)
    return checkpoint.resolve() in (place, place / "checkpoints" / checkpoint.name)


def missing_rollouts(run: Path, written: Mapping[str, Any]) -> list[str]:
    """The files of rollouts that `RunDir.written` knew at a checkpoint and that are gone."""
    return [name for name in written.get("rollouts_sha256", {}) if not (run / "rollouts" / name).exists()]


def refuse_changed(run: Path, written: Mapping[str, Any]) -> None:
    """Compare metrics.jsonl and the rollouts of a run with what `RunDir.written` was at a checkpoint.

    Rollouts that are gone are named in a warning.

    Raises DataError if rows are gone or changed; the file is named, with both hashes.
    """
    refuse_changed_metrics(run, written)
    gone = missing_rollouts(run, written)
    for name in written.get("rollouts_sha256", {}):
        if name not in gone:
            refuse_changed_rollouts(run / "rollouts" / name, written)
    if gone:
        said = f"the rollouts of {len(gone)} finished iterations are gone, the first are {gone[0]}"
        logger.warning("%s: %s; the run goes on without them", run / "rollouts", said)


def refuse_changed_rollouts(file: Path, written: Mapping[str, Any]) -> None:
    """As `refuse_changed`, of one file of rollouts, which may be newer than ``written``."""
    expected = written.get("rollouts_sha256", {}).get(file.name)
    found = file_digest(file).hexdigest() if file.is_file() else "none, as it is not a plain file"
    if expected not in (None, found):
        raise DataError(
            f"{file} was changed: it has SHA-256 {found}, and {expected} when the run wrote it; {PUT_BACK}, or remove "
            "the file to go on without it"
        )


def refuse_changed_metrics(run: Path, written: Mapping[str, Any]) -> None:
    """As `refuse_changed`, of metrics.jsonl alone."""
    path, num_bytes = run / "metrics.jsonl", written.get("metrics_bytes", 0)
    size = path.stat().st_size if path.is_file() else 0  # a pipe may never end
    if num_bytes > size:
        raise DataError(f"{path} has {size} bytes, but {num_bytes} when the run wrote it: rows are gone; {PUT_BACK}")
    if not path.is_file():
        return
    found = file_digest(path, num_bytes).hexdigest()
    if written.get("metrics_sha256", found) != found:
        raise DataError(
            f"{path} was changed: its first {num_bytes} bytes have SHA-256 {found}, and "
            f"{written['metrics_sha256']} when the run wrote them; {PUT_BACK}"
        )


# ---- what a run may go on from


def why_finished(run: Path, config: Config) -> str:
    """Why a resume of the run in ``run`` has nothing to do: all its iterations are done, or it ends early; else "".

    Raises DataError if checkpoint, metrics or rollouts were changed, or it was made with another configuration.
    """
    status = read_status(run)
    newest = complete_checkpoints(run)[-1:]
    if status.get("status") != "done" or [path.name for path in newest] != [step_name(status.get("step", 0))]:
        return ""
    state = load(newest[0]).state
    early = ends_early(config, state["carried"])
    if state["step"] != config.steps and not early:
        return ""
    refuse_other_settings(run, config, state, newest[0].name)
    refuse_changed(run, state)
    if (run / "metrics.jsonl").stat().st_size != int(state["metrics_bytes"]):
        return ""  # rows are to be cut back
    if state["step"] == config.steps:
        return f"all {config.steps} iterations"
    return f"{early}; -s early_stop.patience=0 goes on to iteration {config.steps}"


def refuse_other_settings(run: Path, config: Config, state: Mapping[str, Any], name: str) -> None:
    """Raises DataError, with the keys, if the checkpoint ``name`` with ``state`` does not go on with ``config``."""
    refuse_other_config(run, config, state, name)
    differing = []
    if config.optimizer.schedule != "constant" and state["config"]["steps"] != config.steps:
        differing.append(f"steps was {state['config']['steps']!r}, is {config.steps!r}")
    if state["step"] > config.steps:
        differing.append(f"{state['step']} iterations are finished, and steps is {config.steps}")
    refuse_differing(name, differing)


def refuse_differing(name: str, differing: Sequence[str]) -> None:
    """Raises DataError if something differs between checkpoint ``name`` and the run that goes on from it."""
    if differing:
        raise DataError(
            f"{name} cannot be continued: {'; '.join(differing)}. Undo the change, or begin a new run from config.yaml"
        )
