"""What runs take: bytes on disk, and seconds of an iteration, as in runs of the same kind. Imports no torch."""

from __future__ import annotations

import contextlib
from pathlib import Path

from evals.errors import QuatroError
from evals.training_metrics import last_mean
from quatro.config import Config, load_config
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_environment

# Of a response in a file: its text for each token, and whatever else its row says.
_TOKEN_BYTES, _ROW_BYTES = 4, 250
# An iteration takes the same time in runs that agree on these and on the model.
_ALIKE = ("prompts_per_step", "rollouts_per_prompt", "inner_updates", "policy", "dtype", "audit", "eval")


def rows_bytes(number: int, config: Config) -> int:
    """Of files with ``number`` responses, if all of them have the full length."""
    return number * (_ROW_BYTES + _TOKEN_BYTES * config.rollout.max_new_tokens)


def run_bytes(config: Config, num_trained: float) -> int:
    """Of a run: checkpoints that stay, with weights and both moments of the optimiser in float32, and rollouts."""
    every = config.checkpoint.every
    written = -(-config.steps // every) if every else 1
    checkpoints = int(12 * num_trained) * min(config.checkpoint.num_kept, written)
    number = config.steps * config.prompts_per_step * config.rollouts_per_prompt
    return checkpoints + (rows_bytes(number, config) if config.save_rollouts else 0)


def pace(run: Path) -> float | None:
    """Seconds of an iteration: the mean of the last ones of ``run``; None before the first."""
    return last_mean(list(read_metrics(run)), "perf/step_s")


def pace_beside(run: Path, config: Config, digest: str) -> tuple[float, Path] | None:
    """The pace of ``run``, or of the newest run beside it that trains the model of this ``digest`` in such a batch."""

    def kind(one: Config) -> list[object]:
        return [one.rollout.max_new_tokens, *(getattr(one, key) for key in _ALIKE)]

    others = sorted(run.parent.glob("*/metrics.jsonl"), key=lambda file: -file.stat().st_mtime)
    for path in (run, *(file.parent for file in others)):
        # Another run that cannot be read is none of this one's business.
        with contextlib.suppress(QuatroError, OSError):
            is_same = read_environment(path).get("model_digest") == digest and kind(load_config(path)) == kind(config)
            if is_same and (found := pace(path)) is not None:
                return found, path
    return None
