"""Casts that several passes share change no number, and none outlives the step that they belong to."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from transformers import AutoModelForCausalLM, CohereConfig, GPT2Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig

from quatro.loop.learn import make_objective
from quatro.policy.casts import cast_once
from quatro.policy.kinds import make_policy
from quatro.policy.loading import load_model
from quatro.processes.world import World

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHAPES = {
    "qwen2": lambda size: Qwen2Config(vocab_size=size, **SIZES),
    "qwen3": lambda size: Qwen3Config(vocab_size=size, **SIZES),
    "experts": lambda size: Qwen3MoeConfig(vocab_size=size, **SIZES | EXPERTS),
    "parallel halves": lambda size: CohereConfig(vocab_size=size, **SIZES, pad_token_id=0),
    "no linear layers": lambda size: GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4),
}


def learnt(config, shape, rows, monkeypatch, *, is_shared: bool):
    """Weights after three steps, and what is then scored by the policy and by the reference."""
    torch.manual_seed(0)
    model = load_model(config.model, torch.float32, "cpu")
    if shape != "tiny":
        model = AutoModelForCausalLM.from_config(SHAPES[shape](model.config.vocab_size)).eval()
    policy = make_policy(config, model, World(), None)
    with monkeypatch.context() as patch:
        if not is_shared:
            patch.setattr(policy, "_casting", nullcontext)
        for _ in range(3):
            assert policy.update(rows, make_objective(config), use_own_logp=True, need_entropy=True).is_applied
        scored = [policy.score(rows, need_entropy=True, use_reference=which) for which in (False, True)]
    assert {weight.dtype for weight in policy.trained} == {torch.float32}
    return [weight.detach() for weight in policy.trained], [one.logp_BT for one in scored]


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        *((shape, ()) for shape in ("tiny", *SHAPES)),
        ("qwen2", ("policy.gradient_checkpointing=true",)),
        ("qwen2", ("policy.lora.rank=4",)),
    ],
)
def test_weights_and_scores_are_those_of_autocast_to_the_last_bit(
    tiny_config, ragged_rows, monkeypatch, shape, settings
):
    given = ("dtype=bfloat16", "kl.beta=0.1", "microbatch_tokens=20", "optimizer.lr=1e-2", *settings)
    config = tiny_config(*given)
    rows = ragged_rows.with_batch(ref_logp_BT=ragged_rows.batch.old_logp_BT)
    assert len(list(rows.microbatches(20))) > 2
    shared, apart = (learnt(config, shape, rows, monkeypatch, is_shared=which) for which in (True, False))
    for found, expected in zip(shared, apart, strict=True):
        assert all(map(torch.equal, found, expected))


def test_an_error_leaves_the_weights_as_they_were(base):
    def fail() -> None:
        with cast_once(base):
            dtypes.update({name: weight.dtype for name, weight in base.named_parameters()})
            raise KeyError

    weights, dtypes = [*base.parameters()], {}
    with pytest.raises(KeyError):
        fail()
    single = {name for name, dtype in dtypes.items() if dtype == torch.float32}
    assert single == {name for name in dtypes if "norm" in name or "embed" in name}
    assert all(map(lambda one, other: one is other, weights, base.parameters()))
    assert not any(module._forward_pre_hooks for module in base.modules())
