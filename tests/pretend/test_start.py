"""What lies on the device when a policy starts: weights are cast before they come there, and never twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from quatro.config import load_config
from quatro.policy import deepspeed
from quatro.policy.device import find_device
from quatro.policy.kinds import make_policy
from quatro.processes.world import World
from quatro.rehearse.device import Card
from tests.pretend.watched import pretended_gpu

LARGE = Card("as large as need be", 10**13)
QWEN_7B = {"vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28}
QWEN_7B |= {"num_attention_heads": 28, "num_key_value_heads": 4}
RANKS = 4


class First(World):
    """The first of some ranks, whose messages reach nobody."""

    def from_first(self, make, what):
        return make()


class Started(Exception):
    pass


def in_shards(parameters):
    """As DeepSpeed's `zero.Init` leaves them: a shard beside an empty weight."""
    for weight in parameters:
        weight.ds_tensor = weight.data.flatten()[: weight.numel() // RANKS].clone()
        weight.data = weight.data.new_empty(0)


def started(**options):
    if "optimizer" in options:
        raise Started
    return [None]


def hollow_7b() -> torch.nn.Module:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(Qwen2Config(**QWEN_7B)).float().eval()


@pytest.mark.parametrize(("engine", "gib"), [("vllm", 14), ("transformers", 14 + 14.2)])
def test_no_gpu_of_zero_3_holds_a_7b(monkeypatch, engine, gib):
    """But for the copy in bfloat16 that our own engine draws from."""
    init = SimpleNamespace(Init=lambda **_: SimpleNamespace(_convert_to_zero_parameters=in_shards))
    monkeypatch.setattr(deepspeed, "_imported", lambda device: SimpleNamespace(zero=init, initialize=started))
    monkeypatch.setattr("quatro.policy.torch_policy.has_plain_head", lambda model: True)  # made on the CPU
    settings = ["device=cuda", "policy.zero_stage=3", f"rollout.engine={engine}"]
    config = load_config("math-7b-4gpu", overrides=[*settings, "rollout.rows_at_once=64", "rollout.cache_tokens=65536"])
    with pretended_gpu(LARGE, hollow=True) as gpu:
        with pytest.raises(Started):
            make_policy(config, hollow_7b(), First(0, RANKS), None, device=find_device("cuda"))
        assert 0 < gpu.peak < gib * 2**30, gpu.peak / 2**30


@pytest.mark.parametrize(("dtype", "bytes_a_parameter"), [("bfloat16", 4 + 2), ("float32", 4 + 4)])
def test_the_reference_comes_to_the_gpu_in_the_format_of_the_computation(monkeypatch, dtype, bytes_a_parameter):
    # The pass that looks at the head casts weights once more, as every pass does.
    monkeypatch.setattr("quatro.policy.torch_policy.has_plain_head", lambda model: True)
    config = load_config("math-1.5b", overrides=["device=cuda", f"dtype={dtype}"])
    with pretended_gpu(LARGE, hollow=True) as gpu:
        model = hollow_7b()
        policy = make_policy(config, model, World(), None, device=find_device("cuda"))
        assert policy.reference is not None
        numbers = sum(one.numel() for one in model.parameters())
        embedded = QWEN_7B["vocab_size"] * QWEN_7B["hidden_size"]  # stays in float32
        started = bytes_a_parameter * numbers + (2 * embedded if dtype == "bfloat16" else 0)
        assert gpu.peak == pytest.approx(started, rel=0.02), (gpu.peak / 2**30, started / 2**30)
