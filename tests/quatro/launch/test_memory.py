"""The estimate of memory, and sizes of `auto`: they are resolved when a run is made, and never again."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

import quatro
from evals.errors import MissingError, UsageError
from quatro.config import config_to_yaml, load_config
from quatro.config.blocks import CPU_SIZES, Sizes
from quatro.launch.begin import prepare
from quatro.launch.describe import FEWEST, MOST, Estimate, Memory, describe, host_notes, notes, with_sizes
from quatro.launch.saving import assemble
from quatro.policy.kinds import ModelSize
from quatro.processes.launcher import Launch
from quatro.processes.world import World
from quatro.registry import POLICIES
from quatro.runs.directory import RunDir
from quatro.train import train
from tests.kit import quatro as quatro_command

GB = 10**9
GPU = torch.device("cuda")  # only named: no device is asked for anything
SMALL = {"hidden": 1536, "mlp": 8960, "heads": 12, "keys": 2, "vocabulary": 151_936}  # Qwen2.5-Math-1.5B
LARGE = {"hidden": 3584, "mlp": 18_944, "heads": 28, "keys": 4, "vocabulary": 152_064}  # and 7B


def qwen(
    *, hidden: int, mlp: int, heads: int, keys: int, vocabulary: int, is_tied: bool
) -> tuple[SimpleNamespace, int]:
    """``(shape, number of parameters)`` of a Qwen2 of 28 layers with heads of 128, from its model card."""
    shape = SimpleNamespace(
        num_hidden_layers=28,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        vocab_size=vocabulary,
    )
    width = 128 * keys
    attention = hidden * hidden + hidden + 2 * (hidden * width + width) + hidden * hidden
    layers = 28 * (attention + 3 * hidden * mlp + 2 * hidden)
    return shape, vocabulary * hidden * (1 if is_tied else 2) + layers + hidden


SHAPE, NUM_PARAMETERS = qwen(**SMALL, is_tied=True)
ENOUGH = ("microbatch_tokens=1000000", "rollout.rows_at_once=1000000", "rollout.cache_tokens=1000000000")


def estimate(config, num_ranks: int = 1) -> Estimate:
    return Estimate(config, SHAPE, NUM_PARAMETERS, NUM_PARAMETERS, 512, GPU, num_ranks)


def sizes(device_bytes: int, *settings: str, num_ranks: int = 1) -> Sizes:
    config = load_config("math-1.5b", overrides=["microbatch_tokens=auto", *settings])
    return estimate(config, num_ranks).sizes(device_bytes)


def needed(found: Sizes) -> tuple[int, int]:
    """Bytes of learning and of sampling with sizes of these, by the estimate of the dry run."""
    config = load_config("math-1.5b", overrides=["microbatch_tokens=auto"]).with_sizes(found)
    memory = estimate(config).memory()
    return memory.learning, memory.sampling


@pytest.mark.parametrize("memory", [48 * GB, 80 * GB])
def test_on_a_gpu_they_are_the_largest_round_numbers_that_fit_by_the_estimate(memory):
    found = sizes(memory)
    assert all(size & (size - 1) == 0 for size in found[:2])
    assert found.cache_tokens % (1 << (found.cache_tokens.bit_length() - 6)) == 0
    learning, sampling = needed(found)
    assert learning <= 0.9 * memory < needed(found._replace(microbatch_tokens=2 * found.microbatch_tokens))[0]
    longest = estimate(load_config("math-1.5b")).longest_row
    assert sampling <= 0.9 * memory < needed(found._replace(cache_tokens=found.cache_tokens * 33 // 32 + longest))[1]
    assert found.rows_at_once * SHAPE.vocab_size * 4 <= memory / 16 < 2 * found.rows_at_once * SHAPE.vocab_size * 4


def test_what_stays_counts_at_every_time_and_the_rest_when_it_is_there():
    memory = Memory(**{field.name: 2**bit for bit, field in enumerate(dataclasses.fields(Memory))})
    stays = memory.weights | memory.optimizer | memory.reference | memory.casts | memory.snapshots | memory.reward
    stays |= memory.kept_gradients
    assert memory.always == stays
    assert memory.sampling == stays | memory.kv_cache | memory.drawing | memory.whole_copy
    assert memory.learning == stays | memory.gradients | memory.activations | memory.logits
    assert memory.total == max(memory.sampling, memory.learning) > min(memory.sampling, memory.learning)
    assert dataclasses.replace(memory, kv_cache=1, drawing=1, whole_copy=0).total == memory.learning


def test_a_little_memory_more_or_less_changes_nothing_and_much_of_it_goes_to_the_bounds():
    assert sizes(85 * GB)[:2] == sizes(84 * GB)[:2] == sizes(86 * GB)[:2] == (8192, 8192)
    assert sizes(85 * GB).cache_tokens == sizes(85 * GB + GB // 10).cache_tokens == 53 << 15
    assert sizes(GB // 100) == FEWEST
    assert sizes(2000 * GB) == MOST
    by_memory = [sizes(memory * GB) for memory in (24, 48, 80, 141)]
    assert all(less[i] <= more[i] for less, more in pairwise(by_memory) for i in range(3))
    assert sizes(80 * GB, "policy.gradient_checkpointing=true").microbatch_tokens == MOST.microbatch_tokens


def test_an_engine_with_memory_of_its_own_has_the_constants():
    found = sizes(80 * GB, "rollout.engine=vllm")
    assert found == (sizes(80 * GB).microbatch_tokens, CPU_SIZES.rows_at_once, CPU_SIZES.cache_tokens)


def test_ranks_that_share_the_optimiser_have_more_room_each():
    settings = ("policy.kind=deepspeed", "policy.zero_stage=3")
    assert sizes(48 * GB, *settings, num_ranks=8).cache_tokens > sizes(48 * GB, *settings).cache_tokens


@pytest.mark.parametrize(("device", "share"), [("cpu", 333_333_333), ("cuda", 1_000_000_001)])
def test_the_ranks_of_a_cpu_share_its_free_memory_and_each_gpu_has_its_own(device, share):
    config = load_config("quickstart", overrides=ENOUGH)
    asked = Estimate(config, SHAPE, NUM_PARAMETERS, NUM_PARAMETERS, 512, torch.device(device), 3)
    assert asked.fit(asked.memory(), 1_000_000_001).free_bytes == share


def test_rows_that_do_not_divide_evenly_are_those_of_the_rank_with_most():
    """Of 7 prompts two ranks have 4 and 3, three have 3, 2 and 2."""
    config = load_config("quickstart", overrides=["minibatch_prompts=7", "prompts_per_step=7", *ENOUGH])
    fours, threes = (
        load_config("quickstart", overrides=[f"minibatch_prompts={n}", f"prompts_per_step={n}", *ENOUGH])
        for n in (4, 3)
    )
    for num_ranks, alike in ((2, fours), (3, threes)):
        assert estimate(config, num_ranks).memory() == estimate(alike).memory()


def test_on_a_cpu_they_are_constants_that_fit(tiny_config, monkeypatch):
    prepared = prepare(tiny_config("rollout.rows_at_once=7"))
    given = prepared.config
    prepared = with_sizes(prepared)
    assert prepared.config == given.with_sizes(CPU_SIZES)
    assert prepared.config.sizes == Sizes(16384, 7, 1 << 17) == given.sizes
    note = "of memory: microbatch_tokens=16384, rollout.cache_tokens=131072"
    assert any(one.endswith(note) for one in describe(prepared).notes)
    # What says numbers takes none from the memory of a device, and no rank speaks to the others.
    monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device: 80 * GB)
    fixed = prepare(prepared.config)
    assert with_sizes(fixed, World(rank=0, size=2)) is fixed
    assert not any("in place of auto" in note for note in describe(fixed).notes)


def test_on_a_cpu_with_little_memory_micro_batches_are_smaller(tiny_config, monkeypatch):
    prepared = prepare(tiny_config())
    always = Estimate.of(prepare(prepared.config.with_sizes(CPU_SIZES))).memory()
    for room, tokens in ((10**12, 16384), (always.always + always.gradients + 2 * 10**6, 1024)):
        monkeypatch.setattr("quatro.launch.describe.machine_bytes", lambda room=room: room)
        assert with_sizes(prepared).config.sizes == CPU_SIZES._replace(microbatch_tokens=tokens)


@dataclasses.dataclass(frozen=True)
class Ranks(World):
    """One of two ranks in turns on this thread: what the first makes, the other is told."""

    memory: ClassVar[list[int]] = [64 * 10**6, 4 * 10**6]
    told: ClassVar[list[object]] = []

    def largest(self, value):
        assert -value == self.memory[self.rank]
        return -min(self.memory)

    def from_first(self, make, what):
        if self.is_first:
            self.told[:] = [make()]
        return self.told[0]


def test_all_ranks_have_what_the_first_makes_of_the_smallest_memory(tiny_config, monkeypatch):
    monkeypatch.setattr("quatro.launch.describe.FEWEST", Sizes(1, 1, 1))
    found = []
    for rank in (0, 1):
        monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device, rank=rank: Ranks.memory[rank])
        prepared = prepare(tiny_config("minibatch_prompts=4"), Launch(rank=rank, size=2))
        with monkeypatch.context() as patch:
            if rank:
                patch.setattr(Estimate, "sizes", None)  # it is told, and asks nothing itself
            found.append(with_sizes(prepared, Ranks(rank=rank, size=2)).config.sizes)
    alone = prepare(tiny_config("minibatch_prompts=4"), Launch(size=2))
    assert found == 2 * [sizes_for(4 * 10**6, alone, monkeypatch)]


def sizes_for(memory: int, prepared, monkeypatch) -> Sizes:
    monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device: memory)
    return with_sizes(prepared).config.sizes


def test_a_reward_model_on_the_same_device_takes_its_part_first(tiny_config, monkeypatch):
    monkeypatch.setattr("quatro.launch.describe.FEWEST", Sizes(1, 1, 1))
    alone = prepare(tiny_config())
    beside = dataclasses.replace(alone, reward=SimpleNamespace(device_bytes={"cpu": 5 * 10**6}.__getitem__))
    assert sizes_for(8 * 10**6, beside, monkeypatch) == sizes_for(3 * 10**6, alone, monkeypatch)


def test_a_resumed_run_reads_its_sizes_and_never_looks_at_the_memory(tiny_config, tmp_path, monkeypatch):
    """A device whose memory has shrunk to a sixteenth since: the same sizes, the same bytes."""
    monkeypatch.setattr("quatro.launch.describe.FEWEST", Sizes(1, 1, 1))
    monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device: 1_500_000)
    config = tiny_config("steps=2")
    whole = quatro.fine_tune(config, tmp_path / "whole")
    sizes = whole.config.sizes
    assert whole.config == config.with_sizes(sizes)
    # Smaller than what a minibatch and a step hold: they matter.
    assert sizes.microbatch_tokens < 8 * 10
    assert sizes.rows_at_once < CPU_SIZES.rows_at_once

    def stop(metrics):
        if metrics["step"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quatro.fine_tune(config, tmp_path / "stopped", observer=stop)
    monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device: 1_500_000 // 16)
    with pytest.raises(UsageError, match="seed is 0 there, not 1"):
        quatro.fine_tune(tiny_config("steps=2", "seed=1"), tmp_path / "stopped", resume=True)
    resumed = quatro.fine_tune(config, tmp_path / "stopped", resume=True)
    assert (resumed.status, resumed.config) == ("done", whole.config)
    for name in ("config.yaml", "rollouts/step-000002.jsonl", "checkpoints/step-000002/model/model.safetensors"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    # A run made on the smaller device has others.
    other = with_sizes(prepare(config))
    assert other.config.sizes.microbatch_tokens < sizes.microbatch_tokens


def test_the_dry_run_shows_them_and_a_new_run_says_them(tiny_config, tmp_path, monkeypatch):
    config = tiny_config("steps=1")
    path = tmp_path / "config.yaml"
    path.write_text(config_to_yaml(config), encoding="utf-8")
    assert "microbatch_tokens: auto" in path.read_text(encoding="utf-8")
    monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device: 80 * GB)
    shown = quatro_command("train", path, "--dry-run")
    note = (
        f"in place of auto, for 74.5 GiB of GPU memory: microbatch_tokens={MOST.microbatch_tokens}, "
        f"rollout.rows_at_once={MOST.rows_at_once}, rollout.cache_tokens={MOST.cache_tokens}"
    )
    assert note in shown.stdout
    for line in (f"microbatch_tokens: {MOST.microbatch_tokens}", f"  cache_tokens: {MOST.cache_tokens}"):
        assert line in shown.stdout.splitlines()
    run = tmp_path / "run"
    assert note in quatro_command("train", path, "-o", run).stderr
    assert load_config(run).sizes == MOST


def test_a_run_of_an_earlier_version_says_no_numbers_and_goes_on_with_the_constants(tiny_config, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with RunDir.create(run, tiny_config("steps=1")) as made:
        train(made.config, made)
    monkeypatch.setattr("quatro.launch.describe.total_bytes", lambda device: 80 * GB)  # nobody asks for sizes
    longer = [config_to_yaml(tiny_config(f"steps={steps}")) for steps in (2, 3)]
    (run / "config.yaml").write_text(longer[0], encoding="utf-8")
    for options in (["--dry-run"], []):
        assert "in place of auto" not in quatro_command("train", run, "--resume", *options).output
    (run / "config.yaml").write_text(longer[1], encoding="utf-8")
    assert quatro.fine_tune(tiny_config("steps=3"), run, resume=True).step == 3
    assert load_config(run).sizes == CPU_SIZES


def test_engine_and_policy_take_them(tiny_config):
    config = tiny_config("microbatch_tokens=40", "rollout.rows_at_once=3", "rollout.cache_tokens=50")
    with closing(assemble(prepare(config))) as parts:
        assert (parts.engine.max_batch_rows, parts.engine.max_batch_tokens) == (3, 50)
        assert parts.policy.microbatch.tokens == 40


@pytest.mark.parametrize(("dtype", "reference", "casts"), [("float32", 4000, 0), ("bfloat16", 2 * 900 + 4 * 100, 2000)])
def test_a_policy_of_one_process_holds_masters_moments_and_what_it_casts(tiny_config, dtype, reference, casts):
    """Bytes of 1000 parameters, 100 of them embedded."""
    config = tiny_config("kl.beta=0.1", f"dtype={dtype}", "inner_updates=auto")
    found = POLICIES["local"].memory(config, ModelSize(1000, 1000, num_ranks=1, is_sampled=True, num_embedded=100))
    assert found == {
        "weights": 4000,
        "gradients": 4000,
        "optimizer": 8000,
        "snapshots": 4000,
        "reference": reference,
        "casts": casts,
    }


@pytest.mark.parametrize(("stage", "weights", "gradients", "reference"), [(1, 4, 4, 4), (2, 4, 2, 4), (3, 2, 2, 2)])
def test_what_zero_shards_is_counted_once_over_its_ranks(tiny_config, stage, weights, gradients, reference):
    """float32, two ranks, bytes a parameter; under ZeRO-3 there is a whole copy while an engine samples from it."""
    config = tiny_config("policy.kind=deepspeed", f"policy.zero_stage={stage}", "kl.beta=0.1", "dtype=float32")
    found = POLICIES["deepspeed"].memory(config, ModelSize(1000, 1000, num_ranks=2, is_sampled=True))
    assert (found["weights"], found["whole_copy"]) == (1000 * weights, 4000 * (stage == 3))
    assert (found["gradients"], found["kept_gradients"])[:: -1 if stage == 3 else 1] == (1000 * gradients, 0)
    assert found["optimizer"] == 1000 * 6
    assert found["reference"] == 1000 * reference


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_gradients_that_zero_1_keeps_in_bfloat16_count_once_and_at_every_time(dtype):
    config = load_config("math-1.5b-2gpu", overrides=[f"dtype={dtype}", "rollout.engine=transformers"])
    asked, is_kept = estimate(config, num_ranks=2), dtype == "bfloat16"
    memory = asked.memory()
    assert (memory.kept_gradients, memory.gradients)[:: 1 if is_kept else -1] == (4 * NUM_PARAMETERS, 0)
    without = dataclasses.replace(memory, kept_gradients=0, gradients=0)
    assert memory.learning - without.learning == 4 * NUM_PARAMETERS
    assert memory.sampling - without.sampling == 4 * NUM_PARAMETERS * is_kept


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_under_zero_3_a_rank_of_four_starts_a_7b_with_14_gib(engine):
    config = load_config("math-7b-4gpu", overrides=["policy.zero_stage=3", f"rollout.engine={engine}"])
    assert (config.kl.beta > 0, config.dtype) == (True, "bfloat16")
    shape, num_parameters = qwen(**LARGE, is_tied=False)
    memory = Estimate(config, shape, num_parameters, num_parameters, 512, GPU, 4).memory()
    assert memory.weights + memory.reference < 14 * 2**30


@pytest.mark.parametrize(("ranks", "local", "needed"), [(1, None, 18_000), (4, None, 18_000), (4, 2, 9_000)])
def test_a_machine_too_small_for_what_is_offloaded_is_refused_before_anything_is_loaded(
    tiny_config, monkeypatch, ranks, local, needed
):
    """18 bytes a parameter in bfloat16, on all ranks of the machine together."""
    monkeypatch.setattr(POLICIES["deepspeed"], "check", staticmethod(lambda: None))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local or ranks))
    offloaded = ("policy.kind=deepspeed", "policy.zero_stage=2", "policy.offload_optimizer=true", "dtype=bfloat16")
    prepared = prepare(tiny_config(*offloaded, "minibatch_prompts=4"))
    prepared = dataclasses.replace(
        prepared, num_parameters=1000, num_trained=1000, launch=Launch(size=ranks), config=prepared.config
    )
    monkeypatch.setattr("quatro.launch.describe.machine_bytes", lambda: needed)
    (said,) = host_notes(prepared, refuse=True)
    assert said in notes(prepared)
    monkeypatch.setattr("quatro.launch.describe.machine_bytes", lambda: needed - 1)
    (said,) = host_notes(prepared)
    assert "too little" in said
    monkeypatch.setattr(POLICIES["deepspeed"], "open", None)  # nothing comes to that
    with pytest.raises(MissingError, match="in the memory of this machine, which has"):
        assemble(prepared)
    assert host_notes(prepare(tiny_config())) == []


def test_the_head_in_chunks_bounds_the_logits(tiny_config):
    cpu = torch.device("cpu")
    shape, _ = qwen(**SMALL, is_tied=True)
    few, many = (
        Estimate(tiny_config(f"microbatch_tokens={tokens}"), shape, 10**9, 10**9, 10, cpu).memory().logits
        for tokens in (200, 20_000)
    )
    assert few == many == 64 * 151_936 * 18 + 4 * 151_936 * 1536
    # With its logits capped after the head a model is scored through all of them.
    shape.final_logit_softcapping = 30.0
    capped = Estimate(tiny_config("microbatch_tokens=200"), shape, 10**9, 10**9, 10, cpu)
    assert capped.memory().logits > few


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
@pytest.mark.parametrize(
    ("name", "longest_prompt", "model", "parameters"),
    [
        ("math-1.5b", 512, SMALL, 1.54e9),
        ("math-7b", 512, LARGE, 7.62e9),
    ],
)
def test_the_shipped_maths_runs_fit_into_80_gb(name, longest_prompt, model, parameters, engine):
    """By the tool's own estimate, on one GPU, with both engines; 5 % stay for what the estimate leaves out."""
    config = load_config(name, overrides=[f"rollout.engine={engine}"])
    assert config.data.max_prompt_tokens == longest_prompt
    shape, num_parameters = qwen(**model, is_tied=name == "math-1.5b")
    assert num_parameters == pytest.approx(parameters, rel=0.005)
    memory = Estimate(config, shape, num_parameters, num_parameters, longest_prompt, GPU).memory(80 * GB)
    assert memory.total < 0.95 * 80e9
    assert (memory.kv_cache > 30e9) == (engine == "vllm")


PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
from transformers import Qwen2Config, Qwen2ForCausalLM
from quatro.policy.rows import collate
from quatro.config import load_config
from quatro.launch.describe import Estimate
from quatro.loop.learn import make_objective
from quatro.policy.kinds import make_policy
from quatro.types import Prompt, Rollout
from quatro.processes.world import World

shape = Qwen2Config(vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
                    num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True)
settings = ["method.name=grpo", "dtype=float32", "device=cpu", "threads=1", "kl.beta=0.001", "prompts_per_step=4",
            "minibatch_prompts=4", "rollouts_per_prompt=8", "rollout.max_new_tokens=120", "data.template=plain",
            *sys.argv[2:]]

def learn(tokens):
    config = load_config("quickstart", overrides=[*settings, f"model={sys.argv[1]}", f"microbatch_tokens={tokens}"])
    model = Qwen2ForCausalLM(shape)
    prompts = [Prompt("b", str(i), "p", None, "p", tuple(range(8))) for i in range(4)]
    groups = [[Rollout(tuple(range(120)), "", "length", (-1.0,) * 120)] * 8] * 4
    rows = collate(prompts, groups, torch.randn(32, dtype=torch.float64), max_new_tokens=120)
    rows = rows.with_batch(ref_logp_BT=rows.batch.old_logp_BT)
    policy = make_policy(config, model, World(), None)
    policy.update(rows, make_objective(config), use_own_logp=True, need_entropy=False)
    number, trained = sum(p.numel() for p in model.parameters()), sum(p.numel() for p in policy.trained)
    return Estimate(config, shape, number, trained, 8, torch.device("cpu")).memory()

learn(128)  # what the first pass loads and allocates once is no part of the estimate
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
predicted = learn(4096)
print(predicted.activations + predicted.logits, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)
"""


@pytest.mark.long
@pytest.mark.parametrize("more", [[], ["policy.lora.rank=8"]])
def test_the_estimate_is_near_a_measured_peak(tiny_folder, more):
    """One configuration, float32 on the CPU: activations and logits of a micro-batch of 4,096 tokens, 250 MB."""
    command = [sys.executable, "-c", PEAK, str(tiny_folder), *more]
    # Otherwise the C library keeps what is freed, and the peak is what it kept.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    predicted, measured = map(int, done.stdout.split())
    assert 0.8 * predicted < measured < 1.25 * predicted
