"""Attention of slots of different lengths against a formula in float64, and the tables of transformers left alone."""

import numpy as np
import pytest
import torch
from transformers import Llama4ForCausalLM, Llama4TextConfig, Qwen2Config, Qwen2ForCausalLM
from transformers.integrations import sdpa_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from evals.errors import UsageError
from quatro.rollout.kv_cache import PreallocatedCache, _parts, attending_up_to

LENGTHS = (3, 9, 5, 1)


def tiny(cls=Qwen2ForCausalLM, config=Qwen2Config, **changes):
    torch.manual_seed(0)
    shape = dict(vocab_size=17, hidden_size=32, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2)  # noqa: C408
    return cls(config(**shape, intermediate_size=24, max_position_embeddings=32, **changes)).eval()


def tables():
    return [
        (table, name, table[name])
        for table in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS)
        for name in ("sdpa", "eager")
        if name in table
    ]


def append(model, cache, columns):
    ids = torch.arange(len(LENGTHS))[:, None] + 4
    with torch.inference_mode(), attending_up_to(cache.append(columns)):
        position = torch.from_numpy(columns)[:, None]
        return model(input_ids=ids, position_ids=position, past_key_values=cache, use_cache=True).logits[:, -1]


def held(model):
    """A cache of slots of `LENGTHS` tokens, and their ids."""
    cache = PreallocatedCache(2, max_slots=len(LENGTHS), max_tokens=12)
    ids = torch.randint(17, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(1))
    cache.hold(0, *ids.shape)
    with torch.inference_mode():
        model(input_ids=ids, past_key_values=cache, use_cache=True)
    return cache, ids


@pytest.mark.parametrize("part", [32, 2])
def test_grouped_queries_have_the_sums_of_the_formula(part, monkeypatch):
    monkeypatch.setattr("quatro.rollout.kv_cache.SLOTS_OF_PART", part)
    monkeypatch.setattr("quatro.rollout.kv_cache.MIN_COLUMNS_SAVED", 1)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(shape, generator=generator) for shape in ((4, 8, 1, 16), (4, 2, 10, 16), (4, 2, 10, 24))
    )
    column = torch.tensor(LENGTHS)
    with attending_up_to(column):
        mask = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](
            kv_length=10, mask_function=lambda slot, head, position, column: column <= position
        )
        out, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](None, query, key, value, mask, scaling=0.3)
    assert out.shape == (4, 1, 8, 24)
    for slot in range(4):
        for head in range(8):
            seen = slice(0, LENGTHS[slot] + 1)
            score = 0.3 * key[slot, head // 4, seen].double() @ query[slot, head, 0].double()
            expected = score.softmax(0) @ value[slot, head // 4, seen].double()
            torch.testing.assert_close(out[slot, 0, head].double(), expected, rtol=0, atol=5e-7)


def test_slots_are_attended_to_in_runs_of_similar_length(monkeypatch):
    monkeypatch.setattr("quatro.rollout.kv_cache.SLOTS_OF_PART", 2)
    monkeypatch.setattr("quatro.rollout.kv_cache.MIN_COLUMNS_SAVED", 10)
    assert _parts(np.array([5, 7, 9, 16, 30, 2, 80, 81, 4])) == [(slice(0, 4), 17), (slice(4, 6), 31),
                                                                (slice(6, 8), 82), (slice(8, 9), 5)]  # fmt: skip


def test_keys_are_never_repeated_while_decoding(monkeypatch):
    model = tiny()
    cache, _ = held(model)

    def refuse(*_):
        raise AssertionError("keys or values were repeated")

    monkeypatch.setattr(sdpa_attention, "repeat_kv", refuse)
    append(model, cache, np.array(LENGTHS))


def test_chunks_count_from_the_start_of_each_slot():
    """Llama 4: layers of chunks of four tokens beside full ones, against a forward pass of each slot alone."""
    model = tiny(Llama4ForCausalLM, Llama4TextConfig, intermediate_size_mlp=24, attention_chunk_size=4, head_dim=4,
                 num_local_experts=2, layer_types=["chunked_attention", "full_attention"])  # fmt: skip
    cache, ids = held(model)
    logits = append(model, cache, np.array(LENGTHS))
    for slot, length in enumerate(LENGTHS):
        whole = torch.cat((ids[slot, :length], torch.tensor([slot + 4])))[None]
        with torch.inference_mode():
            expected = model(input_ids=whole, use_cache=False).logits[0, -1]
        torch.testing.assert_close(logits[slot], expected, rtol=0, atol=1e-6)


def test_the_tables_of_transformers_are_put_back_whatever_happens():
    model = tiny()
    before, implementation = tables(), model.config._attn_implementation
    cache, _ = held(model)
    append(model, cache, np.array(LENGTHS))
    assert all(table[name] is function for table, name, function in before)
    hook = model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        append(model, cache, np.array(LENGTHS) + 1)
    hook.remove()
    assert all(table[name] is function for table, name, function in before)
    assert model.config._attn_implementation == implementation == "sdpa"


def test_a_model_with_masks_of_its_own_is_refused():
    with (
        pytest.raises(UsageError, match=r"masks in a way of its own.*rollout.engine=vllm"),
        attending_up_to(torch.tensor([1, 2])),
    ):
        pass  # a forward pass that asks for no mask
