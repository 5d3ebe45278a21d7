"""An adapter on a tiny policy, against the same model without one."""

from __future__ import annotations

import copy

import pytest
import torch

from quatro.config.blocks import LoraConfig
from quatro.loop.learn import make_objective
from quatro.policy import lora
from quatro.policy.kinds import make_policy
from quatro.policy.loading import load_model
from quatro.processes.world import World

LORA = "policy.lora.rank=4"


@pytest.fixture
def make(tiny_config):
    def policy_of(*settings: str):
        config = tiny_config(LORA, *settings)
        return make_policy(config, load_model(config.model, torch.float32, "cpu"), World(), None)

    return policy_of


def test_a_new_adapter_changes_nothing_and_is_all_that_is_trained(base, logits):
    before = logits(base)
    sizes = {name: m.weight.shape for name, m in base.named_modules() if isinstance(m, torch.nn.Linear)}
    del sizes["lm_head"]
    lora.attach(base, LoraConfig(rank=4), seed=0)
    assert torch.equal(logits(base), before)
    trained = {name: parameter.numel() for name, parameter in base.named_parameters() if parameter.requires_grad}
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    assert sum(trained.values()) == sum(4 * (rows + columns) for rows, columns in sizes.values())


def test_the_seed_alone_decides_a_new_adapter(tiny_folder):
    def drawn(seed: int, disturbance: int):
        torch.manual_seed(disturbance)
        model = load_model(str(tiny_folder), torch.float32, "cpu")
        lora.attach(model, LoraConfig(rank=4), seed=seed)
        return torch.cat(
            [layer.lora_A["default"].weight.detach().flatten() for layer in lora.adapted_layers(model).values()]
        )

    assert torch.equal(drawn(0, 1), drawn(0, 2))
    assert not torch.equal(drawn(0, 1), drawn(1, 1))
    a = drawn(0, 1)
    assert 0.1 < float(a.abs().max()) <= 32**-0.5  # kaiming-uniform's bound for 32 inputs, the fewest here


def test_merged_weights_are_the_adapted_model_under_its_plain_names(base, adapted, logits):
    names = [name for name, _ in base.named_parameters()]
    merged = dict(lora.merged_weights(adapted))
    assert list(merged) == names
    with torch.no_grad():
        for name, parameter in base.named_parameters():
            parameter.copy_(merged[name])
    assert float((logits(adapted) - logits(lora.detach(copy.deepcopy(adapted)))).abs().max()) > 0.1
    torch.testing.assert_close(logits(base), logits(adapted), rtol=0, atol=1e-5)


def test_switched_off_it_is_the_model_it_began_as(base, adapted, logits):
    with lora.switched_off(adapted):
        assert torch.equal(logits(adapted), logits(base))
    assert not torch.allclose(logits(adapted), logits(base), atol=0.1)
    assert torch.equal(logits(lora.detach(copy.deepcopy(adapted))), logits(base))
    assert [p.requires_grad for p in adapted.parameters()].count(True) == 2 * len(lora.adapted_layers(adapted))


def test_an_error_while_it_is_off_turns_it_on_again(adapted, logits):
    before = logits(adapted)
    with pytest.raises(RuntimeError), lora.switched_off(adapted):
        raise RuntimeError
    assert torch.equal(logits(adapted), before)


def test_the_reference_is_the_base_and_an_update_moves_the_adapter_alone(make, tiny_config, ragged_rows):
    policy, plain = make("kl.beta=0.1"), make_policy(
        tiny_config("kl.beta=0.1"), load_model(tiny_config().model, torch.float32, "cpu"), World(), None
    )  # fmt: skip
    frozen = {name: p.detach().clone() for name, p in policy.model.named_parameters() if not p.requires_grad}
    objective = make_objective(tiny_config("kl.beta=0.1"))
    for _ in range(3):
        done = policy.update(ragged_rows, objective, use_own_logp=True, need_entropy=False)
        assert done.is_applied
    assert all(torch.equal(p, frozen[name]) for name, p in policy.model.named_parameters() if name in frozen)
    reference, before = policy.score(ragged_rows, use_reference=True), plain.score(ragged_rows)
    assert torch.equal(reference.logp_BT, before.logp_BT)
    assert not torch.allclose(policy.score(ragged_rows).logp_BT, before.logp_BT, atol=0.01)
    assert policy.reference is None  # no second copy of the weights
    done = policy.update(ragged_rows, objective, use_own_logp=True, need_entropy=False)
    assert done.is_applied  # the pass without the adapter left it trainable


def test_the_gradient_is_that_of_the_whole_weights_through_the_product(make, tiny_config, ragged_rows, stir):
    """dL/dA = s B' dL/dW and dL/dB = s dL/dW A', with dL/dW of the merged model trained as a whole."""
    policy = make("kl.beta=0", "optimizer.max_grad_norm=1e9", "optimizer.lr=1.0")
    stir(policy.model)
    whole_config = tiny_config("kl.beta=0", "optimizer.max_grad_norm=1e9", "optimizer.lr=1.0")
    whole = make_policy(whole_config, load_model(whole_config.model, torch.float32, "cpu"), World(), None)
    with torch.no_grad():
        own = dict(whole.model.named_parameters())
        for name, weight in policy.named_weights():
            own[name].copy_(weight)
    for one in (policy, whole):
        one.optimizer = torch.optim.SGD(one.trained, lr=1.0)
    before = {name: weight.clone() for name, weight in whole.named_weights()}
    factors = {
        name: (layer.lora_A["default"].weight.detach().clone(), layer.lora_B["default"].weight.detach().clone(), layer)
        for name, layer in lora.adapted_layers(policy.model).items()
    }
    objective = make_objective(whole_config)
    for one in (policy, whole):
        one.update(ragged_rows, objective, use_own_logp=True, need_entropy=False)
    after = dict(whole.named_weights())
    for name, (a, b, layer) in factors.items():
        gradient = before[f"{name}.weight"] - after[f"{name}.weight"]
        scale = layer.scaling["default"]
        moved_a, moved_b = a - layer.lora_A["default"].weight, b - layer.lora_B["default"].weight
        for moved, expected in ((moved_a, scale * b.T @ gradient), (moved_b, scale * gradient @ a.T)):
            # Single precision: sums of large terms that cancel are as exact as the largest entry allows.
            torch.testing.assert_close(moved, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


def test_computing_activations_again_changes_nothing(make, tiny_config, ragged_rows):
    objective = make_objective(tiny_config())
    policies = [make(f"policy.gradient_checkpointing={value}") for value in ("false", "true")]
    first = [p.detach().clone() for p in policies[0].trained]
    for policy in policies:
        for _ in range(3):
            assert policy.update(ragged_rows, objective, use_own_logp=True, need_entropy=False).is_applied
    for begun, plain, checkpointed in zip(first, *(policy.trained for policy in policies), strict=True):
        assert not torch.equal(begun, plain)
        torch.testing.assert_close(checkpointed, plain, rtol=0, atol=1e-6)


def test_bfloat16_freezes_in_bfloat16_and_keeps_the_adapter_in_float32(make, ragged_rows, tiny_config):
    policy = make("dtype=bfloat16", "kl.beta=0.1")
    dtypes = {(p.requires_grad, p.dtype) for p in policy.model.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.bfloat16)}
    before = policy.snapshot()
    done = policy.update(ragged_rows, make_objective(tiny_config()), use_own_logp=True, need_entropy=True)
    assert done.is_applied
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.trained, strict=True))
