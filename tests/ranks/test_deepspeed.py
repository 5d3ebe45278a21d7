"""ZeRO-1, 2 and 3 on a CPU: the weights of one process, sharded checkpoints, one end for all ranks."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time

import pytest
import torch
from safetensors.torch import load_file

from quatro.config import Config
from quatro.policy.deepspeed import DeepSpeedPolicy
from quatro.policy.loading import load_model
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.world import World

pytestmark = pytest.mark.deepspeed

SHARDED = "policy.kind=deepspeed"
STAGES = (1, 2, 3)
METHODS = ("quatro", "gspo", "dapo", "gpg")
BFLOAT16 = ("dtype=bfloat16", "optimizer.lr=1e-4")
SKIP = ("steps=2", "on_nonfinite=skip")
LORA = ("policy.lora.rank=4",)
FLAT = ("steps=2", "reward=digit_reward:one", "kl.beta=0")


def stage(number: int) -> list[str]:
    return [SHARDED, f"policy.zero_stage={number}"]


@pytest.fixture(scope="module")
def trained(bench):
    """One process as it is and under ZeRO-2; two under every stage, in bfloat16, and cut after two iterations."""
    bench.run(
        [
            *(bench.job(method, method=method) for method in METHODS),
            bench.job("quatro-alone", *stage(2)),
            bench.job("bfloat16", *BFLOAT16),
            bench.job("lora", *LORA),
        ],
        size=1,
    )
    # Stage 3 last: in a process where it has run, DeepSpeed's own linear layer takes the place of torch's.
    jobs = [
        bench.job("checkpointed-2", *stage(2), "policy.gradient_checkpointing=true"),
        bench.job("offloaded-2", *stage(2), "policy.offload_optimizer=true"),
    ]
    for n in STAGES:
        jobs += [
            *(bench.job(f"{method}-{n}", *stage(n), method=method) for method in METHODS),
            bench.job(f"bfloat16-{n}", *stage(n), *BFLOAT16),
            bench.job(f"cut-bfloat16-{n}", *stage(n), *BFLOAT16, stop_after=2),
            bench.job(f"nan-{n}", *stage(n), *SKIP, method="poison:Poison"),
            bench.job(f"flat-{n}", *stage(n), *FLAT),
            bench.job(f"cut-{n}", *stage(n), stop_after=2),
            bench.job(f"inside-{n}", *stage(n), stop_in={"rank": 1, "call": "update", "count": 6}),
            bench.job(f"lora-{n}", *stage(n), *LORA),
            bench.job(f"cut-lora-{n}", *stage(n), *LORA, stop_after=2),
        ]
    jobs.insert(0, bench.job("lora-bfloat16-2", *stage(2), *LORA, "dtype=bfloat16"))
    bench.run([*jobs, bench.job("checkpointed-3", *stage(3), "policy.gradient_checkpointing=true")], size=2)
    return bench


@pytest.mark.parametrize("number", STAGES)
@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_tell_the_story_of_one_process(trained, method, number):
    trained.assert_same_story(method, f"{method}-{number}")


@pytest.mark.parametrize("other", ["quatro-alone", "checkpointed-2", "checkpointed-3", "offloaded-2"])
def test_other_ways_to_hold_the_policy_tell_it_too(trained, other):
    trained.assert_same_story("quatro", other)


@pytest.mark.parametrize("number", STAGES)
def test_an_adapter_tells_the_story_of_one_process(trained, number):
    """Its reference is the same shards with the adapter switched off, its engine (stage 3) is sent merged weights."""
    trained.assert_same_story("lora", f"lora-{number}")
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in trained.weights(f"lora-{number}"))
    assert all(row["kl/reference"] > 0 for row in trained.rows(f"lora-{number}")[1:])


def test_an_adapter_in_bfloat16_has_float32_masters(trained):
    rows = trained.rows("lora-bfloat16-2")
    assert all(row["optimizer_steps"] == 4 and row["grad/norm"] > 0 for row in rows)
    masters = load_file(trained.folder / "lora-bfloat16-2" / "checkpoints/step-000003/tensors.safetensors")
    assert any((value != value.bfloat16().float()).any() for name, value in masters.items() if name.endswith("/master"))
    whole = load_file(trained.folder / "bfloat16-2" / "checkpoints/step-000003/tensors.safetensors")
    num_trained, num_whole = (
        sum(value.numel() for name, value in shard.items() if name.endswith("/master")) for shard in (masters, whole)
    )
    assert num_trained < num_whole / 2


@pytest.mark.parametrize("number", STAGES)
def test_bfloat16_learns_and_is_finite(trained, number):
    rows, plain = trained.rows(f"bfloat16-{number}"), trained.rows("bfloat16")
    assert all(row["optimizer_steps"] == 4 for row in rows)
    assert all(math.isfinite(row["grad/norm"]) and row["grad/norm"] > 0 for row in rows)
    assert rows[0]["log_ratio/before_max"] == 0.0
    assert rows[0]["kl/reference"] == 0.0  # policy and reference are the same model yet, to the last bit of a buffer
    assert rows[0]["entropy/token_mean"] == pytest.approx(plain[0]["entropy/token_mean"], abs=0.05)
    # float32 masters: with bfloat16's 8 bits a step of 1e-4 would be lost in most weights.
    masters = load_file(trained.folder / f"bfloat16-{number}" / "checkpoints/step-000003/tensors.safetensors")
    assert all(value.dtype.is_floating_point for name, value in masters.items() if name.endswith("/master"))
    assert any((value != value.bfloat16().float()).any() for name, value in masters.items() if name.endswith("/master"))


def test_the_sampling_copy_is_the_policy_in_bfloat16_too(trained):
    two, three = trained.rows("bfloat16-2")[0], trained.rows("bfloat16-3")[0]
    assert two["mismatch/dlogp_abs_mean"] > 0
    assert three["mismatch/dlogp_abs_mean"] == pytest.approx(two["mismatch/dlogp_abs_mean"], rel=0.05)


@pytest.mark.parametrize("number", STAGES)
def test_a_step_without_evidence_or_sense_is_not_taken(trained, number):
    assert [row["grad/skipped_steps"] for row in trained.rows(f"nan-{number}")] == [4, 4]
    assert [row["grad/zero_steps"] for row in trained.rows(f"flat-{number}")] == [4, 4]
    for name in ("nan", "flat"):
        trained.assert_nothing_learnt(f"{name}-{number}")


@pytest.mark.parametrize("number", STAGES)
def test_the_saved_model_is_whole_and_plain(trained, number):
    import torch

    from quatro.policy.loading import load_model

    folder = trained.folder / f"quatro-{number}" / "checkpoints" / "step-000003" / "model"
    model = load_model(str(folder), torch.float32, "cpu")
    ids = torch.arange(1, 9)[None]
    with torch.no_grad():
        one = load_model(str(folder).replace(f"quatro-{number}", "quatro"), torch.float32, "cpu")(input_ids=ids).logits
        torch.testing.assert_close(model(input_ids=ids).logits, one, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        *((f"cut-{number}", f"quatro-{number}") for number in STAGES),
        *((f"cut-bfloat16-{number}", f"bfloat16-{number}") for number in STAGES),
        *((f"cut-lora-{number}", f"lora-{number}") for number in STAGES),
    ],
)
def test_sharded_checkpoints_resume_bit_by_bit(trained, essence, cut, whole):
    assert len(trained.rows(cut)) == 2
    trained.run([{"path": str(trained.folder / cut), "resume": True}], size=2)
    assert essence(trained.rows(cut)) == essence(trained.rows(whole))
    assert trained.furthest(cut, whole) == 0.0


@pytest.mark.parametrize("number", STAGES)
def test_a_stop_between_two_optimiser_steps_asked_of_one_rank_changes_nothing(trained, essence, number):
    assert trained.is_inside(f"inside-{number}")
    trained.run([{"path": str(trained.folder / f"inside-{number}"), "resume": True}], size=2)
    assert essence(trained.rows(f"inside-{number}")) == essence(trained.rows(f"quatro-{number}"))
    assert trained.furthest(f"inside-{number}", f"quatro-{number}") == 0.0


def test_a_rank_that_fails_while_weights_are_sent_ends_the_other(trained):
    job = trained.job("unsent", *stage(3), oom_in={"rank": 1, "call": "whole", "count": 30})
    ended = trained.wait(trained.start([job], size=2))
    assert [code for code, _ in ended] == [1, 1]
    assert sum("out of memory" in text for _, text in ended) == 1


def copied(trained, name: str) -> str:
    shutil.copytree(trained.folder / "quatro-2", trained.folder / name)
    file = trained.folder / name / "config.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("steps: 3", "steps: 4"), encoding="utf-8")
    return name


def test_a_flipped_bit_in_a_shard_is_found_before_anything_is_loaded(trained):
    name = copied(trained, "flipped")
    shard = trained.folder / name / "checkpoints/step-000003/ranks/rank-00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-7] ^= 1
    shard.write_bytes(data)
    ended = trained.wait(trained.start([{"path": str(trained.folder / name), "resume": True}], size=2))
    assert [code for code, _ in ended] == [4, 4]
    assert sum("rank-00001.safetensors was changed" in text for _, text in ended) == 1


def test_fault_45_another_number_of_ranks_is_refused_and_the_weights_stay_usable(trained):
    name = copied(trained, "fewer")
    ended = trained.wait(trained.start([{"path": str(trained.folder / name), "resume": True}], size=1))
    assert [code for code, _ in ended] == [4]
    assert "shards of 2 ranks" in ended[0][1]
    assert "quatro export" in ended[0][1]


def test_fault_41_a_killed_rank_ends_the_other(trained):
    job = trained.job("killed", *stage(3), "steps=100000", "eval.every=0")
    ranks = trained.start([job], size=2)
    metrics = trained.folder / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.2)
    ranks[1].send_signal(signal.SIGKILL)
    (code, text), _ = trained.wait(ranks)
    assert code == 1
    assert "another rank is gone" in text
    assert json.loads((trained.folder / "killed" / "status.json").read_text(encoding="utf-8"))["status"] == "failed"


def test_memory_that_runs_out_later_ends_all_ranks_with_advice(bench):
    job = bench.job("oom", *stage(2), oom_in={"rank": 1, "call": "forward", "count": 6})
    ended = bench.wait(bench.start([job], size=2))
    assert {code for code, _ in ended} == {3}
    said = "".join(text for _, text in ended)
    assert "rank 1 ran out of memory with microbatch_tokens=300" in said
    assert "-s microbatch_tokens=150" in said


def take_step(rank: int, rendezvous: str, config: Config, out: str) -> None:
    """One step of a loss that reaches two parameters, of which the other rank's reaches one."""
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    torch.distributed.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=2)
    policy = DeepSpeedPolicy(load_model(config.model, torch.float32, "cpu"), config, world=World(rank, 2))
    policy._backward(sum((policy.trained[number].square().sum() for number in (rank, rank + 1)), torch.zeros(())))
    norm, *_ = policy.take_step(torch.zeros(()))
    torch.save([norm, [parameter.detach() for parameter in policy.trained]], f"{out}-{rank}")
    torch.distributed.destroy_process_group()


def test_a_parameter_without_a_gradient_on_one_rank_takes_the_step_of_one(tmp_path, tiny_config):
    config = tiny_config("kl.beta=0", *stage(1))
    alone = LocalPolicy(load_model(config.model, torch.float32, "cpu"), config)
    (sum(alone.trained[number].square().sum() for number in (0, 1, 1, 2))).backward()
    norm, *_ = alone.take_step(torch.zeros(()))
    arguments = str(tmp_path / "rendezvous"), config, str(tmp_path / "weights")
    torch.multiprocessing.start_processes(take_step, args=arguments, nprocs=2, start_method="fork")
    for rank in range(2):
        found, weights = torch.load(f"{tmp_path}/weights-{rank}", weights_only=True)
        assert found == pytest.approx(norm, rel=1e-5)
        torch.testing.assert_close(weights, [parameter.detach() for parameter in alone.trained])
