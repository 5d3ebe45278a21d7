"""What is announced and refused before the first step."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from evals.benchmarks.loading import load_problems
from evals.errors import DataError, MissingError, UsageError
from quatro.launch.begin import prepare
from quatro.launch.describe import DryRun, Fit, batch_arithmetic, describe
from quatro.launch.saving import assemble
from quatro.policy.loading import load_model
from quatro.processes.launcher import Launch
from quatro.registry import ENGINES
from quatro.rollout.prompts import PromptSet
from tests.kit import write_rows


def arithmetic(config) -> list[str]:
    """The batch in words for 40 prompts."""
    return batch_arithmetic(
        SimpleNamespace(config=config, prompts=PromptSet([SimpleNamespace(source="")] * 40, Counter()), launch=Launch())
    )


def test_the_batch_in_words(tiny_config):
    lines = arithmetic(tiny_config())
    assert lines[0] == "1 iteration = 4 prompts x 4 rollouts = 16 rollouts of at most 10 tokens"
    assert "2 minibatches of 2 prompts x K=2 = 4 optimiser steps an iteration, each over 8 rollouts" in lines[1]
    assert lines[2] == "4 iterations = 64 rollouts, 16 optimiser steps, 0.40 passes over 40 prompts"
    again = arithmetic(tiny_config("rollout.dynamic_sampling=true", "rollout.max_sampling_rounds=3"))
    assert again == [*lines, "dynamic sampling draws an iteration's rollouts up to 3 times"]


def test_passes_that_go_on_until_the_budget_is_used_up_are_counted_at_most(tiny_config):
    lines = arithmetic(tiny_config("inner_updates=auto", "max_inner_updates=7"))
    assert "2 minibatches of 2 prompts x K=up to 7 = up to 14 optimiser steps an iteration" in lines[1]
    assert "64 rollouts, up to 56 optimiser steps" in lines[2]


def test_each_benchmark_of_an_evaluation_is_in_the_words(tiny_config):
    one = arithmetic(tiny_config("eval.every=2", "eval.benchmark=countdown"))[-1]
    assert one == "16 samples of each problem of countdown before training and every 2 iterations"
    several = arithmetic(tiny_config("eval={every: 2, benchmark: [countdown, aime24], n: [4, 8], at_start: false}"))[-1]
    said = "4 samples of each problem of countdown, 8 samples of each problem of aime24 every 2 iterations"
    assert several == said


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
    prompt = described.prepared.prompts.prompts[0]
    assert prompt.text in "\n".join(described.lines)
    assert described.document["first_prompt"]["token_ids"] == list(prompt.token_ids)
    assert described.document["sources"] == []


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
        prepare(tiny_config(*settings))


def test_prompts_that_the_reward_cannot_judge_are_refused_first(tiny_config, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(
        '{"id": "a", "problem": "7 2 7 6 2 8 -> 67", "answer": "no prompt"}\n', encoding="utf-8"
    )
    with pytest.raises(DataError, match="countdown prompt"):
        prepare(tiny_config(f"data.prompts={tmp_path / 'prompts.jsonl'}", "data.template=plain"))


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


def test_a_package_that_is_absent_is_named(tiny_config, monkeypatch):
    monkeypatch.setattr("evals.errors.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pip install .*\[deepspeed\]"):
        prepare(tiny_config("policy.kind=deepspeed"))


def test_ranks_are_told_in_words_and_share_the_memory(tiny_config):
    settings = ("prompts_per_step=8", "minibatch_prompts=4", "policy.kind=local")
    one, three = describe(prepare(tiny_config(*settings))), describe(prepare(tiny_config(*settings), Launch(size=3)))
    assert not any("ranks" in line for line in one.document["arithmetic"])
    assert any("3 ranks" in line for line in three.document["arithmetic"])
    with pytest.raises(UsageError, match="minibatch_prompts is 4 and there are 5 ranks"):
        prepare(tiny_config(*settings), Launch(size=5))


def test_a_dry_run_says_whether_it_fits_into_the_free_memory(tiny_config, monkeypatch):
    config = tiny_config("microbatch_tokens=64", "rollouts_per_prompt=2")

    def told(free: int | None) -> DryRun:
        monkeypatch.setattr("quatro.launch.describe.free_bytes", lambda device: free)
        return describe(prepare(config))

    assert told(None).fit is None
    learning = told(None).memory.learning
    assert told(learning).fit.line.endswith("are free here: it fits")
    scarce = told(learning - 1)
    assert "it does not fit, as learning takes" in "\n".join(scarce.lines)
    assert scarce.document["fit"] == {**vars(scarce.fit), "learning_bytes": learning}
    assert "it does not fit, as drawing responses takes" in Fit(10, 20, 5).line


def test_problems_in_both_sets_are_told_in_the_dry_run_and_in_the_run(tiny_config, tmp_path, caplog):
    some = load_problems("countdown")[:6] + load_problems("countdown", split="train")[:6]
    rows = [{"id": f"mine-{at}", "problem": one.problem, "answer": one.answer} for at, one in enumerate(some)]
    write_rows(tmp_path / "p.jsonl", rows)
    settings = (
        f"data.prompts={tmp_path / 'p.jsonl'}",
        "reward=countdown",
        "eval={every: 9, benchmark: countdown, n: 1}",
    )
    prepared = prepare(tiny_config(*settings))
    said = "6 of the 200 problems of countdown are trained on too"
    assert [said in note for note in describe(prepared).notes].count(True) == 1
    assemble(prepared)
    assert said in caplog.text
