"""verl's FSDP2 engine on a pretrained model of 135M parameters: the gradient is that of our own policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.real
pytest.importorskip("verl")

from engine import gradients_apart  # noqa: E402

from quatro.config import load_config  # noqa: E402
from quatro.policy.loading import load_model, load_tokenizer  # noqa: E402
from quatro.policy.rows import collate  # noqa: E402
from quatro.rewards import make_reward  # noqa: E402
from quatro.rollout.prompts import load_sources, to_prompts  # noqa: E402
from quatro.types import Prompt, Rollout  # noqa: E402
from tests.kit import rewards  # noqa: E402

LONGEST = 48


def drawn(prompt: Prompt, model: Any, tokenizer: Any) -> list[Rollout]:
    """Four responses by `generate`: our own engine needs a newer transformers than verl takes."""
    options = {"do_sample": True, "top_k": 0, "num_return_sequences": 4, "max_new_tokens": LONGEST}
    ids = torch.tensor([prompt.token_ids])
    found = []
    for row in model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :].tolist():
        end = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
        found.append(Rollout(tuple(row[:end]), tokenizer.decode(row[:end], skip_special_tokens=True), "stop"))
    return found


def test_the_gradient_of_4_x_4_responses_is_that_of_our_policy(started, record_property):
    """Responses of the model, graded; verl has its prompts as a chat, and here only their token ids count."""
    settings = {
        "model": started,
        "data.template": "chat",
        "prompts_per_step": 4,
        "minibatch_prompts": 4,
        "rollouts_per_prompt": 4,
        "rollout.max_new_tokens": LONGEST,
        "microbatch_tokens": 1024,
    }
    config = load_config("smollm2", overrides=[f"{key}={value}" for key, value in settings.items()])
    model, tokenizer = load_model(str(started), torch.float32, "cpu"), load_tokenizer(str(started))
    prompts = list(to_prompts(load_sources(config.data)[0].problems[:4], "question", tokenizer))
    torch.manual_seed(0)
    groups = [drawn(prompt, model, tokenizer) for prompt in prompts]
    reward = make_reward("math")
    reward_B = torch.tensor(rewards(reward.score(prompts, groups))).double().flatten()
    reward.close()
    assert 0 < reward_B.mean() < 1
    rows = collate(prompts, groups, torch.zeros_like(reward_B), max_new_tokens=LONGEST)
    noise_BT = 0.1 * torch.randn(rows.batch.mask_BT.shape, generator=torch.Generator().manual_seed(1))
    for num_micro, apart in gradients_apart(config, model, rows, reward_B, noise_BT).items():
        record_property(f"gradient_apart_{num_micro}", apart)
        assert apart < 1e-4  # rounding, of 30 layers and of batches that are padded otherwise
