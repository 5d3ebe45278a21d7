"""The gradient and the optimiser steps of verl's FSDP2 engine against those of our own trainer, in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.verl
pytest.importorskip("verl")

from engine import VerlEngine  # noqa: E402

from quatro.config import Config, load_config  # noqa: E402
from quatro.loop.learn import make_objective  # noqa: E402
from quatro.policy.rows import Rows, collate  # noqa: E402
from quatro.policy.torch_policy import LocalPolicy  # noqa: E402
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


def relative_difference(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]) -> float:
    assert theirs.keys() == ours.keys()
    gap = sum((theirs[name] - ours[name]).square().sum() for name in ours)
    return float((gap / sum(value.square().sum() for value in ours.values())).sqrt())


@pytest.mark.parametrize("method", ["quatro", "gspo", "grpo"])  # means over rows, over rows of means, over tokens
def test_the_gradient_of_verls_engine_is_that_of_our_policy(policy_folder, method, monkeypatch, record_property):
    from transformers import AutoModelForCausalLM

    config = config_of(policy_folder, method)
    model = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    policy = LocalPolicy(model, config)
    kept: dict[str, torch.Tensor] = {}
    step = LocalPolicy.take_step

    def keeping(self: LocalPolicy, loss_sum: torch.Tensor):
        kept.update({name: weight.grad.clone() for name, weight in self.model.named_parameters()})
        kept["loss"] = loss_sum
        return step(self, loss_sum)

    monkeypatch.setattr(LocalPolicy, "take_step", keeping)
    rows, reward_B, noise_BT = random_rows(model.config.vocab_size)
    rows = rows.with_batch(old_logp_BT=policy.score(rows).logp_BT + noise_BT)
    advantage_B = config.method.advantages(reward_B, rows.batch.group_B).value_B
    rows = rows.with_batch(advantage_B=advantage_B)
    engine = VerlEngine(config)
    theirs_BT = engine.logp(rows, rows_at_a_time=4)
    torch.testing.assert_close(
        theirs_BT[rows.batch.mask_BT], policy.score(rows).logp_BT[rows.batch.mask_BT], rtol=1e-5, atol=1e-5
    )
    policy.update(rows, make_objective(config), use_own_logp=False, need_entropy=False)
    loss = float(kept.pop("loss"))
    advantage_BT = engine.advantages(rows, reward_B)
    for num_micro in (1, 2, 4):
        found, gradients = engine.gradient(rows, advantage_BT, rows_at_a_time=len(rows) // num_micro)
        difference = relative_difference(gradients, kept)
        record_property(f"gradient_apart_{num_micro}", difference)
        assert found == pytest.approx(loss, rel=1e-5, abs=1e-6)
        assert difference <= 1e-5
