"""What a rank of ZeRO-3 holds when it starts: its shards, and nothing whole."""

from __future__ import annotations

import gc
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quatro.policy.kinds import DeepSpeed
from quatro.processes.world import World

pytestmark = pytest.mark.deepspeed

RANKS = 4
SHARDED = ("policy.kind=deepspeed", "policy.zero_stage=3")


def held_bytes() -> int:
    """Of all tensors that live, each storage once."""
    gc.collect()
    living = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
    living += [one.ds_tensor for one in living if getattr(one, "ds_tensor", None) is not None]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in living}.values())


def start(rank: int, rendezvous: str, config, folder: str) -> None:
    """One rank, until DeepSpeed would begin with its optimiser: what it holds then, and its number of parameters."""
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    torch.distributed.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=RANKS)
    import deepspeed

    before, plain, held = held_bytes(), deepspeed.initialize, []

    def initialize(**options):
        if "optimizer" in options:
            held.append(held_bytes() - before)
        return plain(**options)

    deepspeed.initialize = initialize
    policy = DeepSpeed.open(config, World(rank, RANKS), device=torch.device("cpu"), weights=None)
    numbers = sum(weight.ds_numel for weight in policy.model.parameters())
    Path(folder, f"{rank}.json").write_text(json.dumps([*held, numbers]), encoding="utf-8")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("settings", "bytes_a_parameter"),
    [
        (("dtype=float32", "kl.beta=0"), 4),
        (("dtype=float32", "kl.beta=0.1"), 4 + 4),
        (("dtype=bfloat16", "kl.beta=0.1"), 2 + 2),
        (("dtype=float32", "kl.beta=0", "rollout.engine=transformers"), 4),  # the engine's copy comes with its sync
    ],
)
def test_no_rank_holds_more_than_its_shards(tmp_path, tiny_config, settings, bytes_a_parameter):
    config = tiny_config(*SHARDED, "rollout.engine=vllm", *settings)
    arguments = str(tmp_path / "rendezvous"), config, str(tmp_path)
    torch.multiprocessing.start_processes(start, args=arguments, nprocs=RANKS, start_method="fork")
    for rank in range(RANKS):
        held, numbers = json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8"))
        assert 0.9 * bytes_a_parameter * numbers / RANKS < held < 1.2 * bytes_a_parameter * numbers / RANKS


def test_another_model_as_the_reference_is_in_shards_too(bench, essence):
    """Under ZeRO-3 the same story as in one process, and the same bytes after a stop."""
    other = bench.folder / "other"
    shutil.copytree(bench.model, other)
    moved = {name: 1.05 * value for name, value in load_file(other / "model.safetensors").items()}
    save_file(moved, other / "model.safetensors", metadata={"format": "pt"})
    towards = (f"kl.reference={other}", "kl.beta=0.5")
    bench.run([bench.job("towards", *towards)], size=1)
    jobs = [
        bench.job("towards-3", *SHARDED, *towards),
        bench.job("cut-towards-3", *SHARDED, *towards, stop_after=2),
    ]
    bench.run(jobs, size=2)
    bench.assert_same_story("towards", "towards-3")
    assert bench.rows("towards-3")[0]["kl/reference"] > 0.01
    bench.run([{"path": str(bench.folder / "cut-towards-3"), "resume": True}], size=2)
    assert essence(bench.rows("cut-towards-3")) == essence(bench.rows("towards-3"))
    assert bench.furthest("cut-towards-3", "towards-3") == 0.0
