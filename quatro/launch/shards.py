"""Checkpoints of several ranks: rank 0 writes the model and its own state, every rank its shard of the optimiser.

    checkpoints/step-000100/  model/...  state.json  tensors.safetensors  ranks/rank-00001.safetensors  manifest.json

The manifest, written last and by rank 0, covers the shards too. All ranks must see one file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import DataError
from quatro.runs import checkpoint
from quatro.runs.directory import RunDir

if TYPE_CHECKING:
    from torch import Tensor

    from quatro.policy.base import Policy
    from quatro.processes.world import World

FOLDER = "ranks"


def save(
    run: RunDir,
    step: int,
    policy: Policy,
    tokenizer: Any,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    is_inside: bool = False,
) -> Path:
    """`checkpoint.save` by rank 0, to which the other ranks add their shards; all ranks call it.

    Raises:
        As `checkpoint.save`.
    """
    world = policy.world

    def write(folder: Path) -> None:
        folder = Path(world.from_first(lambda: str(folder), "the folder of the checkpoint"))
        policy.save_model(folder, tokenizer)
        if policy.is_sharded and not world.is_first:
            checkpoint.refuse_non_finite(tensors)
            (folder.parent / FOLDER).mkdir(exist_ok=True)
            checkpoint.write_tensors(folder.parent / FOLDER / _name(world.rank), tensors)
        world.barrier("all shards of the checkpoint")

    if world.is_first:
        path = checkpoint.save(run, step, write, state, tensors, is_inside=is_inside)
    else:
        write(Path())
    return Path(world.from_first(lambda: str(path), "the end of the checkpoint"))


def load_newest(run: RunDir, world: World) -> checkpoint.Checkpoint | None:
    """`checkpoint.load_newest` for all ranks; only rank 0 verifies the checkpoint."""
    found: checkpoint.Checkpoint | None = world.from_first(
        lambda: checkpoint.load_newest(run), "the verified checkpoint"
    )
    return found


def tensors(found: checkpoint.Checkpoint, policy: Policy) -> dict[str, Tensor]:
    """The tensors that this rank saved in ``found``, on the CPU.

    Raises:
        DataError: another number of ranks saved the optimiser's shards.
    """
    world, then = policy.world, int(found.state.get("ranks", 1))
    if policy.is_sharded and then != world.size:
        raise DataError(
            f"{found.path.name} holds the optimiser in shards of {then} rank{'s' if then > 1 else ''}, and now there "
            f"{'are' if world.size > 1 else 'is'} {world.size}; start {then} processes to go on with it. Its weights "
            f"are whole: `quatro export {found.path.parent.parent} -o FOLDER` writes them for a run of any size"
        )
    if not policy.is_sharded or world.is_first:
        return found.tensors()
    from safetensors.torch import load_file

    return load_file(found.path / FOLDER / _name(world.rank))


def _name(rank: int) -> str:
    return f"rank-{rank:05d}.safetensors"
