"""The gradient and the optimiser steps of verl's FSDP2 engine against those of our own trainer, in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.verl
pytest.importorskip("verl")

from engine import gradients_apart  # noqa: E402

from quatro.config import Config, load_config  # noqa: E402
from quatro.policy.rows import Rows, collate  # noqa: E402
from quatro.types import Prompt, Rollout  # noqa: E402

NUM_PROMPTS, NUM_ROLLOUTS = 4, 4


def config_of(policy_folder: Path, method: str = "quatro", **changes: object) -> Config:
    settings = {
        "model": policy_folder,
        "data.template": "chat",
        "data.max_prompt_tokens": 64,
        "dtype": "float32",
        "prompts_per_step": NUM_PROMPTS,
        "minibatch_prompts": NUM_PROMPTS,
        "rollouts_per_prompt": NUM_ROLLOUTS,
        "rollout.max_new_tokens": 10,
        "kl.beta": 0.0,
        **changes,
    }
    return load_config("math-1.5b", method=method, overrides=[f"{key}={value}" for key, value in settings.items()])


def random_rows(vocabulary: int) -> tuple[Rows, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)

    def draw(low: int, high: int, *shape: int) -> list[int]:
        return torch.randint(low, high, shape, generator=generator).tolist()

    prompts, groups = [], []
    for i in range(NUM_PROMPTS):
        prompts.append(Prompt("mine", str(i), "", "", "", tuple(draw(5, vocabulary, *draw(2, 7, 1)))))
        lengths = draw(1, 11, NUM_ROLLOUTS)
        groups.append([Rollout(tuple(draw(5, vocabulary, length)), "", "stop") for length in lengths])
    reward_B = torch.tensor(draw(0, 3, NUM_PROMPTS * NUM_ROLLOUTS)).double() / 2
    rows = collate(prompts, groups, torch.zeros_like(reward_B), max_new_tokens=10)
    noise_BT = 0.1 * torch.randn(rows.batch.mask_BT.shape, generator=generator)
    return rows, reward_B, noise_BT


@pytest.mark.parametrize("method", ["quatro", "gspo", "grpo"])  # means over rows, over rows of means, over tokens
def test_the_gradient_of_verls_engine_is_that_of_our_policy(policy_folder, method, record_property):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    rows = random_rows(model.config.vocab_size)
    for num_micro, apart in gradients_apart(config_of(policy_folder, method), model, *rows).items():
        record_property(f"gradient_apart_{num_micro}", apart)
        assert apart <= 1e-5
