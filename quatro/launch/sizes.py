"""Numbers in place of `auto`: once, when a run is made, from the memory that the device has in all, used or free.

The run's config.yaml keeps the numbers, and a resumed run reads them there, whatever the device then has.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from evals.text import size_text
from quatro.config import Config, leaves
from quatro.config.sizes import CPU_SIZES, SIZE_KEYS, Sizes
from quatro.launch.dry_run import longest_row, predict_memory
from quatro.launch.prepare import Prepared
from quatro.policy.device import total_bytes
from quatro.policy.footprint import FLOAT32_BYTES, cache_token_bytes, footprint
from quatro.processes.world import World
from quatro.registry import ENGINES
from quatro.rollout.prompts import PromptSet

if TYPE_CHECKING:
    import torch

# Of a GPU's memory the estimate may use this share; the rest is for CUDA, fragmentation and what the estimate leaves
# out. Sampling divides what the model leaves of it: half for the KV cache, half for prompts on their way through the
# model and for copies of slots.
USED_SHARE = Fraction(9, 10)
CACHE_SHARE = Fraction(1, 2)
# Logits of the rows that are drawn at once may take this share.
LOGITS_SHARE = Fraction(1, 16)
# Powers of two between these bounds: a little more or less memory changes nothing.
FEWEST = Sizes(microbatch_tokens=1 << 10, rows_at_once=1 << 6, cache_tokens=1 << 12)
MOST = Sizes(microbatch_tokens=1 << 15, rows_at_once=1 << 13, cache_tokens=1 << 22)


def fix_sizes(prepared: Prepared, world: World | None = None) -> None:
    """Numbers take the place of `auto` in ``prepared.config``: rank 0's, for the smallest memory of any rank."""
    world, config = world or World(), prepared.config
    if config.with_sizes(CPU_SIZES) == config:
        return
    smallest = -world.largest(-(total_bytes(prepared.device) or 0))
    sizes = world.from_first(lambda: _sizes(prepared, smallest or None), "the sizes of the run")
    prepared.config = config.with_sizes(sizes)
    given = dict(leaves(config.model_dump()))
    chosen = ", ".join(f"{key}={size}" for key, size in zip(SIZE_KEYS, sizes, strict=True) if given[key] == "auto")
    source = f"for {size_text(smallest)} of GPU memory" if smallest else "as on every CPU"
    prepared.sizes_note = f"in place of auto, {source}: {chosen}"


def _sizes(prepared: Prepared, device_bytes: int | None) -> Sizes:
    if device_bytes is None:
        return CPU_SIZES
    num_parameters, num_trained = prepared.num_parameters
    return gpu_sizes(
        prepared.config,
        prepared.shape.config,
        num_parameters,
        prepared.prompts,
        prepared.launch.size,
        num_trained=num_trained,
        device=prepared.device,
        device_bytes=device_bytes - prepared.reward.device_bytes(prepared.device.type),
    )


def gpu_sizes(
    config: Config,
    shape: Any,
    num_parameters: int,
    prompts: PromptSet,
    num_ranks: int = 1,
    *,
    num_trained: int | None = None,
    device: torch.device,
    device_bytes: int,
) -> Sizes:
    """What fits into ``device_bytes`` of a GPU by the estimate of the dry run, in powers of two."""
    memory = predict_memory(config, shape, num_parameters, prompts, num_ranks, num_trained=num_trained, device=device)
    room = int(USED_SHARE * device_bytes) - memory.always
    response_share = Fraction(config.rollout.max_new_tokens, longest_row(config, prompts))
    fitting = Sizes(
        footprint(config, shape, device).fitting_tokens(room - memory.gradients, response_share),
        int(LOGITS_SHARE * device_bytes) // (FLOAT32_BYTES * shape.vocab_size),
        int(CACHE_SHARE * room) // cache_token_bytes(config, shape),
    )
    if not ENGINES[config.rollout.engine].shares_weights:  # it has memory and limits of its own
        fitting = fitting._replace(rows_at_once=CPU_SIZES.rows_at_once, cache_tokens=CPU_SIZES.cache_tokens)
    return Sizes(*(_power_of_two(*bounds) for bounds in zip(fitting, FEWEST, MOST, strict=True)))


def _power_of_two(number: int, fewest: int, most: int) -> int:
    """The largest power of two up to ``number``, within the bounds."""
    return max(fewest, min(most, 1 << (max(1, number).bit_length() - 1)))
