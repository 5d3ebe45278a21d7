"""vLLM against the policy's own forward pass: log-probabilities, weights, seeds, stop tokens, distributions."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
from scipy import stats

from evals.errors import DataError, DivergedError, UsageError
from quatro.policy.loading import load_model
from quatro.rollout import vllm
from quatro.rollout.engine import rollout_seed
from quatro.rollout.probe import make_probe, probe_vocabulary
from quatro.types import Prompt, Rollout, Sampling

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

EOS = (0, 1, 2)
VOCABULARY, CONTEXT = 64, 512


def score(model, prompt: Prompt, rollout: Rollout, temperature: float = 1.0) -> list[float]:
    ids = torch.tensor([prompt.token_ids + rollout.token_ids])
    with torch.no_grad():
        logp = (model(ids).logits[0].float() / temperature).log_softmax(-1)
    return logp[len(prompt.token_ids) - 1 : -1].gather(-1, ids[0, len(prompt.token_ids) :, None])[:, 0].tolist()


def largest_difference(model, prompts, groups, temperature=1.0) -> float:
    return max(
        abs(a - b)
        for prompt, group in zip(prompts, groups, strict=True)
        for rollout in group
        for a, b in zip(rollout.logp, score(model, prompt, rollout, temperature), strict=True)
    )


def make_prompts(*lengths: int) -> list[Prompt]:
    rng = np.random.default_rng(1)
    return [
        Prompt("toy", f"p{i}", "", None, "", tuple(rng.integers(3, VOCABULARY, length).tolist()))
        for i, length in enumerate(lengths)
    ]


def make_seeds(prompts, n, step=0):
    return [[rollout_seed(0, step, prompt.id, j) for j in range(n)] for prompt in prompts]


def move(model, scale=0.3) -> None:
    """What an optimiser step does, only larger."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std().clamp(min=0.02) * scale)


class Pair:
    """An engine and the policy that it follows."""

    def __init__(self, folder, open_engine, **settings) -> None:
        self.policy = load_model(str(folder), torch.float32, "cpu")
        self.first = {name: value.clone() for name, value in self.policy.state_dict().items()}
        probe = make_probe(
            lambda prompt, rollout: score(self.policy, prompt, rollout),
            vocabulary=range(3, VOCABULARY),
            context=CONTEXT,
            temperature=1.0,
            dtype="float32",
        )
        self.engine = open_engine(folder, probe=probe, **settings)

    def weights(self):
        return ((name, parameter.detach()) for name, parameter in self.policy.named_parameters())

    def sync(self) -> dict[str, float]:
        return dict(self.engine.sync(self.weights))


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def shared_pair(request, make_folder, open_engine) -> Pair:
    return Pair(make_folder(tied=request.param), open_engine)


@pytest.fixture
def pair(shared_pair) -> Pair:
    """Both with the weights of the folder."""
    torch.manual_seed(0)
    shared_pair.policy.load_state_dict(shared_pair.first)
    shared_pair.sync()
    return shared_pair


def test_log_probs_are_the_policys_after_every_one_of_five_updates(pair):
    prompts = make_prompts(3, 150, 200, 290)
    for step in range(6):
        if step:
            move(pair.policy)
        metrics = pair.sync()
        assert metrics["sync/probe_dlogp_max"] < 1e-4
        groups = pair.engine.generate(prompts, make_seeds(prompts, 4, step), Sampling(max_new_tokens=24))
        assert largest_difference(pair.policy, prompts, groups) < 1e-4


@pytest.mark.parametrize("stop", [(), ("3",)])
def test_draws_are_the_same_whoevers_log_probs_are_asked_for(pair, monkeypatch, stop):
    prompts = make_prompts(3, 150, 20)
    drawn: dict[int, list[Rollout]] = {}
    for every in (1, 8, 0):
        monkeypatch.setattr(pair.engine, "logp_every", every)
        groups = pair.engine.generate(prompts, make_seeds(prompts, 6), Sampling(max_new_tokens=24, stop=stop))
        drawn[every] = [rollout for group in groups for rollout in group]
        asked = [number for number, rollout in enumerate(drawn[every]) if rollout.logp is not None]
        assert asked == ([] if every == 0 else list(range(0, 18, every)))
        same = [(rollout.token_ids, rollout.text, rollout.finish_reason) for rollout in drawn[every]]
        assert same == [(rollout.token_ids, rollout.text, rollout.finish_reason) for rollout in drawn[1]]
    for number in (0, 8, 16):
        assert drawn[8][number].logp == pytest.approx(drawn[1][number].logp, abs=1e-6)


def test_fault_44_weights_that_were_not_sent_are_noticed(pair):
    stale = [(name, weight.clone()) for name, weight in pair.weights()]
    move(pair.policy, scale=0.02)
    with pytest.raises(DivergedError, match="engine and policy disagree"):
        pair.engine.sync(lambda: iter(stale))


@pytest.mark.parametrize("part", ["layers.1.mlp.down_proj.weight", "layers.0.self_attn.k_proj.bias", "model.norm"])
def test_a_single_wrong_tensor_is_noticed(pair, part):
    def tampered():
        for name, weight in pair.weights():
            yield name, weight * 1.05 + 0.01 if part in name else weight

    with pytest.raises(DivergedError, match="engine and policy disagree"):
        pair.engine.sync(tampered)


def test_a_tied_head_that_keeps_its_old_weights_is_noticed(pair, monkeypatch):
    if not pair.policy.config.tie_word_embeddings:
        pytest.skip("the head is loaded like any other layer")
    monkeypatch.setattr(vllm, "_repack_head", lambda model: None)
    move(pair.policy)
    with pytest.raises(DivergedError, match="engine and policy disagree"):
        pair.sync()
    monkeypatch.undo()
    pair.sync()


def test_prompts_cached_under_old_weights_are_noticed(pair, monkeypatch):
    move(pair.policy)
    monkeypatch.setattr(pair.engine._llm, "reset_prefix_cache", lambda: True)
    with pytest.raises(DivergedError, match="engine and policy disagree"):
        pair.sync()
    monkeypatch.undo()
    pair.sync()


def test_a_cache_that_vllm_refuses_to_forget_stops_the_run(pair, monkeypatch):
    monkeypatch.setattr(pair.engine._llm, "reset_prefix_cache", lambda: False)
    with pytest.raises(DivergedError, match="cached under the old weights"):
        pair.sync()


def test_the_same_seeds_give_the_same_rollouts_however_they_are_batched(pair):
    prompts = make_prompts(5, 140, 40, 7)
    seeds, sampling = make_seeds(prompts, 6), Sampling(max_new_tokens=20)
    whole = pair.engine.generate(prompts, seeds, sampling)
    for prompt, group, expected in zip(prompts, seeds, whole, strict=True):
        (found,) = pair.engine.generate([prompt], [group[2:]], sampling)
        assert [r.token_ids for r in found] == [r.token_ids for r in expected[2:]]
    turned = pair.engine.generate(prompts[::-1], [group[::-1] for group in seeds[::-1]], sampling)
    assert [[r.token_ids for r in g[::-1]] for g in turned[::-1]] == [[r.token_ids for r in g] for g in whole]
    ones = [
        [pair.engine.generate([prompt], [[seed]], sampling)[0][0].token_ids for seed in group[:2]]
        for prompt, group in zip(prompts, seeds, strict=True)
    ]
    assert ones == [[r.token_ids for r in group[:2]] for group in whole]


def test_more_prompt_tokens_than_one_step_reads_change_nothing(pair):
    prompts = make_prompts(*[140] * 80)  # 11,200 tokens, no two prompts share a prefix
    assert sum(len(prompt.token_ids) for prompt in prompts) > vllm.CPU_STEP_TOKENS
    seeds, sampling = make_seeds(prompts, 2), Sampling(max_new_tokens=6)
    groups = pair.engine.generate(prompts, seeds, sampling)
    assert largest_difference(pair.policy, prompts, groups) < 1e-4
    for start in range(0, 80, 10):
        part = pair.engine.generate(prompts[start : start + 10], seeds[start : start + 10], sampling)
        assert [[r.token_ids for r in g] for g in part] == [
            [r.token_ids for r in g] for g in groups[start : start + 10]
        ]


def test_other_seeds_and_other_prompts_draw_their_own_noise(pair):
    (prompt,) = make_prompts(20)
    (group,) = pair.engine.generate([prompt], make_seeds([prompt], 16), Sampling(max_new_tokens=20))
    assert len({r.token_ids[:6] for r in group}) > 8
    (again,) = pair.engine.generate([prompt], make_seeds([prompt], 16, step=1), Sampling(max_new_tokens=20))
    assert [r.token_ids for r in again] != [r.token_ids for r in group]
    large = [[2**64 - 1, 2**64 - 2, 0, 1]]  # seeds have 64 bits
    (four,) = pair.engine.generate([prompt], large, Sampling(max_new_tokens=20))
    assert len({r.token_ids[:6] for r in four}) == 4


def test_responses_end_with_the_stop_token_or_at_the_limit(pair):
    prompts = make_prompts(10, 12)
    groups = pair.engine.generate(prompts, make_seeds(prompts, 64), Sampling(max_new_tokens=16))
    reasons = set()
    for rollout in (r for group in groups for r in group):
        reasons.add(rollout.finish_reason)
        body, last = rollout.token_ids[:-1], rollout.token_ids[-1]
        assert not set(body) & set(EOS)
        assert (rollout.finish_reason == "stop") == (last in EOS)
        assert rollout.finish_reason == "stop" or len(rollout.token_ids) == 16
        assert rollout.text == " ".join(str(i) for i in rollout.token_ids if i not in EOS)
        assert len(rollout.logp) == len(rollout.token_ids)
        assert rollout.entropy is None
    assert reasons == {"stop", "length"}
    drawn = {r.token_ids[-1] for group in groups for r in group if r.finish_reason == "stop"}
    assert drawn == set(EOS)  # the tokenizer's and those of the loader alike


def test_a_response_ends_where_the_context_does_and_a_prompt_must_leave_room(pair, caplog):
    prompts = make_prompts(CONTEXT - 3)
    (group,) = pair.engine.generate(prompts, make_seeds(prompts, 4), Sampling(max_new_tokens=16))
    assert max(len(r.token_ids) for r in group) == 3
    assert {r.finish_reason for r in group if r.token_ids[-1] not in EOS} == {"length"}
    assert "fewer than max_new_tokens=16" in caplog.text
    with pytest.raises(DataError, match="no room"):
        pair.engine.generate(make_prompts(CONTEXT), [[1]], Sampling())


@pytest.mark.parametrize("truncation", [{}, {"top_p": 0.8}, {"top_k": 5}])
def test_tokens_follow_the_policys_distribution(pair, truncation):
    (prompt,) = make_prompts(9)
    n = 3000
    (group,) = pair.engine.generate([prompt], make_seeds([prompt], n, step=5), Sampling(max_new_tokens=1, **truncation))
    with torch.no_grad():
        prob = pair.policy(torch.tensor([prompt.token_ids])).logits[0, -1].double().softmax(-1)
    order = prob.argsort(descending=True)
    kept = truncation.get("top_k", VOCABULARY)
    if "top_p" in truncation:  # the smallest set whose mass reaches p
        kept = int((prob[order].cumsum(-1) < truncation["top_p"]).sum()) + 1
    expected = torch.zeros_like(prob)
    expected[order[:kept]] = prob[order[:kept]] / prob[order[:kept]].sum()
    count = torch.bincount(torch.tensor([r.token_ids[0] for r in group]), minlength=VOCABULARY).double()
    assert count[expected == 0].sum() == 0
    is_common = expected * n >= 5
    observed = [*count[is_common].tolist(), count[~is_common].sum().item()]
    wanted = [*(expected[is_common] * n).tolist(), (expected[~is_common].sum() * n).item()]
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    assert len(wanted) >= 5
    assert stats.chisquare(observed, wanted).pvalue > 1e-3
    # The log-probability is the policy's own, not that of the truncated distribution.
    assert largest_difference(pair.policy, [prompt], [group[:50]]) < 1e-4


def test_greedy_is_the_argmax_and_certain(pair):
    prompts = make_prompts(9, 30)
    groups = pair.engine.generate(prompts, [[1, 2], [3]], Sampling(temperature=0.0, max_new_tokens=5))
    for prompt, group in zip(prompts, groups, strict=True):
        ids = torch.tensor([prompt.token_ids])
        with torch.no_grad():
            assert group[0].token_ids[0] == int(pair.policy(ids).logits[0, -1].argmax())
        assert all(rollout.token_ids == group[0].token_ids for rollout in group)
        assert group[0].logp == (0.0,) * len(group[0].token_ids)


def test_a_log_prob_that_vllm_would_define_otherwise_is_unknown(pair):
    prompts = make_prompts(9)
    (group,) = pair.engine.generate(prompts, [[1]], Sampling(temperature=0.7, max_new_tokens=4))
    assert group[0].logp is None
    with pytest.raises(UsageError, match=r"0\.01 to 2"):
        pair.engine.generate(prompts, [[1]], Sampling(temperature=3.0))


def test_progress_counts_rollouts_and_tokens(pair):
    prompts = make_prompts(4, 6)
    reports = []
    groups = pair.engine.generate(
        prompts, make_seeds(prompts, 9), Sampling(max_new_tokens=12), progress=lambda *now: reports.append(now)
    )
    assert reports == sorted(reports)
    assert reports[-1] == (18, sum(len(r.token_ids) for group in groups for r in group))
    assert len(reports) > 3


def test_after_an_interruption_the_next_call_gets_its_own_rollouts(pair):
    prompts = make_prompts(4, 6)
    seeds, sampling = make_seeds(prompts, 9), Sampling(max_new_tokens=12)
    expected = pair.engine.generate(prompts, seeds, sampling)

    def stop(num_finished, num_tokens):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.engine.generate(prompts, seeds, sampling, progress=stop)
    assert pair.engine.generate(prompts, seeds, sampling) == expected


def test_nothing_of_the_process_changes_while_drawing(pair):
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    prompts = make_prompts(4)
    pair.engine.generate(prompts, [[1, 2]], Sampling(max_new_tokens=4))
    pair.sync()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # noqa: NPY002


def test_nan_weights_are_an_error_not_a_response(pair):
    broken = [(name, torch.full_like(weight, torch.nan)) for name, weight in pair.weights()]
    with pytest.raises(DivergedError, match="not finite"):
        pair.engine.sync(lambda: iter(broken))


def test_making_an_engine_leaves_the_process_alone(make_folder, open_engine):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    states = torch.get_rng_state(), random.getstate(), torch.get_num_threads(), torch.set_num_threads
    engine = open_engine(make_folder(tied=True), temperature=0.7)
    assert {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")} == environment
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), torch.get_num_threads(), torch.set_num_threads) == states[1:]
    engine.close()
    engine.close()
    assert not torch.distributed.is_initialized()


def test_at_the_training_temperature_the_log_prob_is_that_of_the_tempered_policy(make_folder, open_engine):
    folder = make_folder(tied=True)
    engine = open_engine(folder, temperature=0.7)
    policy = load_model(str(folder), torch.float32, "cpu")
    prompts = make_prompts(5, 150)
    groups = engine.generate(prompts, make_seeds(prompts, 4), Sampling(temperature=0.7, max_new_tokens=16))
    assert largest_difference(policy, prompts, groups, temperature=0.7) < 1e-4
    truncated = engine.generate(prompts, [[1], [2]], Sampling(temperature=0.7, top_p=0.8, max_new_tokens=4))
    assert {rollout.logp for group in truncated for rollout in group} == {None}


def test_in_bfloat16_right_weights_pass_and_wrong_ones_do_not(make_folder, open_engine):
    torch.manual_seed(0)
    folder = make_folder(tied=True)
    policy = load_model(str(folder), torch.float32, "cpu")

    def score_in_bfloat16(prompt, rollout):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return score(policy, prompt, rollout)

    probe = make_probe(
        score_in_bfloat16, vocabulary=range(3, VOCABULARY), context=CONTEXT, temperature=1.0, dtype="bfloat16"
    )
    engine = open_engine(folder, probe=probe, dtype="bfloat16")
    for _ in range(3):
        move(policy)
        metrics = engine.sync(lambda: ((name, p.detach()) for name, p in policy.named_parameters()))
        assert 0 < metrics["sync/probe_dlogp_mean"] < 0.12
    before = [(name, p.detach().clone()) for name, p in policy.named_parameters()]
    move(policy)
    with pytest.raises(DivergedError, match="on average"):
        engine.sync(lambda: iter(before))


def test_heads_that_the_cpu_kernels_do_not_have_are_refused(make_folder, open_engine):
    if vllm.check_usable() != "cpu":
        pytest.skip("the restriction is that of vLLM's CPU attention")
    with pytest.raises(UsageError, match="16 dimensions"):
        open_engine(make_folder(tied=True, head_dim=16))


def test_a_model_that_vllm_does_not_know_is_a_message(make_folder, open_engine):
    folder = make_folder(tied=True)
    with pytest.raises(UsageError, match="vLLM cannot run"):
        open_engine(folder, max_model_len=10 * CONTEXT)


def test_the_vocabulary_of_a_probe_is_ordinary_words():
    from types import SimpleNamespace

    tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 5, "b": 3, "<eos>": 0}, all_special_ids=[0])
    assert probe_vocabulary(tokenizer, 5) == [3]
