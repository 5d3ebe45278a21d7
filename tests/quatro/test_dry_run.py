"""What is announced and refused before the first step."""

from __future__ import annotations

import pytest

from evals.errors import DataError, UsageError
from quatro.dry_run import batch_arithmetic, describe
from quatro.policy.loading import load_model


def test_the_batch_in_words(tiny_config):
    lines = batch_arithmetic(tiny_config(), 40)
    assert lines[0] == "1 iteration = 4 prompts x 4 rollouts = 16 rollouts of at most 10 tokens"
    assert "2 minibatches of 2 prompts x K=2 = 4 optimiser steps an iteration, each over 8 rollouts" in lines[1]
    assert lines[2] == "4 iterations = 64 rollouts, 16 optimiser steps, 0.40 passes over 40 prompts"


def test_memory_adds_up_from_parameters_and_batch(tiny_config):
    import torch

    config = tiny_config("microbatch_tokens=64")
    described = describe(config)
    model = load_model(config.model, torch.float32, "cpu")
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert described.num_parameters == num_parameters
    memory = described.memory
    assert memory.weights == memory.gradients == memory.reference == 4 * num_parameters
    assert memory.optimizer == 8 * num_parameters
    assert memory.logits == 64 * 10 // 18 * 232 * 18  # responses are 10 of at most 18 tokens a row
    assert memory.total == memory.weights * 4 + max(
        memory.gradients + memory.activations + memory.logits, memory.kv_cache
    )
    assert describe(tiny_config("kl.beta=0")).memory.reference == 0


def test_the_first_prompt_is_shown_as_text_and_ids(tiny_config):
    described = describe(tiny_config())
    assert described.first_prompt.text in "\n".join(described.lines)
    assert described.document["first_prompt"]["token_ids"] == list(described.first_prompt.token_ids)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (["policy.kind=deepspeed"], UsageError, "policy.kind=local"),
        (["rollout.engine=vllm"], UsageError, "rollout.engine=transformers"),
        (["reward=code"], UsageError, "code"),
        (["reward=no_such_module:f"], UsageError, "no_such_module"),
        (["rollout.engine=replay", "rollout.replay_file=nowhere.jsonl"], DataError, "nowhere.jsonl"),
        (["eval.every=1", "eval.benchmark=nope"], UsageError, "nope"),
    ],
)
def test_what_a_run_would_stumble_over_is_refused_first(tiny_config, settings, error, words):
    with pytest.raises(error, match=words):
        describe(tiny_config(*settings))


def test_prompts_that_the_reward_cannot_judge_are_refused_first(tiny_config, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(
        '{"id": "a", "problem": "7 2 7 6 2 8 -> 67", "answer": "no prompt"}\n', encoding="utf-8"
    )
    with pytest.raises(DataError, match="countdown prompt"):
        describe(tiny_config(f"data.prompts={tmp_path / 'prompts.jsonl'}", "data.template=plain"))
