"""The policy's forward pass and optimiser step."""

import copy

import pytest
import torch

from quatro.loop.learn import make_objective
from quatro.policy.facts import has_plain_head
from quatro.policy.loading import load_model
from quatro.policy.torch_policy import LocalPolicy
from quatro.registry import METHODS


@pytest.fixture
def policy(tiny_config):
    config = tiny_config()
    return LocalPolicy(load_model(config.model, torch.float32, "cpu"), config)


def test_log_probs_and_entropy_equal_a_plain_forward_of_each_row_alone(policy, ragged_rows):
    rows = ragged_rows
    scored = policy.score(rows, need_entropy=True)
    for i in range(len(rows)):
        start, length = int(rows.prompt_length_B[i]), int(rows.batch.mask_BT[i].sum())
        with torch.no_grad():
            logits = policy.model(rows.ids_BL[i : i + 1, : start + length]).logits[0, start - 1 : start + length - 1]
        log_probs = logits.log_softmax(-1)
        picked = log_probs[torch.arange(length), rows.ids_BL[i, start : start + length]]
        torch.testing.assert_close(scored.logp_BT[i, :length], picked, atol=2e-5, rtol=1e-5)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        torch.testing.assert_close(scored.entropy_BT[i, :length], entropy, atol=2e-5, rtol=1e-5)
    assert (scored.logp_BT[~rows.batch.mask_BT] == 0).all()
    assert float(scored.logp_BT.max()) <= 0


@pytest.mark.parametrize("method", sorted(METHODS))
def test_micro_batch_size_never_changes_the_step(tiny_config, method, ragged_rows):
    config = tiny_config("entropy_coefficient=0.01", "kl.beta=0.1", "optimizer.lr=1.0", method=method)
    rows = ragged_rows
    weights = []
    model = load_model(config.model, torch.float32, "cpu")
    untrained = torch.cat([p.detach().flatten() for p in model.parameters()])
    for tokens in (10**6, 20, 1):
        policy = LocalPolicy(copy.deepcopy(model), config)
        policy.optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)  # Adam would hide a wrong scale
        policy.microbatch.tokens = tokens
        policy.max_grad_norm = 1e9
        policy.update(rows, make_objective(config), use_own_logp=False, need_entropy=False)
        weights.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
    moved = (weights[0] - untrained).norm()
    assert moved > 1e-3
    for other in weights[1:]:
        assert (other - weights[0]).norm() < 1e-5 * moved


def test_minibatches_hold_whole_groups_and_every_row_once(ragged_rows):
    rows = ragged_rows
    seen = torch.cat(list(rows.minibatches(3)))
    assert sorted(seen.tolist()) == list(range(12))
    assert [len(index) for index in rows.minibatches(3)] == [9, 3]


def test_microbatches_stay_within_the_token_budget(ragged_rows):
    rows = ragged_rows
    parts = list(rows.microbatches(24))
    assert sorted(torch.cat(parts).tolist()) == list(range(12))
    for index in parts:
        assert len(index) * int(rows.total_length_B[index].max()) <= 24
        assert rows.select(index).ids_BL.shape[1] == int(rows.total_length_B[index].max())


def test_own_log_probs_are_the_recomputed_ones(policy, tiny_config, ragged_rows):
    objective = make_objective(tiny_config("kl.beta=0"))
    rows = ragged_rows.with_batch(ref_logp_BT=None)
    twin = LocalPolicy(copy.deepcopy(policy.model), tiny_config("kl.beta=0"))
    policy.update(rows, objective, use_own_logp=True, need_entropy=False)
    twin.update(
        rows.with_batch(old_logp_BT=twin.score(rows).logp_BT), objective, use_own_logp=False, need_entropy=False
    )
    for one, other in zip(policy.model.parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_a_step_that_is_not_finite_is_not_taken(policy, tiny_config, ragged_rows):
    rows = ragged_rows
    rows = rows.with_batch(advantage_B=torch.full_like(rows.batch.advantage_B, torch.inf))
    before = policy.snapshot()
    update = policy.update(rows, make_objective(tiny_config()), use_own_logp=False, need_entropy=False)
    assert not update.is_finite
    for one, other in zip(before, policy.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_optimizer_state_survives_a_round_trip(policy, tiny_config, ragged_rows):
    config, rows = tiny_config("optimizer.warmup_steps=5"), ragged_rows
    objective = make_objective(config)
    policy = LocalPolicy(policy.model, config)
    for _ in range(2):
        policy.update(rows, objective, use_own_logp=False, need_entropy=False)
    twin = LocalPolicy(copy.deepcopy(policy.model), config)
    twin.load_state(*policy.state())
    assert twin.lr == policy.lr == pytest.approx(1e-2 * 3 / 5)
    for one in (policy, twin):
        one.update(rows, objective, use_own_logp=False, need_entropy=False)
    for one, other in zip(policy.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_rate_falls_over_the_steps_that_the_run_plans_and_goes_on_after_a_round_trip(
    policy, tiny_config, ragged_rows, kind
):
    config = tiny_config(
        *("optimizer.warmup_steps=2", f"optimizer.schedule={kind}", "optimizer.min_lr=1e-3", "steps=3"),
        *("prompts_per_step=4", "minibatch_prompts=2", "inner_updates=1"),
    )
    assert config.optimizer_steps == 6
    objective, policy = make_objective(config), LocalPolicy(policy.model, config)
    rates = []
    for step in range(7):
        rates.append(policy.lr)
        if step == 3:
            twin = LocalPolicy(copy.deepcopy(policy.model), config)
            twin.load_state(*policy.state())
            assert twin.lr == policy.lr
            policy = twin
        policy.update(ragged_rows, objective, use_own_logp=False, need_entropy=False)
    falling = {"linear": [1, 0.75, 0.5, 0.25], "cosine": [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]}[kind]
    expected = [0.5e-2, 1e-2, *(1e-3 + 9e-3 * share for share in falling), 1e-3]
    assert rates == pytest.approx(expected)


def test_temperature_divides_the_logits_but_not_the_entropy(tiny_config, ragged_rows):
    config = tiny_config("rollout.temperature=0.5")
    policy = LocalPolicy(load_model(config.model, torch.float32, "cpu"), config)
    plain = LocalPolicy(policy.model, tiny_config())
    rows = ragged_rows
    hot, one = policy.score(rows, need_entropy=True), plain.score(rows, need_entropy=True)
    torch.testing.assert_close(hot.entropy_BT, one.entropy_BT)
    assert not torch.allclose(hot.logp_BT, one.logp_BT)


def test_a_model_that_caps_its_logits_is_scored_through_its_whole_forward(tiny_config, ragged_rows):
    """Gemma 2 squeezes logits through tanh after the output embedding: base model and head alone would be wrong."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    shape = Gemma2Config(
        vocab_size=232,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        final_logit_softcapping=2.0,
        initializer_range=0.5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Gemma2ForCausalLM(shape).eval()
    rows = ragged_rows
    scored_BT = LocalPolicy(model, tiny_config()).score(rows).logp_BT
    row, start = 2, int(rows.prompt_length_B[2])
    length = int(rows.batch.mask_BT[row].sum())
    ids = rows.ids_BL[row : row + 1, : start + length]
    with torch.no_grad():
        log_probs = model(ids).logits[0, start - 1 : -1].log_softmax(-1)
    expected = log_probs[torch.arange(length), ids[0, start:]]
    torch.testing.assert_close(scored_BT[row, :length], expected, atol=2e-5, rtol=1e-5)
    assert not has_plain_head(model)


@pytest.mark.parametrize(("scale", "is_plain"), [(1.0, True), (1 + 1e-5, True), (1.01, False)])
def test_a_head_is_plain_up_to_rounding(tiny_folder, monkeypatch, scale, is_plain):
    model = load_model(str(tiny_folder), torch.float32, "cpu")
    forward = model.forward

    def scaled(**inputs):
        output = forward(**inputs)
        output.logits *= scale
        return output

    monkeypatch.setattr(model, "forward", scaled)
    assert has_plain_head(model) is is_plain
