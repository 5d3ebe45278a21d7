"""What runs take on disk. Imports no torch."""

from quatro.config import Config

# Of a response in a file: its text for each token, and whatever else its row says.
_TOKEN_BYTES, _ROW_BYTES = 4, 250


def rows_bytes(number: int, config: Config) -> int:
    """Of files with ``number`` responses, if all of them have the full length."""
    return number * (_ROW_BYTES + _TOKEN_BYTES * config.rollout.max_new_tokens)


def run_bytes(config: Config, num_trained: float) -> int:
    """Of a run: checkpoints that stay, with weights and both moments of the optimiser in float32, and rollouts."""
    every = config.checkpoint.every
    written = -(-config.steps // every) if every else 1
    kept = config.checkpoint.keep.last + (config.checkpoint.keep.best is not None)
    checkpoints = int(12 * num_trained) * min(kept, written)
    number = config.steps * config.prompts_per_step * config.rollouts_per_prompt
    return checkpoints + (rows_bytes(number, config) if config.save_rollouts else 0)
