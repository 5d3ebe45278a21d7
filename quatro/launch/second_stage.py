"""A run that begins with the weights of another run: `model` may name a run, or one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

from evals.errors import UsageError
from quatro.config import Config, load_config
from quatro.runs.checkpoint import find_checkpoint, load
from quatro.runs.manifest import MANIFEST

HOW = "to train on from its weights with other settings, name it (or RUN@best, RUN@STEP) as the model of a new run"


def begin_with_weights(config: Config) -> tuple[Config, list[str]]:
    """``config`` with the model folders of the runs or checkpoints that it names, and what to know about them.

    `model` and `kl.reference` name a run (its newest checkpoint counts), RUN@STEP, RUN@best, or the folder of a
    checkpoint. Any other model is left as it is.

    Raises:
        DataError: the run has no checkpoint, or a file of it was changed.
        UsageError: the run has no checkpoint of that step, or keeps no best one.
    """
    notes = []
    if config.kl.reference is not None:
        reference = _weights_of(config.kl.reference)[0]
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


def _weights_of(name: str) -> tuple[str, Path | None]:
    """The model folder of the checkpoint that ``name`` names, and the checkpoint; ``name`` and None for others."""
    place, (run, _, step) = Path(name), name.rpartition("@")
    if (place / "config.yaml").is_file():
        folder = find_checkpoint(place)
    elif (place / MANIFEST).is_file():
        folder = place
    elif run and (Path(run) / "config.yaml").is_file():
        if step != "best" and not (step.isascii() and step.isdigit()):
            raise UsageError(f"{name}: found {step!a} behind @, expected an iteration or best, such as {run}@best")
        folder = find_checkpoint(Path(run), "best" if step == "best" else int(step))
    else:
        return name, None
    return str(load(folder).model.resolve()), folder


def command_for(run: Path | str) -> str:
    """What to type for such a run."""
    return f"quatro train {run}/config.yaml -s model={run} -s optimizer.lr=1e-4 -s seed=1"
