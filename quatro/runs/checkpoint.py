"""Checkpoints: written whole or not at all, and refused before anything is loaded if a file was changed.

    checkpoints/step-000100/  model/...  state.json  tensors.safetensors  manifest.json     checkpoints/latest
    checkpoints/step-000100-inside/      stopped inside iteration 101; there until the next iteration is saved

A checkpoint is written under a temporary name; its manifest (size and SHA-256 of every file) comes last, then the
directory gets its name, then `latest` is told. A directory without a manifest is no checkpoint; the run replaces it
when it comes to its iteration again. Nothing is pickled: state is JSON, tensors are safetensors. Both libraries load a
file with a flipped bit without a word, so every file is hashed first.

At the end: the best value of a metric so far, by which a checkpoint is kept and a run may end early.
"""

import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evals.errors import DataError, UsageError
from evals.files.strict_json import read_document
from evals.files.whole import file_digest, fsync_directory, naming, open_like_folder, write_text
from evals.text import visible
from quatro.config import Config, load_config
from quatro.policy.facts import refuse_non_finite
from quatro.runs.directory import INSIDE, RunDir, step_name, step_number
from quatro.types import Tensor

logger = logging.getLogger(__name__)

Step = int | Literal["best"]
STATE, TENSORS, MODEL, MANIFEST = "state.json", "tensors.safetensors", "model", "manifest.json"
_STOPPING = ("bar/", "no_better/")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: ``state`` is what was saved beside the model after ``step`` iterations."""

    path: Path
    step: int
    state: dict[str, Any]

    @property
    def model(self) -> Path:
        """The folder that the writer given to `save` filled."""
        return self.path / MODEL

    @property
    def trained_on(self) -> str | None:
        """The digest of the model that the run began with, where it is known."""
        found: str | None = self.state.get("inputs", {}).get("reference model")
        return found

    @property
    def is_inside(self) -> bool:
        """Whether it was saved inside the iteration after ``step``."""
        return "iteration" in self.state.get("parts", {})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors beside the model, on the CPU.

        Raises DataError if the file holds something else, such as a pickle, and its manifest was written for it.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(self.path / TENSORS)
        except SafetensorError as error:
            raise DataError(f"{self.path / TENSORS} is no safetensors file: {error}") from error


def save(
    run: RunDir,
    step: int,
    writer: Callable[[Path], None],
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    is_inside: bool = False,
) -> Path:
    """Write checkpoints/step-NNNNNN whole or not at all, then remove those that `checkpoint.keep` does not keep.

    ``is_inside``: a part of iteration ``step`` + 1 is done, too; the checkpoint after ``step`` itself stays. ``writer``
    fills the model folder that it is given. ``state`` holds JSON values with text keys and finite numbers.

    Raises:
        DivergedError: a tensor is not finite.
        ValueError: ``state`` holds a number that is not finite.
        OSError: a file cannot be written; it is named, and earlier checkpoints are as they were.
    """
    refuse_non_finite(tensors)
    run.sync()
    folder = run.path / "checkpoints"
    name = step_name(step, is_inside=is_inside)
    partial, final = folder / f".{name}.{os.getpid()}.tmp", folder / name
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / MODEL).mkdir(parents=True)
        with naming(partial / MODEL):
            writer(partial / MODEL)
        write_tensors(partial / TENSORS, tensors)
        write_text(partial / STATE, json.dumps(state, ensure_ascii=False, allow_nan=False) + "\n")
        _sync_tree(partial)
        write_manifest(partial, step)
        aside = _set_aside(final) if final.exists() else None  # the same iteration, saved again
        os.rename(partial, final)
        fsync_directory(folder)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        # Frees a full disk; if even that fails, the next resume names and removes it.
        shutil.rmtree(partial, ignore_errors=True)
        raise
    write_text(folder / "latest", f"{final.name}\n")
    present = complete_checkpoints(run.path)
    between = [path for path in present if not path.name.endswith(INSIDE)]
    keep = run.config.checkpoint.keep
    best = step_name(int(state.get("carried", {}).get(f"best_step/{keep.best}", -1))) if keep.best else None
    old = [path for path in between[: -keep.last] if path.name != best]
    for path in old + [path for path in present if path not in (final, *between)]:
        remove_checkpoint(path)
    return final


def load(path: Path) -> Checkpoint:
    """The checkpoint in the directory ``path``, every file verified.

    Raises DataError, which names the file and both hashes, if one is missing, extra or changed, or it is no checkpoint.
    """
    step = verify(path)
    return Checkpoint(path, step, read_document(path / STATE))


def find_checkpoint(run: Path, step: Step | None = None) -> Path:
    """The newest complete checkpoint of ``run``, or the one after ``step`` iterations; it is not verified here.

    ``best`` is the one that `checkpoint.keep.best` keeps.

    Raises:
        DataError: the run has no checkpoint, or has lost the newest and ``step`` is None.
        UsageError: it has none of that step, or keeps no best one; the message lists the steps that there are.
    """
    present = complete_checkpoints(run)
    if not present:
        raise DataError(f"{run} has no complete checkpoint; `quatro train {run} --resume` goes on with it")
    if step is None and (lost := lost_newest(run)) is not None:
        raise DataError(
            f"{run}: checkpoints/latest names {lost}, which is gone or incomplete; put it back, name another with "
            f"--step ({present[-1].name} is the newest that is there), or train it again: `quatro train {run} --resume`"
        )
    if step is None:
        return present[-1]
    numbers = {step_number(path.name): path for path in present if not path.name.endswith(INSIDE)}
    there = f"it has {', '.join(map(str, numbers)) or 'none between two iterations'}"
    wanted = _best_step(run, present[-1], there) if step == "best" else step
    if wanted not in numbers:
        raise UsageError(f"{run} has no checkpoint of step {wanted}; {there}")
    return numbers[wanted]


def run_and_step(name: str) -> tuple[Path, Step] | None:
    """The run and the step that RUN@STEP or RUN@best names; None for a name of another form.

    Raises UsageError if there is such a run, and what follows @ is no step.
    """
    run, _, step = name.rpartition("@")
    if not run or not (Path(run) / "config.yaml").is_file():
        return None
    if step != "best" and not (step.isascii() and step.isdigit()):
        raise UsageError(f"{name}: found {step!a} behind @, expected an iteration or best, such as {run}@best")
    return Path(run), "best" if step == "best" else int(step)


def _best_step(run: Path, newest: Path, there: str) -> int:
    """The iteration that was the best by `checkpoint.keep.best` when ``newest`` was saved."""
    metric = load_config(run).checkpoint.keep.best
    carried = read_document(newest / STATE).get("carried", {})
    if metric is None or f"best_step/{metric}" not in carried:
        why = "checkpoint.keep.best is null" if metric is None else f"no iteration has measured {metric}"
        raise UsageError(f"{run} keeps no best checkpoint ({why}); {there}")
    return int(carried[f"best_step/{metric}"])


def load_newest(run: Path) -> Checkpoint | None:
    """The newest complete checkpoint of ``run``, or None; one being replaced is put back first. Raises as `load`."""
    for path in (run / "checkpoints").glob(".*.old"):
        original = path.with_name(path.name.removeprefix(".").split(".")[0])
        if is_whole(path) and not original.exists():
            os.rename(path, original)
    found = complete_checkpoints(run)
    return load(found[-1]) if found else None


def tidy(run: Path) -> None:
    """Remove what a killed process left half-written, and log it; a run calls it once it has loaded what it needs."""
    folder = run / "checkpoints"
    if (lost := lost_newest(run)) is not None:
        logger.warning("the newest checkpoint, %s, is gone or incomplete; its iterations are trained again", lost)
    for path in folder.glob(".*.old"):
        shutil.rmtree(path, ignore_errors=True)
    for path in sorted(folder.glob(".*.tmp")):
        logger.warning("%s was not finished when the process ended: removed", path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def complete_checkpoints(run: Path) -> list[Path]:
    """Checkpoint directories with a manifest, oldest first; they are not verified here."""
    folders = [path for path in (run / "checkpoints").glob("step-*") if step_number(path.name) is not None]
    return sorted(filter(is_whole, folders), key=lambda path: (step_number(path.name), path.name))


def lost_newest(run: Path) -> str | None:
    """The checkpoint that checkpoints/latest names, if it is not there, or not complete; else None."""
    try:
        name = (run / "checkpoints" / "latest").read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    return None if name in {path.name for path in complete_checkpoints(run)} else visible(name)


def unfinished_note(found: Checkpoint) -> str | None:
    """A sentence about a checkpoint that a stop made inside an iteration; None for any other."""
    if not found.is_inside:
        return None
    resume = f"`quatro train {found.path.parents[1]} --resume` finishes it"
    return f"checkpoint {found.path.name} was saved inside iteration {found.step + 1}; {resume}"


def checkpoint_steps(run: Path) -> tuple[int, ...]:
    """Iterations of the complete checkpoints, ascending, each once."""
    return tuple(sorted({step for path in complete_checkpoints(run) if (step := step_number(path.name)) is not None}))


def remove_checkpoint(path: Path) -> None:
    """Remove a directory so that a crash in between leaves it whole, or named as rubbish and without a manifest."""
    aside = _set_aside(path)
    (aside / MANIFEST).unlink()
    shutil.rmtree(aside, ignore_errors=True)


def _set_aside(path: Path) -> Path:
    """Under its new name a directory with a manifest still is a checkpoint, until another has taken its place."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    os.rename(path, aside)
    return aside


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file; raises OSError, which names it."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def _sync_tree(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_dir():
            fsync_directory(file)
        else:
            open_like_folder(file)
            with naming(file), file.open("rb+") as stream:
                os.fsync(stream.fileno())


# ---- the manifest: size and SHA-256 of every file, and a hash of its own


def is_whole(path: Path) -> bool:
    """Whether ``path`` is a checkpoint to the end: its manifest is written last."""
    return (path / MANIFEST).is_file()


def write_manifest(path: Path, step: int) -> None:
    """Write the manifest of what is in ``path``, the checkpoint of ``step``."""
    write_text(path / MANIFEST, _text(step, {name: _entry(file) for name, file in _files(path)}))


def verify(path: Path) -> int:
    """The step of the checkpoint in ``path``, after every file was compared with the manifest.

    Raises DataError, which names the file that is missing, extra or changed, with both hashes.
    """
    if not is_whole(path):
        raise DataError(f"{path} is not a complete checkpoint: it has no {MANIFEST}")
    manifest = read_document(path / MANIFEST)
    advice = f"restore it, or remove {path} to use the checkpoint before it"
    try:
        step, files = int(manifest["step"]), {str(name): entry for name, entry in manifest["files"].items()}
        is_own = _text(step, files) == (path / MANIFEST).read_text(encoding="utf-8")
    except (KeyError, TypeError, ValueError, AttributeError):
        is_own = False
    if not is_own:
        raise DataError(f"{path / MANIFEST} was changed: it does not match its own hash; {advice}")
    if step_number(path.name) not in (None, step):
        raise DataError(f"{path} holds the checkpoint of step {step}: the directory was renamed")
    present = dict(_files(path))
    for name in sorted(files.keys() | present.keys()):
        if name not in present:
            raise DataError(f"{path / name} is missing (expected SHA-256 {files[name]['sha256']}); {advice}")
        if name not in files:
            raise DataError(f"{path / name} is extra: the manifest does not have it; remove it")
        found = _entry(present[name])
        if found != files[name]:
            raise DataError(
                f"{path / name} was changed: {found['bytes']} bytes with SHA-256 {found['sha256']}, "
                f"expected {files[name]['bytes']} bytes with {files[name]['sha256']}; {advice}"
            )
    return step


def _text(step: int, files: Mapping[str, Any]) -> str:
    body = {"schema": 1, "step": step, "files": dict(sorted(files.items()))}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode("utf-8")).hexdigest()
    return json.dumps({**body, "sha256": digest}, indent=2) + "\n"


def _entry(file: Path) -> dict[str, Any]:
    if not file.is_file() or file.is_symlink():
        return {"bytes": None, "sha256": "none: not a plain file"}
    return {"bytes": file.stat().st_size, "sha256": file_digest(file).hexdigest()}


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if name != MANIFEST and (file.is_symlink() or not file.is_dir()):
            yield name, file


def bests(config: Config, before: Mapping[str, float], metrics: Mapping[str, float]) -> dict[str, float]:
    """What a run remembers of the metrics that its configuration watches, after an iteration with ``metrics``.

    For each such metric M: `best/M` and the iteration `best_step/M` in which it was. For early stopping besides the
    value `bar/M` that the next improvement must exceed by more than `early_stop.min_delta`, and how many iterations in
    a row since then had the metric and did not (`no_better/M`). It is a part of `Position.carried`.
    """
    found = {name: value for name, value in before.items() if name.startswith(("best/", "best_step/", *_STOPPING))}
    # A dictionary, not a set: the order of the keys is a part of a checkpoint's bytes.
    for name in dict.fromkeys(config.watched.values()):
        value = metrics.get(name, math.nan)
        if not math.isfinite(value):
            continue
        if value > found.get(f"best/{name}", -math.inf):
            found |= {f"best/{name}": value, f"best_step/{name}": metrics["step"]}
        if value > found.get(f"bar/{name}", -math.inf) + config.early_stop.min_delta:
            found |= {f"bar/{name}": value, f"no_better/{name}": 0.0}
        else:
            found[f"no_better/{name}"] = found.get(f"no_better/{name}", 0.0) + 1.0
    return found


def is_best(config: Config, carried: Mapping[str, float], step: int) -> bool:
    """Whether iteration ``step`` was the best by `checkpoint.keep.best`, so that a checkpoint of it is kept."""
    return config.checkpoint.keep.best is not None and carried.get(f"best_step/{config.checkpoint.keep.best}") == step


def ends_early(config: Config, carried: Mapping[str, float]) -> str | None:
    """Why the run ends before its last iteration; None if it goes on."""
    metric, patience = config.early_stop.metric, config.early_stop.patience
    if not patience or carried.get(f"no_better/{metric}", 0.0) < patience:
        return None
    best, step, min_delta = carried[f"best/{metric}"], int(carried[f"best_step/{metric}"]), config.early_stop.min_delta
    since = (
        f"{patience} times in a row it was not more than {min_delta:g} above {carried[f'bar/{metric}']:.4g}"
        if min_delta
        else f"not better {patience} times since"
    )
    return f"early stop: {metric} was best in iteration {step} ({best:.4g}), and {since}"
