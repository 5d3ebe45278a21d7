"""The book of slots: who shares a prefix with whom, and that copies carry it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from quatro.rollout.kv_cache import MIN_SHARE_IN_USE, PreallocatedCache, branch


@given(st.data())
def test_rows_share_a_slot_exactly_while_their_tokens_agree(data):
    """Random walks with random deaths; each slot carries the tokens that were written to it."""
    num_rows = data.draw(st.integers(1, 12))
    num_slots = data.draw(st.integers(1, 3))
    slot_L = np.sort(np.array(data.draw(st.lists(st.integers(0, num_slots - 1), min_size=num_rows, max_size=num_rows))))
    content = [(slot,) for slot in range(num_slots)]
    history = [content[slot] for slot in slot_L]
    peak = max(num_rows, num_slots)
    for _ in range(6):
        token_L = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(slot_L), max_size=len(slot_L))))
        keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(slot_L), max_size=len(slot_L))))
        if not keep.any():
            return
        slot_L, token_L = slot_L[keep], token_L[keep]
        survivors = [prefix for prefix, is_kept in zip(history, keep, strict=True) if is_kept]
        history = [(*prefix, int(token)) for prefix, token in zip(survivors, token_L, strict=True)]
        before, is_dense = num_slots, data.draw(st.booleans())
        slot_L, num_slots, source, target = branch(slot_L, token_L, num_slots, is_dense=is_dense)
        assert not set(source) & set(target)
        assert len(set(target)) == len(target)
        assert (np.diff(target) > 0).all()
        content = content[:before] + [()] * (num_slots - before)
        for s, t in zip(source, target, strict=True):
            content[t] = content[s]
        content = content[:num_slots]
        for slot in set(slot_L.tolist()):
            prefixes = {prefix for prefix, s in zip(history, slot_L, strict=True) if s == slot}
            assert len(prefixes) == 1, "rows of one slot have one prefix"
            assert content[slot] == next(iter(prefixes))[:-1], "the slot holds that prefix"
            content[slot] = next(iter(prefixes))
        assert len(set(slot_L.tolist())) == len(set(history)), "equal prefixes share"
        assert len(set(slot_L.tolist())) >= (1 if is_dense else MIN_SHARE_IN_USE) * num_slots
        assert num_slots <= peak


def test_a_single_hole_is_closed_only_on_request():
    slot_L = np.delete(np.arange(10), 3)
    kept_L, num_slots, source, _ = branch(slot_L, slot_L, 10)
    assert (num_slots, kept_L.tolist(), len(source)) == (10, slot_L.tolist(), 0)
    dense_L, num_slots, source, target = branch(slot_L, slot_L, 10, is_dense=True)
    assert (num_slots, source.tolist(), target.tolist()) == (9, [9], [3])
    assert sorted(dense_L) == list(range(9))


def tiny_model():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, max_position_embeddings=32,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


@pytest.mark.parametrize("target", [[2, 3], [0, 3]])
def test_decoding_on_copied_slots_equals_decoding_on_a_grown_cache(target):
    model = tiny_model()
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    source = [1, 1]
    with torch.inference_mode():
        ours, theirs = PreallocatedCache(2, max_slots=4, max_tokens=5), DynamicCache(config=model.config)
        ours.hold(0, 2, 3)
        for cache in (ours, theirs):
            model(input_ids=prompts, past_key_values=cache, use_cache=True)
        ours.copy_slots(np.array(source), np.array(target), 3)
        slots = list(range(2)) + [1, 1]
        for s, t in zip(source, target, strict=True):
            slots[t] = s
        theirs.batch_select_indices(torch.tensor(slots))
        for step in range(2):
            ids = torch.tensor([[7], [8], [9], [10]]) + step
            expected = model(input_ids=ids, past_key_values=theirs, use_cache=True).logits
            assert ours.append(np.full(4, 3 + step)) is None
            assert ours.get_seq_length() == 3 + step
            logits = model(input_ids=ids, past_key_values=ours, use_cache=True).logits
            used = sorted({0, 1, *target})
            torch.testing.assert_close(logits[used], expected[used], rtol=0, atol=1e-6)


def test_each_slot_grows_at_its_own_end_and_what_was_never_written_is_zero():
    cache = PreallocatedCache(1, max_slots=4, max_tokens=6)
    states = torch.arange(1.0, 17).view(2, 2, 2, 2)
    cache.hold(1, 2, 2)
    cache.update(states, -states, 0)
    columns = cache.append(np.array([4, 2, 0]))
    assert columns is not None
    assert columns.tolist() == [4, 2, 0]
    added = torch.arange(101.0, 113).view(3, 2, 1, 2)
    seen_keys, seen_values = cache.update(added, -added, 0)
    expected = torch.zeros(3, 2, 5, 2)
    expected[1:, :, :2] = states
    for slot, column in enumerate((4, 2, 0)):
        expected[slot, :, column] = added[slot, :, 0]
    assert torch.equal(seen_keys, expected)
    assert torch.equal(seen_values, -expected)
    (layer,) = cache.slot_layers
    assert all(not buffer[3].any() and not buffer[:, :, 5].any() for buffer in layer.buffers())
