"""Sizes that depend on the machine are resolved when a run is made, and never again."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from typer.testing import CliRunner

import quatro
from evals.errors import UsageError
from quatro.config import config_to_yaml, load_config
from quatro.config.sizes import CPU_SIZES, Sizes
from quatro.launch.assemble import assemble
from quatro.launch.begin import prepare
from quatro.launch.describe import describe
from quatro.launch.memory import FEWEST, MOST, Estimate, with_sizes
from quatro.processes.launcher import Launch
from quatro.processes.world import World
from quatro.runs.directory import RunDir
from quatro.train import train
from quatro_cli.app import app

GB = 10**9
GPU = torch.device("cuda")  # only named: no device is asked for anything
# Qwen2.5-Math-1.5B.
SHAPE = SimpleNamespace(
    num_hidden_layers=28,
    hidden_size=1536,
    intermediate_size=8960,
    num_attention_heads=12,
    num_key_value_heads=2,
    vocab_size=151_936,
)
NUM_PARAMETERS = 1_543_714_304


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
def test_on_a_gpu_they_are_the_largest_powers_of_two_that_fit_by_the_estimate(memory):
    found = sizes(memory)
    assert all(size & (size - 1) == 0 for size in found)
    learning, sampling = needed(found)
    assert learning <= 0.9 * memory < needed(found._replace(microbatch_tokens=2 * found.microbatch_tokens))[0]
    # The cache takes no more than half of what stays free beside what the run always holds.
    always = needed(found._replace(rows_at_once=1, cache_tokens=1))[1]
    assert sampling < (always + 0.9 * memory) / 2
    assert needed(found._replace(cache_tokens=2 * found.cache_tokens))[1] > 0.99 * (always + 0.9 * memory) / 2
    assert found.rows_at_once * SHAPE.vocab_size * 4 <= memory / 16 < 2 * found.rows_at_once * SHAPE.vocab_size * 4


def test_a_little_memory_more_or_less_changes_nothing_and_much_of_it_goes_to_the_bounds():
    assert sizes(85 * GB) == sizes(84 * GB) == sizes(86 * GB) == Sizes(8192, 8192, 1 << 19)
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


def test_on_a_cpu_they_are_constants_and_no_memory_is_asked_for(tiny_config, monkeypatch):
    prepared = prepare(tiny_config("rollout.rows_at_once=7"))
    given = prepared.config
    prepared = with_sizes(prepared)
    assert prepared.config == given.with_sizes(CPU_SIZES)
    assert prepared.config.sizes == Sizes(16384, 7, 1 << 17) == given.sizes
    note = "in place of auto, as on every CPU: microbatch_tokens=16384, rollout.cache_tokens=131072"
    assert note in describe(prepared).notes
    # What says numbers asks nothing, and no rank speaks to the others.
    monkeypatch.setattr("quatro.launch.memory.total_bytes", None)
    fixed = prepare(prepared.config)
    assert with_sizes(fixed, World(rank=0, size=2)) is fixed
    assert not any("in place of auto" in note for note in describe(fixed).notes)


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
    monkeypatch.setattr("quatro.launch.memory.FEWEST", Sizes(1, 1, 1))
    found = []
    for rank in (0, 1):
        monkeypatch.setattr("quatro.launch.memory.total_bytes", lambda device, rank=rank: Ranks.memory[rank])
        prepared = prepare(tiny_config("minibatch_prompts=4"), Launch(rank=rank, size=2))
        with monkeypatch.context() as patch:
            if rank:
                patch.setattr(Estimate, "sizes", None)  # it is told, and asks nothing itself
            found.append(with_sizes(prepared, Ranks(rank=rank, size=2)).config.sizes)
    alone = prepare(tiny_config("minibatch_prompts=4"), Launch(size=2))
    assert found == 2 * [sizes_for(4 * 10**6, alone, monkeypatch)]


def sizes_for(memory: int, prepared, monkeypatch) -> Sizes:
    monkeypatch.setattr("quatro.launch.memory.total_bytes", lambda device: memory)
    return with_sizes(prepared).config.sizes


def test_a_reward_model_on_the_same_device_takes_its_part_first(tiny_config, monkeypatch):
    monkeypatch.setattr("quatro.launch.memory.FEWEST", Sizes(1, 1, 1))
    alone = prepare(tiny_config())
    beside = dataclasses.replace(alone, reward=SimpleNamespace(device_bytes={"cpu": 5 * 10**6}.__getitem__))
    assert sizes_for(8 * 10**6, beside, monkeypatch) == sizes_for(3 * 10**6, alone, monkeypatch)


def test_a_resumed_run_reads_its_sizes_and_never_looks_at_the_memory(tiny_config, tmp_path, monkeypatch):
    """A device whose memory has shrunk to a sixteenth since: the same sizes, the same bytes."""
    monkeypatch.setattr("quatro.launch.memory.FEWEST", Sizes(1, 1, 1))
    monkeypatch.setattr("quatro.launch.memory.total_bytes", lambda device: 1_500_000)
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
    monkeypatch.setattr("quatro.launch.memory.total_bytes", lambda device: 1_500_000 // 16)
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
    monkeypatch.setattr("quatro.launch.memory.total_bytes", lambda device: 80 * GB)
    shown = CliRunner().invoke(app, ["train", str(path), "--dry-run"])
    assert shown.exit_code == 0, shown.output
    note = (
        f"in place of auto, for 74.5 GiB of GPU memory: microbatch_tokens={MOST.microbatch_tokens}, "
        f"rollout.rows_at_once={MOST.rows_at_once}, rollout.cache_tokens={MOST.cache_tokens}"
    )
    assert note in shown.stdout
    for line in (f"microbatch_tokens: {MOST.microbatch_tokens}", f"  cache_tokens: {MOST.cache_tokens}"):
        assert line in shown.stdout.splitlines()
    run = tmp_path / "run"
    made = CliRunner().invoke(app, ["train", str(path), "-o", str(run)])
    assert made.exit_code == 0, made.output
    assert note in made.stderr
    assert load_config(run).sizes == MOST


def test_a_run_of_an_earlier_version_says_no_numbers_and_goes_on_with_the_constants(tiny_config, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with RunDir.create(run, tiny_config("steps=1")) as made:
        train(made.config, made)
    monkeypatch.setattr("quatro.launch.memory.total_bytes", None)  # nobody may ask
    longer = [config_to_yaml(tiny_config(f"steps={steps}")) for steps in (2, 3)]
    (run / "config.yaml").write_text(longer[0], encoding="utf-8")
    for options in (["--dry-run"], []):
        resumed = CliRunner().invoke(app, ["train", str(run), "--resume", *options])
        assert resumed.exit_code == 0, resumed.output
        assert "in place of auto" not in resumed.output
    (run / "config.yaml").write_text(longer[1], encoding="utf-8")
    assert quatro.fine_tune(tiny_config("steps=3"), run, resume=True).step == 3
    assert load_config(run).sizes == CPU_SIZES


def test_engine_and_policy_take_them(tiny_config):
    config = tiny_config("microbatch_tokens=40", "rollout.rows_at_once=3", "rollout.cache_tokens=50")
    with closing(assemble(prepare(config))) as parts:
        assert (parts.engine.max_batch_rows, parts.engine.max_batch_tokens) == (3, 50)
        assert parts.policy.microbatch.tokens == 40
