"""Whether a run is finished, whether it can be resumed, and whether every file of it is whole. Nothing is changed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evals.errors import DataError, QuatroError
from evals.files.strict_json import parse_row, read_document, read_lines
from evals.results.document import read_result
from evals.samples.about import refuse_misplaced
from quatro.config import load_config
from quatro.runs import identity
from quatro.runs.checkpoint import MANIFEST, STATE, complete_checkpoints, is_whole, load, lost_newest
from quatro.runs.directory import folder_bytes, require_run, step_number
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_status
from quatro.runs.views.summary import RunSummary, describe_or_unreadable

Look = Callable[[], str]
_FAULTS = (QuatroError, OSError, KeyError, TypeError, AttributeError)  # the last three: JSON of another form


@dataclass(frozen=True)
class Part:
    """A file or folder of a run, by its path inside; ``detail`` says what it holds or what is wrong."""

    name: str
    is_whole: bool
    detail: str


@dataclass(frozen=True)
class Examined:
    """``status`` is `RunSummary.status`; ``resume`` says what a resume would do, or what is in its way.

    ``reason`` says why it ended, if it did not come to its end; log.txt has the traceback.
    """

    status: str
    is_finished: bool
    is_resumable: bool
    resume: str
    reason: str | None
    parts: tuple[Part, ...]

    @property
    def damaged(self) -> list[Part]:
        return [part for part in self.parts if not part.is_whole]


def examine(run: Path, tell: Callable[[int, int, str], None] = lambda number, count, name: None) -> Examined:
    """Read all of ``run``: checkpoints against their manifests, metrics and rollouts against the newest checkpoint.

    ``tell`` is called with the number of parts read, the number of all parts, and the name of the next one.

    Raises UsageError if no run is there, and DataError if something in it is neither a file nor a folder.
    """
    require_run(run)
    for path in sorted(run.rglob("*")):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(f"{path} is a pipe, socket or device, and reading it may never end; remove it")
    looks = _looks(run)
    parts = []
    for number, (name, look) in enumerate(looks):
        tell(number, len(looks), name)
        try:
            parts.append(Part(name, True, look()))
        except _FAULTS as error:
            parts.append(Part(name, False, _said(error)))
    summary = describe_or_unreadable(run)
    is_resumable, resume = _resume(summary)
    return Examined(summary.status, summary.status == "done", is_resumable, resume, summary.reason, tuple(parts))


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, QuatroError) else repr(error)


def _looks(run: Path) -> list[tuple[str, Look]]:
    """The name of every part, and how to look at it."""
    checkpoints = [path for path in sorted(run.glob("checkpoints/step-*")) if step_number(path.name) is not None]
    files = [path for folder in ("samples", "graded", "results") for path in sorted((run / folder).rglob("*.json*"))]
    return [
        ("config.yaml", partial(_config, run)),
        *((name, partial(_document, run / name)) for name in ("environment.json", "status.json")),
        ("metrics.jsonl", partial(_metrics, run)),
        *((_name(run, path), partial(_checkpoint, run, path)) for path in checkpoints),
        ("checkpoints/latest", partial(_latest, run)),
        *((f"{_name(run, path)}: the run's files", partial(_vouched, run, path)) for path in _newest(run)),
        ("rollouts", partial(_rollouts, run / "rollouts")),
        *((_name(run, path), partial(_document, path)) for path in files if not path.name.startswith(".")),
    ]


def _name(run: Path, path: Path) -> str:
    return path.relative_to(run).as_posix()


def _newest(run: Path) -> list[Path]:
    return complete_checkpoints(run)[-1:]


def _config(run: Path) -> str:
    config = identity.read_config(run)
    return f"{config.model}, {config.steps} iterations"


def _document(path: Path) -> str:
    if path.suffix != ".json":
        refuse_misplaced(path)
        return f"{_num_rows(path)} rows"
    found = read_document(path)
    if "rows" in found:
        read_result(path)
    return f"{len(found)} entries"


def _metrics(run: Path) -> str:
    path, last = run / "metrics.jsonl", 0
    if not path.exists():
        raise DataError(f"{path} is missing")
    for row in read_metrics(run):
        step = int(row["step"])
        if step != last + 1:
            raise DataError(f"{path}: the row of iteration {step} follows that of {last}")
        last = step
    return f"{last} iterations"


def _checkpoint(run: Path, path: Path) -> str:
    if not is_whole(path):
        raise DataError(f"{path} has lost its {MANIFEST}: a resume goes on without it")
    identity.refuse_other_config(run, load_config(run), load(path).state, path.name)
    return f"{folder_bytes(path) / 2**20:.1f} MiB, as its manifest says"


def _latest(run: Path) -> str:
    """That the newest checkpoint which the run has written is there."""
    if (lost := lost_newest(run)) is not None:
        raise DataError(f"it names {lost}, which is gone or incomplete: what was trained since the one before is lost")
    status, newest = read_status(run), _newest(run)
    step = step_number(newest[0].name) if newest else None
    if status.get("status") == "done" and step != status.get("step"):
        raise DataError(f"the run is done, and the checkpoint of its last iteration, {status.get('step')}, is gone")
    return newest[0].name if newest else "none yet"


def _vouched(run: Path, newest: Path) -> str:
    """What the newest checkpoint knows of metrics and rollouts."""
    state = read_document(newest / STATE)
    identity.refuse_changed(run, state)
    if gone := identity.missing_rollouts(run, state):
        raise DataError(f"{len(gone)} files of rollouts are gone, the first is rollouts/{gone[0]}")
    return f"the metrics and {len(state.get('rollouts_sha256', {}))} files of rollouts are as they were written"


def _rollouts(folder: Path) -> str:
    files = sorted(folder.glob("step-*.jsonl"))
    return f"{len(files)} files, {sum(map(_num_rows, files))} rows"


def _num_rows(path: Path) -> int:
    """Of a table that another process may be writing: the last line may be unfinished."""
    return sum(
        parse_row(line, f"{path}:{number}", may_be_torn=not is_ended) is not None
        for number, line, is_ended in read_lines(path)
    )


def _resume(run: RunSummary) -> tuple[bool, str]:
    """Whether a resume would work, and what it would do."""
    command = f"`quatro train {run.path} --resume`"
    reasons = {"unreadable": f"no: {run.reason}", "running": "no: a process is training it at this moment"}
    if run.status in reasons or run.config is None:
        return False, reasons[run.status]
    newest = _newest(run.path)
    if not newest:
        return True, f"yes, from the beginning: no checkpoint was written yet; {command}"
    try:
        if why := identity.why_finished(run.path, run.config):
            return False, f"nothing to do: {why}"
        found = load(newest[0])
        identity.refuse_other_settings(run.path, run.config, found.state, newest[0].name)
        identity.refuse_changed(run.path, found.state)
    except _FAULTS as error:
        return False, f"no: {_said(error)}"
    return True, f"yes, from {newest[0].name}, with {run.config.steps - found.step} iterations left; {command}"
