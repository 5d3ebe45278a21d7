"""One process or two: the same optimiser step, for every method."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch

from quatro.config import load_config
from quatro.loop.learn import make_objective
from quatro.policy.loading import load_model
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.world import World
from quatro.registry import METHODS


class PlainPolicy(LocalPolicy):
    lr = 1.0


def stepped_weights(rows: Any, config: Any, world: World) -> torch.Tensor:
    """Weights after one plain gradient step on ``rows``: Adam would hide a gradient of the wrong scale."""
    policy = PlainPolicy(load_model(config.model, torch.float32, "cpu"), config, world=world)
    policy.optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
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


# The parameters that a rank's loss reaches in each of two steps. The third has none in the second step, on any rank;
# then Adam would still move it by its momentum.
USED = {0: ((0, 1, 2), (0, 1)), 1: ((1, 2, 3), (1, 3))}


def sparse_steps(policy: LocalPolicy, ranks: tuple[int, ...]) -> torch.Tensor:
    """The trained weights after two steps of losses that reach some of the parameters only."""
    for step in range(2):
        for rank in ranks:
            loss = sum((policy.trained[number].square().sum() for number in USED[rank][step]), torch.zeros(()))
            policy._backward((rank + 1) * loss)
        *_, is_applied = policy.take_step(torch.zeros(()))
        assert is_applied
    return torch.cat([parameter.detach().flatten() for parameter in policy.trained])


def sparse_work(rank: int, rendezvous: str, policy: LocalPolicy, out: str) -> None:
    torch.set_num_threads(1)  # those of the parent did not come along
    at_most = timedelta(seconds=20)
    torch.distributed.init_process_group("gloo", f"file://{rendezvous}", at_most, rank=rank, world_size=2)
    policy.world = World(rank, 2)
    found = sparse_steps(policy, (rank,))
    torch.save(found, f"{out}-{rank}")
    torch.distributed.destroy_process_group()


def test_a_parameter_without_a_gradient_on_one_rank_takes_the_step_of_one(tmp_path, tiny_config):
    config = tiny_config("optimizer.weight_decay=0.1", "kl.beta=0")
    one, two = (LocalPolicy(load_model(config.model, torch.float32, "cpu"), config) for _ in range(2))
    expected = sparse_steps(one, (0, 1))
    arguments = str(tmp_path / "rendezvous"), two, str(tmp_path / "weights")
    torch.multiprocessing.start_processes(sparse_work, args=arguments, nprocs=2, start_method="fork")
    for rank in range(2):
        torch.testing.assert_close(torch.load(f"{tmp_path}/weights-{rank}", weights_only=True), expected)


@pytest.mark.slow
def test_two_ranks_take_the_step_of_one(tmp_path, tiny_folder, ragged_rows):
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
