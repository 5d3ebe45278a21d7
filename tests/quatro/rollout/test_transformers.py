"""The decode loop against plain full forward passes, brute-force enumeration and itself in other batches."""

import itertools
import logging
import math

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from evals.errors import DataError, DivergedError, UsageError
from quatro.policy.device import PREFILL_TOKENS
from quatro.policy.facts import copied, hollow
from quatro.rollout.decoding import SlotModel
from quatro.rollout.engine import rollout_seed
from quatro.rollout.transformers import CopyEngine, TransformersEngine
from quatro.types import Prompt, Sampling

EOS = (0, 3)
VOCABULARY = 23


class Letters:
    """Token i is letter i; ids below 4 are special."""

    def __init__(self):
        self.num_decoded = 0

    def decode(self, token_ids, skip_special_tokens=False):
        assert skip_special_tokens
        self.num_decoded += 1
        return "".join(chr(ord("a") + i) for i in token_ids if i >= 4)


def make_model(kind="qwen2", *, sharpness=6.0, **changes):
    torch.manual_seed(0)
    shape = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, eos_token_id=0)  # noqa: C408
    decoder = {**shape, "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 40, **changes}
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**decoder))
    elif kind == "llama-eager":
        model = LlamaForCausalLM(LlamaConfig(**decoder, attn_implementation="eager"))
    elif kind == "mistral-sliding":
        model = MistralForCausalLM(MistralConfig(**decoder, sliding_window=4))
    elif kind in ("gemma2", "gemma2-eager"):  # softcaps and windows in every other layer; eager keeps the softcap
        windows = dict(sliding_window=4, head_dim=4, attn_logit_softcapping=2.0, final_logit_softcapping=20.0)  # noqa: C408
        attention = "eager" if kind == "gemma2-eager" else "sdpa"
        model = Gemma2ForCausalLM(Gemma2Config(**decoder, **windows, attn_implementation=attention))
    elif kind == "gemma3":
        kinds = ["sliding_attention", "full_attention"]
        model = Gemma3ForCausalLM(Gemma3TextConfig(**decoder, sliding_window=4, head_dim=4, layer_types=kinds))
    elif kind == "gpt-neox":
        model = GPTNeoXForCausalLM(GPTNeoXConfig(**shape, intermediate_size=24, max_position_embeddings=40))
    elif kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=40))
    else:
        raise KeyError(kind)
    with torch.no_grad():  # random weights are almost uniform: sharpen them, so that prefixes are shared
        model.get_output_embeddings().weight.mul_(sharpness)
    return model.eval()


def make_prompts(lengths):
    rng = np.random.default_rng(1)
    return [
        Prompt("toy", f"p{i}", "", None, "", tuple(int(t) for t in rng.integers(4, VOCABULARY, length)))
        for i, length in enumerate(lengths)
    ]


def make_seeds(prompts, n):
    return [[rollout_seed(0, 0, prompt.id, j) for j in range(n)] for prompt in prompts]


def engine(model, kind=TransformersEngine, **options):
    made = kind(model, Letters(), eos_ids=EOS, **options)
    assert kind is CopyEngine or made._slots._has_plain_head in (True, False)  # asked before passes are counted
    return made


def full_forward(model, prompt, rollout):
    """Log-softmax (T, V) in float64 of every response position, from one forward pass over the whole sequence."""
    ids = torch.tensor([[*prompt.token_ids, *rollout.token_ids]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0]
    return logits[len(prompt.token_ids) - 1 : -1].double()


def logp_of(logits, rollout):
    """The log-probability (T) of each token of ``rollout`` by ``logits`` (T, V)."""
    return logits.log_softmax(-1).gather(-1, torch.tensor(rollout.token_ids)[:, None])[:, 0]


def shapes_fed(model):
    """A list that gets the shape, rows and tokens, of every forward pass of ``model`` from now on."""
    shapes = []
    model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


KINDS = ("qwen2", "llama-eager", "mistral-sliding", "gemma2", "gemma2-eager", "gemma3", "gpt-neox", "gpt2")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("lengths", "temperature"), [((5, 5, 5), 1.0), ((2, 9, 5, 5), 0.7)], ids=["equal", "ragged"])
def test_log_probs_and_entropies_agree_with_a_full_forward_pass(kind, lengths, temperature):
    model, prompts = make_model(kind), make_prompts(lengths)
    sampling = Sampling(temperature=temperature, top_p=0.95, max_new_tokens=12)
    groups = engine(model).generate(prompts, make_seeds(prompts, 6), sampling)
    assert len({len(r.token_ids) for group in groups for r in group}) > 2, "rows should end at different steps"
    for prompt, group in zip(prompts, groups, strict=True):
        for rollout in group:
            logits = full_forward(model, prompt, rollout)
            expected = logp_of(logits / temperature, rollout)
            torch.testing.assert_close(torch.tensor(rollout.logp).double(), expected, rtol=0, atol=1e-5)
            logp1 = logits.log_softmax(-1)
            entropy = -(logp1.exp() * logp1).sum(-1)
            torch.testing.assert_close(torch.tensor(rollout.entropy).double(), entropy, rtol=0, atol=1e-5)


def test_responses_have_the_exact_sequence_probabilities():
    """Chi-square over all responses of up to 3 tokens of a small vocabulary, enumerated; fixed seeds."""
    model = make_model(vocab_size=5, sharpness=12.0)
    prompt = Prompt("toy", "p", "", None, "", (4, 2, 4))
    probability = {}
    for length in (1, 2, 3):
        for ids in itertools.product(range(5), repeat=length):
            if any(i in EOS for i in ids[:-1]) or (length < 3 and ids[-1] not in EOS):
                continue
            with torch.no_grad():
                logp = model(input_ids=torch.tensor([[*prompt.token_ids, *ids]])).logits[0].double().log_softmax(-1)
            probability[ids] = math.exp(sum(logp[2 + t, i].item() for t, i in enumerate(ids)))
    assert sum(probability.values()) == pytest.approx(1, abs=1e-6)

    n = 20_000
    (group,) = engine(model).generate(
        [prompt], [[rollout_seed(1, 0, "p", j) for j in range(n)]], Sampling(max_new_tokens=3)
    )
    count = dict.fromkeys(probability, 0)
    for rollout in group:
        count[rollout.token_ids] += 1
    expected = {ids: n * p for ids, p in probability.items()}
    large = [ids for ids in expected if expected[ids] >= 5]
    chi2 = sum((count[ids] - expected[ids]) ** 2 / expected[ids] for ids in large)
    degrees = len(large) - 1
    assert degrees > 10
    assert chi2 < degrees + 4 * math.sqrt(2 * degrees)


@pytest.mark.parametrize(
    ("lengths", "sampling"),
    [((5, 5, 5), Sampling(max_new_tokens=10)), ((2, 9, 5, 7), Sampling(0.8, 0.9, 12, 10))],
    ids=["equal", "ragged"],
)
def test_results_do_not_depend_on_how_the_work_is_split(lengths, sampling):
    model, prompts = make_model(), make_prompts(lengths)
    seeds = make_seeds(prompts, 7)
    whole = engine(model).generate(prompts, seeds, sampling)
    others = [
        engine(model, max_batch_rows=1).generate(prompts, seeds, sampling),
        engine(model, max_batch_rows=5).generate(prompts, seeds, sampling),
        engine(model, max_batch_tokens=60).generate(prompts, seeds, sampling),
        # Prompts in another order and one at a time.
        list(reversed(engine(model).generate(prompts[::-1], seeds[::-1], sampling))),
        [engine(model).generate([p], [s], sampling)[0] for p, s in zip(prompts, seeds, strict=True)],
        # The rollouts of a group in another order.
        [group[::-1] for group in engine(model).generate(prompts, [s[::-1] for s in seeds], sampling)],
    ]
    for other in others:
        for group, expected_group in zip(other, whole, strict=True):
            for rollout, expected in zip(group, expected_group, strict=True):
                assert rollout.token_ids == expected.token_ids
                assert rollout.text == expected.text
                assert rollout.finish_reason == expected.finish_reason
                np.testing.assert_allclose(rollout.logp, expected.logp, atol=1e-5, rtol=0)
                np.testing.assert_allclose(rollout.entropy, expected.entropy, atol=1e-5, rtol=0)


def test_the_logits_of_a_large_vocabulary_are_sampled_in_slices(monkeypatch):
    model, prompts = make_model(), make_prompts([5, 5, 5])
    seeds, sampling = make_seeds(prompts, 7), Sampling(top_p=0.9, max_new_tokens=8)
    whole = engine(model).generate(prompts, seeds, sampling)
    monkeypatch.setattr("quatro.rollout.sampling.MAX_SAMPLED_LOGITS", 2 * VOCABULARY)
    assert engine(model).generate(prompts, seeds, sampling) == whole


def test_equal_seeds_give_equal_responses_and_other_seeds_other_ones():
    model, (prompt,) = make_model(sharpness=1.0), make_prompts([4])
    draw = engine(model).generate
    (group,) = draw([prompt], [[5, 6, 5, 7]], Sampling(max_new_tokens=12))
    assert group[0] == group[2]
    assert len({rollout.token_ids for rollout in group}) == 3
    torch.manual_seed(99)  # the global generator plays no part
    assert draw([prompt], [[5, 6, 5, 7]], Sampling(max_new_tokens=12)) == [group]


def test_a_response_ends_at_its_first_stop_token_which_it_contains():
    model, prompts = make_model(), make_prompts([4, 6])
    groups = engine(model).generate(prompts, make_seeds(prompts, 40), Sampling(max_new_tokens=9))
    rollouts = [rollout for group in groups for rollout in group]
    assert {rollout.finish_reason for rollout in rollouts} == {"stop", "length"}
    assert {rollout.token_ids[-1] for rollout in rollouts if rollout.finish_reason == "stop"} == set(EOS)
    for rollout in rollouts:
        body, last = rollout.token_ids[:-1], rollout.token_ids[-1]
        assert not set(body) & set(EOS)
        assert (last in EOS) == (rollout.finish_reason == "stop")
        assert rollout.finish_reason == "stop" or len(rollout.token_ids) == 9
        assert len(rollout.logp) == len(rollout.entropy) == len(rollout.token_ids)
        assert rollout.text == "".join(chr(ord("a") + i) for i in rollout.token_ids if i >= 4)


def test_rows_with_equal_tokens_share_forward_passes_and_decoding():
    model, (prompt,) = make_model(sharpness=25.0), make_prompts([4])
    drawer, rows_fed = engine(model), shapes_fed(model)
    n = 64
    (group,) = drawer.generate([prompt], make_seeds([prompt], n), Sampling(max_new_tokens=6))
    assert rows_fed[0] == (1, 4), "the prompt is prefilled once"
    for step, (rows, length) in enumerate(rows_fed[1:], start=1):
        prefixes = {r.token_ids[:step] for r in group if len(r.token_ids) > step}
        assert length == 1
        assert len(prefixes) <= rows <= len(prefixes) / 0.8 + 1
    assert drawer.tokenizer.num_decoded == len(
        {r.token_ids[: len(r.token_ids) - (r.finish_reason == "stop")] for r in group}
    )
    assert rows_fed[1][0] < n


def test_truncated_sampling_draws_only_tokens_that_brute_force_keeps():
    model, prompts = make_model(sharpness=2.0), make_prompts([4, 4])
    sampling = Sampling(temperature=1.3, top_p=0.6, top_k=5, max_new_tokens=6)
    for prompt, group in zip(prompts, engine(model).generate(prompts, make_seeds(prompts, 30), sampling), strict=True):
        for rollout in group:
            prob = (full_forward(model, prompt, rollout) / 1.3).softmax(-1)
            for token, row in zip(rollout.token_ids, prob.tolist(), strict=True):
                best = sorted(row, reverse=True)[:5]
                # Mass of the five best that lies strictly before this token must be below top_p.
                before = sum(p for p in best if p > row[token]) / sum(best)
                assert row[token] in best
                assert before < 0.6 + 1e-6


def test_entropies_only_when_asked_for():
    model, prompts = make_model(), make_prompts([4])
    seeds = make_seeds(prompts, 5)
    ((*bare,),) = engine(model, collect_entropy=False).generate(prompts, seeds, Sampling(max_new_tokens=5))
    ((*full,),) = engine(model).generate(prompts, seeds, Sampling(max_new_tokens=5))
    assert all(rollout.entropy is None for rollout in bare)
    assert [rollout.token_ids for rollout in bare] == [rollout.token_ids for rollout in full]
    assert [rollout.logp for rollout in bare] == [rollout.logp for rollout in full]


def test_modes_gradients_and_weights_are_left_as_they_were():
    model, prompts = make_model(), make_prompts([4, 6])
    model.train()
    model.model.layers[0].eval()  # a caller may have frozen a part
    modes = [module.training for module in model.modules()]
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model(input_ids=ids).logits
    seen = []
    drawer = engine(model)
    model.base_model.register_forward_pre_hook(lambda module, args: seen.append(module.training))
    drawer.generate(prompts, make_seeds(prompts, 3), Sampling(max_new_tokens=4))
    assert set(seen) == {False}
    assert [module.training for module in model.modules()] == modes
    assert torch.is_grad_enabled()
    after = model(input_ids=ids).logits
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    after.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_rotary_embedding_that_rewrites_itself_can_still_be_trained_afterwards():
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 6}
    rope |= {"short_factor": [1.0, 1.0], "long_factor": [2.0, 3.0]}
    model, prompts = make_model(rope_parameters=rope), make_prompts([4])
    short = model.model.rotary_emb.inv_freq.clone()
    engine(model).generate(prompts, make_seeds(prompts, 8), Sampling(max_new_tokens=8))
    assert not torch.equal(model.model.rotary_emb.inv_freq, short), "the forward should have replaced the buffer"
    assert not any(buffer.is_inference() for buffer in model.buffers())


def test_sync_and_state_have_nothing_to_carry():
    drawer = engine(make_model())
    assert drawer.sync(lambda: iter(())) == {}
    assert drawer.state() == ({}, {})
    drawer.load_state({}, {})


def test_a_copy_takes_memory_only_from_sync_to_rest():
    policy, prompts = make_model(), make_prompts([3, 5])
    seeds = make_seeds(prompts, 4)
    drawer = engine(copied(policy, lambda one: hollow(one).new_full((), math.nan).expand(one.shape)), kind=CopyEngine)

    def numbers():
        return sum(weight.untyped_storage().nbytes() // weight.itemsize for weight in drawer.model.parameters())

    expected = engine(policy).generate(prompts, seeds, Sampling(max_new_tokens=6))
    for _ in range(2):
        drawer.sync(policy.named_parameters)
        drawer.sync(policy.named_parameters)
        assert numbers() == sum(weight.numel() for weight in policy.parameters())
        assert drawer.generate(prompts, seeds, Sampling(max_new_tokens=6)) == expected
        drawer.rest()
        assert numbers() == len(list(policy.parameters()))
    assert drawer._slots._has_plain_head  # which weights that were not there could not tell


def test_progress_counts_every_rollout_and_token():
    model, prompts = make_model(), make_prompts([4, 6, 4])
    seen = []
    groups = engine(model, max_batch_rows=8).generate(
        prompts, make_seeds(prompts, 5), Sampling(max_new_tokens=7), progress=lambda *counts: seen.append(counts)
    )
    assert seen == sorted(seen)
    assert seen[-1] == (15, sum(len(rollout.token_ids) for group in groups for rollout in group))


def test_groups_may_be_empty_or_of_different_sizes():
    model, prompts = make_model(), make_prompts([4, 6, 4])
    groups = engine(model).generate(prompts, [[1, 2, 3], [], [4]], Sampling(max_new_tokens=3))
    assert [len(group) for group in groups] == [3, 0, 1]
    assert engine(model).generate([], [], Sampling()) == []


def test_a_prompt_that_fills_the_context_is_refused_by_name():
    prompts = make_prompts([4, 40])
    with pytest.raises(DataError, match=r"'p1' of 'toy' has 40 tokens.*context of 40"):
        engine(make_model()).generate(prompts, make_seeds(prompts, 2), Sampling(max_new_tokens=5))
    with pytest.raises(DataError, match="'p0' of 'toy' has no tokens"):
        engine(make_model()).generate(make_prompts([0]), [[1]], Sampling(max_new_tokens=5))


def test_a_response_ends_where_the_context_does(caplog):
    model, prompts = make_model(sharpness=0.0), make_prompts([38, 4])
    with caplog.at_level(logging.WARNING):
        near, far = engine(model).generate(prompts, make_seeds(prompts, 30), Sampling(max_new_tokens=6))
    assert max(len(rollout.token_ids) for rollout in near) == 2
    assert {rollout.finish_reason for rollout in near} == {"stop", "length"}
    assert max(len(rollout.token_ids) for rollout in far) == 6
    assert "1 of 2 prompts leave fewer than max_new_tokens=6" in caplog.text


def test_weights_that_are_not_finite_are_a_diverged_run():
    model, prompts = make_model(), make_prompts([4])
    with torch.no_grad():
        model.get_output_embeddings().weight[3, 0] = math.nan
    with pytest.raises(DivergedError, match="not finite"):
        engine(model).generate(prompts, make_seeds(prompts, 2), Sampling(max_new_tokens=5))
    assert not model.training


def test_layers_without_keys_and_values_are_refused():
    model = make_model()
    model.config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(UsageError, match="linear_attention"):
        engine(model)


def test_autocast_is_the_policys_own():
    """Under `compute` the log-probs are those of a full forward pass under the same autocast."""
    model, prompts = make_model(), make_prompts([5, 5])

    def compute():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    groups = engine(model, compute=compute).generate(prompts, make_seeds(prompts, 4), Sampling(max_new_tokens=8))
    plain_gap, autocast_gap = [], []
    for prompt, group in zip(prompts, groups, strict=True):
        for rollout in group:
            drawn = torch.tensor(rollout.logp).double()
            plain_gap.append((logp_of(full_forward(model, prompt, rollout), rollout) - drawn).abs())
            with compute():
                logits = full_forward(model, prompt, rollout)
            autocast_gap.append((logp_of(logits, rollout) - drawn).abs())
    assert torch.cat(autocast_gap).mean() < 0.7 * torch.cat(plain_gap).mean()
    assert torch.cat(plain_gap).max() < 0.3


def test_rows_that_wait_take_the_places_of_those_that_end(monkeypatch):
    """Each prompt is read once, and there are never more rows than allowed, nor many fewer while any wait."""
    model, prompts = make_model(sharpness=1.0), make_prompts([4, 6, 4, 9, 5])  # almost uniform: no prefix is shared
    monkeypatch.setattr("quatro.rollout.decoding.MAX_PREFILL_PADDING", 0)
    drawer, fed = engine(model, max_batch_rows=16), shapes_fed(model)
    seeds = make_seeds(prompts, 20)
    groups = drawer.generate(prompts, seeds, Sampling(max_new_tokens=20))
    lengths = [len(rollout.token_ids) for group in groups for rollout in group]
    assert len(lengths) == 100
    steps = [rows for rows, tokens in fed if tokens == 1]
    assert max(steps) <= 16
    assert [shape for shape in fed if shape[1] > 1] == [(1, 4), (1, 4), (1, 5), (1, 6), (1, 9)]
    full = sum(lengths) - len(lengths)  # tokens that are fed again, which 16 rows at once could do in a 16th of steps
    assert len(steps) < 1.5 * full / 16 + 20


@pytest.mark.parametrize(
    ("padding", "most_tokens", "expected"),
    [
        (0, 100, [(2, 4), (1, 5), (1, 6), (1, 11)]),
        (2, 100, [(3, 5), (1, 6), (1, 11)]),
        (512, 100, [(5, 11)]),
        (512, 15, [(3, 5), (1, 6), (1, 11)]),
    ],
)
def test_prompts_of_similar_length_are_read_together(padding, most_tokens, expected, monkeypatch):
    monkeypatch.setitem(PREFILL_TOKENS, "cpu", most_tokens)
    monkeypatch.setattr("quatro.rollout.decoding.MAX_PREFILL_PADDING", padding)
    monkeypatch.setattr("quatro.rollout.decoding.MAX_PREFILL_SPREAD", 1.1)
    model, prompts = make_model(), make_prompts([4, 6, 4, 11, 5])
    drawer, fed = engine(model), shapes_fed(model)
    groups = drawer.generate(prompts, make_seeds(prompts, 2), Sampling(max_new_tokens=2))
    assert fed[: len(expected)] == expected
    for prompt, group in zip(prompts, groups, strict=True):
        for rollout in group:
            drawn = logp_of(full_forward(model, prompt, rollout), rollout)
            torch.testing.assert_close(torch.tensor(rollout.logp).double(), drawn, rtol=0, atol=1e-6)


def test_a_prompt_whose_rollouts_do_not_fit_is_read_once():
    model, prompts = make_model(), make_prompts([4, 6])
    seeds = make_seeds(prompts, 30)
    whole = engine(model).generate(prompts, seeds, Sampling(max_new_tokens=8))
    drawer, fed = engine(model, max_batch_rows=4), shapes_fed(model)
    few = drawer.generate(prompts, seeds, Sampling(max_new_tokens=8))
    assert [shape for shape in fed if shape[1] > 1] == [(1, 4), (1, 6)]
    assert max(rows for rows, _ in fed) <= 4
    assert [r.token_ids for group in few for r in group] == [r.token_ids for group in whole for r in group]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_memory_that_runs_out_halves_the_rows_and_changes_no_response(monkeypatch, caplog, error):
    model, prompts = make_model(sharpness=1.0), make_prompts([4, 6, 4])  # almost uniform: no prefix is shared
    seeds, sampling, seen = make_seeds(prompts, 8), Sampling(max_new_tokens=20), []
    whole = engine(model).generate(prompts, seeds, sampling)
    drawer, append, steps = engine(model, max_batch_rows=20), SlotModel.append, []

    def cramped(self, token_L, *arguments):
        steps.append(len(token_L))
        if len(token_L) > 5 and len(steps) > 3:  # so that a few responses are finished
            raise error("no room")
        return append(self, token_L, *arguments)

    monkeypatch.setattr(SlotModel, "append", cramped)
    with caplog.at_level(logging.WARNING):
        again = drawer.generate(prompts, seeds, sampling, progress=lambda *counts: seen.append(counts))
    assert [r.token_ids for group in again for r in group] == [r.token_ids for group in whole for r in group]
    assert [r.text for group in again for r in group] == [r.text for group in whole for r in group]
    assert [record.args[0::2] for record in caplog.records] == [(20, 10), (10, 5)]
    assert "while drawing 20 responses at once (no room); from here on 10 (rollout.rows_at_once)" in caplog.text
    assert seen == sorted(seen)
    assert seen[-1][0] == 24
    drawn_twice = seen[-1][1] - sum(len(rollout.token_ids) for group in whole for rollout in group)
    assert 0 < drawn_twice < 20 * 4 + 10 * 2  # and what was finished is kept
    num_steps = len(steps)
    drawer.generate(prompts, seeds, sampling)
    assert max(steps[num_steps:]) == 5  # as few as before


def test_memory_that_runs_out_with_a_single_row_is_an_error(monkeypatch):
    model, prompts = make_model(), make_prompts([4])

    def full(*arguments):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(SlotModel, "append", full)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        engine(model).generate(prompts, make_seeds(prompts, 6), Sampling(max_new_tokens=5))
