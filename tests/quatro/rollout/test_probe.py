"""The probe sequence: what it is made of, and which differences it lets pass."""

import dataclasses
import math

import pytest
import torch

from evals.errors import DivergedError
from quatro.policy.loading import load_model, load_tokenizer
from quatro.policy.torch_policy import LocalPolicy
from quatro.rollout.probe import Probe, make_probe, policy_score, probe_vocabulary
from quatro.types import Prompt, Rollout, Sampling

PROMPT = Prompt("probe", "probe", "", None, "", (5, 6, 7))


def probe_of(policy_logp, dtype="float32"):
    return Probe(PROMPT, Sampling(), lambda prompt, rollout: policy_logp, dtype)


def drawn(logp):
    return Rollout(tuple(range(len(logp))), "", "length", tuple(logp))


def test_rounding_passes_and_is_reported():
    metrics = probe_of([-1.0, -2.0]).compare(drawn([-1.0, -2.00004]))
    assert metrics["sync/probe_dlogp_max"] == pytest.approx(4e-5)
    assert metrics["sync/probe_dlogp_mean"] == pytest.approx(2e-5)


def test_fault_44_a_difference_names_the_token_the_size_and_what_is_allowed():
    with pytest.raises(DivergedError, match=r"0\.5 nats.*float32: 0\.0001.*token 1 .* -2\.50000 .* -2\.00000"):
        probe_of([-1.0, -2.0, -3.0]).compare(drawn([-1.0, -2.5, -3.0]))


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_not_finite_never_passes(bad, dtype):
    with pytest.raises(DivergedError):
        probe_of([-1.0, bad], dtype).compare(drawn([-1.0, -2.0]))
    with pytest.raises(DivergedError):
        probe_of([-1.0, -2.0], dtype).compare(drawn([-1.0, bad]))


def test_in_bfloat16_one_token_may_be_off_and_all_of_them_may_not():
    policy = [-float(i) for i in range(32)]
    probe_of(policy, "bfloat16").compare(drawn([*policy[:-1], policy[-1] - 0.5]))
    with pytest.raises(DivergedError, match="on average"):
        probe_of(policy, "bfloat16").compare(drawn([logp - 0.2 for logp in policy]))


def test_a_probe_is_longer_than_a_block_of_the_prefix_cache_and_always_the_same():
    vocabulary = list(range(10, 500))
    first = make_probe(lambda p, r: [], vocabulary=vocabulary, context=4096, temperature=0.7, dtype="float32")
    again = make_probe(lambda p, r: [], vocabulary=vocabulary, context=None, temperature=0.7, dtype="float32")
    assert first.prompt == again.prompt
    assert len(first.prompt.token_ids) > 128
    assert len(set(first.prompt.token_ids)) > 100
    assert set(first.prompt.token_ids) <= set(vocabulary)
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (0.7, 1.0, 0)
    assert len(first.prompt.token_ids) + first.sampling.max_new_tokens == 192


@pytest.mark.parametrize("context", [2, 3, 64, 150, 191])
def test_a_probe_fits_a_short_context(context):
    probe = make_probe(lambda p, r: [], vocabulary=range(9), context=context, temperature=1.0, dtype="float32")
    assert len(probe.prompt.token_ids) + probe.sampling.max_new_tokens <= context
    assert min(len(probe.prompt.token_ids), probe.sampling.max_new_tokens) >= 1


def test_special_ids_and_ids_beyond_the_embedding_are_left_out(tiny_folder):
    tokenizer = load_tokenizer(str(tiny_folder))
    found = probe_vocabulary(tokenizer, 100)
    assert found == sorted(found)
    assert not set(found) & set(tokenizer.all_special_ids)
    assert 50 < len(found) <= 100 - 2
    assert max(found) < 100


def test_the_policy_scores_a_rollout_as_its_forward_pass_does(tiny_config, tiny_folder):
    config = tiny_config("rollout.temperature=0.7")
    model = load_model(str(tiny_folder), torch.float32, "cpu")
    prompt, rollout = dataclasses.replace(PROMPT, token_ids=(9, 8, 7, 6)), drawn([0.0] * 5)
    logits = model(torch.tensor([prompt.token_ids + rollout.token_ids])).logits[0] / 0.7
    expected = logits.log_softmax(-1)[3:-1].gather(-1, torch.tensor(rollout.token_ids)[:, None])[:, 0]
    found = policy_score(LocalPolicy(model, config), prompt, rollout)
    torch.testing.assert_close(torch.tensor(found), expected.detach(), atol=1e-5, rtol=0)
