"""A run that begins with the weights of another run: `model` may name a run, or one of its checkpoints."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from evals.errors import QuatroError
from quatro.config import Config, load_config
from quatro.runs.checkpoint import MANIFEST, load, run_and_step
from quatro.runs.directory import step_number
from quatro.runs.identity import load_from

logger = logging.getLogger(__name__)

HOW = "to train on from its weights with other settings, name it (or RUN@best, RUN@STEP) as the model of a new run"


def begin_with_weights(config: Config) -> tuple[Config, list[str]]:
    """``config`` with the model folders of the runs or checkpoints that it names, and what to know about them.

    `model` and `kl.reference` name a run (its newest checkpoint counts), RUN@STEP, RUN@best, or the folder of a
    checkpoint. Any other model is left as it is.

    Raises:
        DataError: the run has no checkpoint, or a file of it was changed or is of another run.
        UsageError: the run has no checkpoint of that step, or keeps no best one.
    """
    notes = []
    if config.kl.reference is not None:
        reference, _ = _weights_of(config.kl.reference)
        notes.append(f"kl.reference: the KL penalty is towards {config.kl.reference}")
        config = config.model_copy(update={"kl": config.kl.model_copy(update={"reference": reference})})
    name, folder = _weights_of(config.model)
    if folder is None:
        return config, notes
    same = ", and the reference of the KL penalty is that model (kl.reference names another)"
    towards = same if config.kl.reference is None and config.kl.beta else ""
    notes = [
        f"model: begins with the weights of {folder}; the optimiser and the warm-up begin anew{towards}",
        *notes,
    ]
    run = folder.resolve().parent.parent
    if (run / "config.yaml").is_file():
        before = load_config(run)
        if (before.seed, before.data.prompts) == (config.seed, config.data.prompts):
            notes.append(
                f"seed {config.seed} is that of {run}: the same prompts come in the same order; -s seed=N draws others"
            )
    return config.model_copy(update={"model": name}), notes


def as_begun(config: Config, own: Config) -> Config:
    """``config`` with the model folders that ``own``, a run begun with it before, took from the runs that it names.

    A run that is named may have been trained on since, or be gone: the run that began with its weights goes on with
    its own, and a warning says so where the two differ.

    Raises: as `begin_with_weights`, where a name means something else than before.
    """
    reference = config.kl.reference
    if reference is not None and _meant(reference, own.kl.reference):
        reference = own.kl.reference
    model = own.model if _meant(config.model, own.model) else config.model
    kl = config.kl.model_copy(update={"reference": reference})
    return begin_with_weights(config.model_copy(update={"model": model, "kl": kl}))[0]


def _meant(name: str, folder: str | None) -> bool:
    """Whether ``folder`` is the model of a checkpoint that ``name`` means, or meant when it was the newest or best."""
    checkpoint = Path(folder or "").parent
    run, _, step = name.rpartition("@")
    is_any = checkpoint.parent == Path(name).resolve() / "checkpoints"
    is_of_run = bool(run) and checkpoint.parent == Path(run).resolve() / "checkpoints"
    if not is_any and not (is_of_run and step in ("best", str(step_number(checkpoint.name)))):
        return False
    with contextlib.suppress(QuatroError):  # the run is gone, or has no such checkpoint any more
        if (now := _weights_of(name)[0]) not in (name, folder):
            logger.warning("the run began with %s and goes on with it; %s is %s by now", folder, name, now)
    return True


def _weights_of(name: str) -> tuple[str, Path | None]:
    """The model folder of the checkpoint that ``name`` names, and the checkpoint; ``name`` and None for others."""
    place = Path(name)
    if (place / "config.yaml").is_file():
        found = load_from(place)
    elif (place / MANIFEST).is_file():
        found = load(place)
    elif (named := run_and_step(name)) is not None:
        found = load_from(*named)
    else:
        return name, None
    return str(found.model.resolve()), found.path


def command_for(run: Path | str) -> str:
    """What to type for such a run."""
    return f"quatro train {run}/config.yaml -s model={run} -s optimizer.lr=1e-4 -s seed=1"
