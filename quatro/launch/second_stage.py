"""A run that begins with the weights of another run: `model` may name a run, or one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

from quatro.config import Config, load_config
from quatro.runs.checkpoint import find_checkpoint, load
from quatro.runs.manifest import MANIFEST

HOW = "to train on from its weights with other settings, name it as the model of a new run"


def begin_with_weights(config: Config) -> tuple[Config, list[str]]:
    """``config`` with the model folder of the run or checkpoint that `model` names, and what to know about it.

    The newest checkpoint of a run counts. Any other model is left as it is.

    Raises:
        DataError: the run has no checkpoint, or a file of it was changed.
    """
    place = Path(config.model)
    if (place / "config.yaml").is_file():
        folder = find_checkpoint(place)
    elif (place / MANIFEST).is_file():
        folder = place
    else:
        return config, []
    found = load(folder)
    notes = [
        f"model: begins with the weights of {folder}; the optimiser and the warm-up begin anew, and the reference of "
        "the KL penalty is that model"
    ]
    run = folder.resolve().parent.parent
    if (run / "config.yaml").is_file():
        before = load_config(run)
        if (before.seed, before.data.prompts) == (config.seed, config.data.prompts):
            notes.append(
                f"seed {config.seed} is that of {run}: the same prompts come in the same order; -s seed=N draws others"
            )
    return config.model_copy(update={"model": str(found.model.resolve())}), notes


def command_for(run: Path | str) -> str:
    """What to type for such a run."""
    return f"quatro train {run}/config.yaml -s model={run} -s optimizer.lr=1e-4 -s seed=1"
