"""What is announced and refused before the first step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from evals.errors import DataError, MissingError, UsageError
from quatro.config import load_config
from quatro.launch.begin import prepare
from quatro.launch.describe import DryRun, batch_arithmetic, describe
from quatro.launch.memory import Estimate
from quatro.policy.kinds import ModelSize
from quatro.policy.loading import load_model
from quatro.processes.launcher import Launch
from quatro.registry import ENGINES, POLICIES
from quatro.rollout.prompts import PromptSet


def arithmetic(config) -> list[str]:
    """The batch in words for 40 prompts."""
    return batch_arithmetic(SimpleNamespace(config=config, prompts=PromptSet([None] * 40, 0, 0), launch=Launch()))


def test_the_batch_in_words(tiny_config):
    lines = arithmetic(tiny_config())
    assert lines[0] == "1 iteration = 4 prompts x 4 rollouts = 16 rollouts of at most 10 tokens"
    assert "2 minibatches of 2 prompts x K=2 = 4 optimiser steps an iteration, each over 8 rollouts" in lines[1]
    assert lines[2] == "4 iterations = 64 rollouts, 16 optimiser steps, 0.40 passes over 40 prompts"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["optimizer.warmup_steps=6"], "warm-up: 6 optimiser steps = 1.5 iterations"),
        (["optimizer.warmup_steps=1"], "warm-up: 1 optimiser step = 0.25 iterations"),
        (
            ["optimizer.warmup_steps=14", "inner_updates=auto", "max_inner_updates=7"],
            "warm-up: 14 optimiser steps = at least 1 iteration",
        ),
    ],
)
def test_the_warm_up_is_told_in_iterations(tiny_config, settings, said):
    assert arithmetic(tiny_config(*settings))[3:] == [said]


def test_passes_that_go_on_until_the_budget_is_used_up_are_counted_at_most(tiny_config):
    lines = arithmetic(tiny_config("inner_updates=auto", "max_inner_updates=7"))
    assert "2 minibatches of 2 prompts x K=up to 7 = up to 14 optimiser steps an iteration" in lines[1]
    assert "64 rollouts, up to 56 optimiser steps" in lines[2]


def test_memory_adds_up_from_parameters_and_batch(tiny_config):
    config = tiny_config("microbatch_tokens=64")
    described = describe(prepare(config))
    model = load_model(config.model, torch.float32, "cpu")
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert described.prepared.num_parameters == num_parameters
    memory = described.memory
    assert memory.weights == memory.gradients == memory.reference == 4 * num_parameters
    assert memory.optimizer == 8 * num_parameters
    # Responses are 10 of at most 18 tokens a row; the head's gradient is 232 x 32 numbers.
    assert memory.logits == 64 * 10 // 18 * 232 * 18 + 4 * 232 * 32
    assert memory.casts == 0
    halved = describe(prepare(tiny_config("dtype=bfloat16"))).memory
    assert halved.casts == 2 * num_parameters
    assert halved.reference == 2 * num_parameters + 2 * 232 * 32  # the embedding stays in float32
    assert memory.total == memory.weights * 4 + max(
        memory.gradients + memory.activations + memory.logits, memory.kv_cache
    )
    assert describe(prepare(tiny_config("kl.beta=0"))).memory.reference == 0
    assert memory.snapshots == 0
    assert describe(prepare(tiny_config("inner_updates=auto"))).memory.snapshots == 4 * num_parameters


def test_a_reward_model_counts_and_an_engine_that_takes_its_share_first_is_named(tiny_config, monkeypatch):
    prepared = prepare(tiny_config())
    monkeypatch.setattr(prepared.reward, "device_bytes", lambda device: 12_345)
    assert describe(prepared).memory.reward == 12_345
    assert not any("reward model" in note for note in describe(prepared).notes)
    monkeypatch.setattr(ENGINES[prepared.config.rollout.engine], "shares_weights", False)
    (note,) = (note for note in describe(prepared).notes if "reward model" in note)
    assert "takes its share of the device first (rollout.gpu_memory_utilization)" in note
    assert "device: cpu in its options" in note  # a list of rewards takes no -s reward.options.device


def test_the_first_prompt_is_shown_as_text_and_ids(tiny_config):
    described = describe(prepare(tiny_config()))
    assert described.first_prompt.text in "\n".join(described.lines)
    assert described.document["first_prompt"]["token_ids"] == list(described.first_prompt.token_ids)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (["rollout.engine=vllm", "rollout.temperature=3"], UsageError, "rollout.temperature 3"),
        (["reward=no_such_module:f"], UsageError, "no_such_module"),
        (["rollout.engine=replay", "rollout.replay_file=nowhere.jsonl"], DataError, "nowhere.jsonl"),
        (["eval.every=1", "eval.benchmark=nope"], UsageError, "nope"),
    ],
)
def test_what_a_run_would_stumble_over_is_refused_first(tiny_config, settings, error, words):
    with pytest.raises(error, match=words):
        describe(prepare(tiny_config(*settings)))


def test_prompts_that_the_reward_cannot_judge_are_refused_first(tiny_config, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(
        '{"id": "a", "problem": "7 2 7 6 2 8 -> 67", "answer": "no prompt"}\n', encoding="utf-8"
    )
    with pytest.raises(DataError, match="countdown prompt"):
        describe(prepare(tiny_config(f"data.prompts={tmp_path / 'prompts.jsonl'}", "data.template=plain")))


def test_an_adapter_has_gradients_and_moments_and_the_reference_is_free(tiny_config):
    dry_runs = describe(prepare(tiny_config())), describe(prepare(tiny_config("policy.lora.rank=4")))
    whole, adapter = (one.prepared for one in dry_runs)
    assert whole.num_trained == whole.num_parameters
    # Of two layers: q and o (32 x 32), k and v too, gate, up (64 x 32) and down (32 x 64).
    assert adapter.num_trained == adapter.num_parameters - whole.num_parameters == 2 * 4 * (4 * 64 + 3 * 96)
    memory = dry_runs[1].memory
    assert (memory.weights, memory.gradients) == (4 * adapter.num_parameters, 4 * adapter.num_trained)
    assert (memory.optimizer, memory.reference) == (8 * adapter.num_trained, 0)
    assert f"{adapter.num_trained:,} of them trained" in "\n".join(dry_runs[1].lines)
    assert "of them trained" not in "\n".join(dry_runs[0].lines)
    halved = describe(prepare(tiny_config("policy.lora.rank=4", "dtype=bfloat16"))).memory
    assert halved.weights == 4 * adapter.num_trained + 2 * whole.num_parameters


def test_gradient_checkpointing_and_large_vocabularies_are_predicted(tiny_config):
    plain = describe(prepare(tiny_config("microbatch_tokens=64"))).memory
    checkpointed = describe(prepare(tiny_config("microbatch_tokens=64", "policy.gradient_checkpointing=true"))).memory
    # Two layers of 32 hidden units and an MLP of 64: a = 6 x 32 + 4 x 32 + 4 x 64 numbers.
    layer, numbers = 6 * 32 + 4 * 32 + 4 * 64, 4 * 64
    assert plain.activations == numbers * (2 * layer + 2 * 32)
    assert checkpointed.activations == numbers * (2 * 32 + layer + 2 * 32)
    assert checkpointed.logits == plain.logits


def test_the_head_in_chunks_bounds_the_logits(tiny_config):
    cpu = torch.device("cpu")
    shape = SimpleNamespace(
        num_hidden_layers=28,
        hidden_size=1536,
        intermediate_size=8960,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=151_936,
    )
    few, many = (
        Estimate(tiny_config(f"microbatch_tokens={tokens}"), shape, 10**9, 10**9, 10, cpu).memory().logits
        for tokens in (200, 20_000)
    )
    assert few == many == 64 * 151_936 * 18 + 4 * 151_936 * 1536
    # With its logits capped after the head a model is scored through all of them.
    shape.final_logit_softcapping = 30.0
    capped = Estimate(tiny_config("microbatch_tokens=200"), shape, 10**9, 10**9, 10, cpu)
    assert capped.memory().logits > few


PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
from transformers import Qwen2Config, Qwen2ForCausalLM
from quatro.policy.rows import collate
from quatro.config import load_config
from quatro.launch.memory import Estimate
from quatro.loop.objective import make_objective
from quatro.launch.assemble import make_policy
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
    import os
    import subprocess
    import sys

    command = [sys.executable, "-c", PEAK, str(tiny_folder), *more]
    # Otherwise the C library keeps what is freed, and the peak is what it kept.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    predicted, measured = map(int, done.stdout.split())
    assert 0.8 * predicted < measured < 1.25 * predicted


def test_a_package_that_is_absent_is_named(tiny_config, monkeypatch):
    monkeypatch.setattr("quatro.config.packages.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pip install .*\[deepspeed\]"):
        describe(prepare(tiny_config("policy.kind=deepspeed")))


def test_ranks_are_told_in_words_and_share_the_memory(tiny_config):
    settings = ("prompts_per_step=8", "minibatch_prompts=4", "policy.kind=local")
    one, three = describe(prepare(tiny_config(*settings))), describe(prepare(tiny_config(*settings), Launch(size=3)))
    assert not any("ranks" in line for line in one.document["arithmetic"])
    assert any("3 ranks" in line and "1 or 2 prompts" in line for line in three.document["arithmetic"])
    with pytest.raises(UsageError, match="minibatch_prompts is 4 and there are 5 ranks"):
        describe(prepare(tiny_config(*settings), Launch(size=5)))


@pytest.mark.parametrize(("stage", "weights", "gradients"), [(1, 4, 4), (2, 4, 2), (3, 2 + 4, 2)])
def test_what_zero_shards_is_counted_once_over_its_ranks(tiny_config, stage, weights, gradients):
    """float32, two ranks, bytes a parameter; ZeRO-3 beside a whole copy to sample from."""
    config = tiny_config("policy.kind=deepspeed", f"policy.zero_stage={stage}", "kl.beta=0.1", "dtype=float32")
    found = POLICIES["deepspeed"].memory(config, ModelSize(1000, 1000, num_ranks=2, is_sampled=True))
    assert found["weights"] == 1000 * weights
    assert found["gradients"] == 1000 * gradients
    assert found["optimizer"] == 1000 * 6
    assert found["reference"] == 1000 * 4


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


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
@pytest.mark.parametrize(
    ("name", "longest_prompt", "model", "parameters"),
    [
        ("math-1.5b", 512, {"hidden": 1536, "mlp": 8960, "heads": 12, "keys": 2, "vocabulary": 151_936}, 1.54e9),
        ("math-7b", 512, {"hidden": 3584, "mlp": 18_944, "heads": 28, "keys": 4, "vocabulary": 152_064}, 7.62e9),
    ],
)
def test_the_shipped_maths_runs_fit_into_80_gb(name, longest_prompt, model, parameters, engine):
    """By the tool's own estimate, on one GPU, with both engines; 5 % stay for what the estimate leaves out."""
    config = load_config(name, overrides=[f"rollout.engine={engine}"])
    assert config.data.max_prompt_tokens == longest_prompt
    shape, num_parameters = qwen(**model, is_tied=name == "math-1.5b")
    assert num_parameters == pytest.approx(parameters, rel=0.005)
    gpu = torch.device("cuda")
    memory = Estimate(config, shape, num_parameters, num_parameters, longest_prompt, gpu).memory(80 * 10**9)
    assert memory.total < 0.95 * 80e9
    assert (memory.kv_cache > 30e9) == (engine == "vllm")


def test_a_dry_run_says_what_would_fit_into_the_free_memory(tiny_config, monkeypatch):
    config = tiny_config("microbatch_tokens=64", "rollouts_per_prompt=2")

    def told(free: int | None) -> DryRun:
        monkeypatch.setattr("quatro.launch.describe.free_bytes", lambda device: free)
        return describe(prepare(config))

    assert told(None).fit is None
    memory = told(None).memory
    enough = told(memory.always + memory.gradients + memory.activations + memory.logits + 10**9)
    assert "it fits; microbatch_tokens up to" in "\n".join(enough.lines)
    assert enough.fit.checkpointed_tokens > enough.fit.tokens > 64
    # What is said to fit is what the same estimate says of that size.
    assert told(memory.learning).fit.tokens == 64
    scarce = told(memory.learning - 1)
    assert "it does not fit; microbatch_tokens up to 63 would" in "\n".join(scarce.lines)
    none = told(memory.always + memory.kv_cache)
    assert (none.fit.tokens, none.fit.checkpointed_tokens) == (0, 0)
    assert "it does not fit, and no microbatch_tokens would" in "\n".join(none.lines)
    assert none.document["fit"]["learning_bytes"] == memory.learning
    assert "it does not fit, as drawing responses takes" in "\n".join(told(memory.always).lines)
