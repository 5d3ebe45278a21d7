"""What runs take: bytes on disk, and seconds of an iteration, as in runs of the same kind. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from evals.errors import QuatroError
from evals.training_metrics import last_mean
from quatro.config import Config, load_config
from quatro.runs.metrics import read_metrics
from quatro.runs.status import read_environment

# Of a response in a file: its text for each token, and whatever else its row says.
_TOKEN_BYTES, _ROW_BYTES = 4, 250
# Runs that agree on these, and on the model, take the same time for an iteration.
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


def duration(seconds: float) -> str:
    """For a person: `12 minutes`, or `40 s`."""
    return f"{seconds / 60:,.0f} minutes" if seconds >= 100 else f"{seconds:.0f} s"


def pace(run: Path) -> float | None:
    """Seconds of an iteration: the mean of the last ones of ``run``; None before the first."""
    return last_mean(list(read_metrics(run)), "perf/step_s")


def pace_beside(run: Path, config: Config, digest: str) -> tuple[float, Path] | None:
    """The pace of ``run``, or of the newest run beside it that trains the model of this ``digest`` in such a batch."""
    others = sorted(run.parent.glob("*/metrics.jsonl"), key=lambda file: -file.stat().st_mtime)
    for path in (run, *(file.parent for file in others)):
        try:
            is_alike = read_environment(path).get("model_digest") == digest and _kind(load_config(path)) == _kind(
                config
            )
            if is_alike and (found := pace(path)) is not None:
                return found, path
        except (QuatroError, OSError):  # another run that cannot be read is none of this one's business
            continue
    return None


def _kind(config: Config) -> list[object]:
    return [config.rollout.max_new_tokens, *(getattr(config, key) for key in _ALIKE)]
