"""One process or two: the same optimiser step, for every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from quatro.config import load_config
from quatro.loop.objective import make_objective
from quatro.methods import METHODS
from quatro.policy.loading import load_model
from quatro.policy.local import LocalPolicy
from quatro.processes.world import World


def stepped_weights(rows: Any, config: Any, world: World) -> torch.Tensor:
    """Weights after one plain gradient step on ``rows``: Adam would hide a gradient of the wrong scale."""
    policy = LocalPolicy(load_model(config.model, torch.float32, "cpu"), config, world=world)
    policy.optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    policy.schedule = torch.optim.lr_scheduler.LambdaLR(policy.optimizer, lambda step: 1.0)
    policy.max_grad_norm = 1e9
    policy.update(rows, make_objective(config), use_own_logp=False, need_entropy=False)
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def work(rank: int, rendezvous: str, rows: Any, configs: list[Any], out: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    # Unequal shares: ragged rows 0-3 here, 4-11 there.
    own = rows.select(torch.arange(4) if rank == 0 else torch.arange(4, 12))
    found = [stepped_weights(own, config, World(rank, 2)) for config in configs]
    if rank == 0:
        torch.save(found, out)
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_take_the_step_of_one(tmp_path: Path, tiny_folder: Path, ragged_rows: Any) -> None:
    configs = [
        load_config(
            "quickstart",
            overrides=[f"model={tiny_folder}", "entropy_coefficient=0.01", "kl.beta=0.1", "microbatch_tokens=40"],
            method=name,
        )
        for name in METHODS
    ]
    torch.multiprocessing.spawn(
        work, args=(str(tmp_path / "rendezvous"), ragged_rows, configs, str(tmp_path / "weights.pt")), nprocs=2
    )
    both = torch.load(tmp_path / "weights.pt", weights_only=True)
    before = torch.cat([p.flatten() for p in load_model(str(tiny_folder), torch.float32, "cpu").parameters()])
    for name, config, two in zip(METHODS, configs, both, strict=True):
        one = stepped_weights(ragged_rows, config, World())
        moved = (one - before).norm()
        assert moved > 1e-3, name
        assert (two - one).norm() < 1e-5 * moved, name
