"""Stop strings against brute force: a response drawn without them, cut at its first prefix whose text holds one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from evals.errors import UsageError
from quatro.policy import embedded
from quatro.policy.rows import collate
from quatro.rollout.engine import rollout_seed
from quatro.rollout.stops import ResponseTexts
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt, Rollout, Sampling

LINES = """def add(a, b):
    return a + b

class Größe:
    name = "naïve 日本 😀"

def main():
    print(add(1, 2))  # 日本語 \N{ZERO WIDTH SPACE}😀😀
if __name__ == "__main__":
    main()
"""
EOS = 0


def byte_level() -> PreTrainedTokenizerFast:
    """Pieces of bytes as in Qwen's; a rare character takes several of them, a common word one. Id 1 has no text."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<eos>", "<pad>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    words.train_from_iterator([LINES], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>")


def byte_fallback() -> PreTrainedTokenizerFast:
    """Pieces as in Llama 2's: a leading space is left out, and what has no piece is bytes, a line break among them."""
    known = ["▁", "▁def", "class", "▁class", "ss", "cla", "▁a", "b", "▁▁", "é", "日", "="]
    pieces = ["<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *known]
    words = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    words.decoder = decoders.Sequence(parts)
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", unk_token="<unk>")


TOKENIZERS = {
    "byte-level": byte_level(),
    "byte-fallback": byte_fallback(),
    "words": embedded.make_tokenizer(64),
}
STOPS = {
    "byte-level": [
        ("\ndef", "\nclass", "\nif"),
        ("n add", "dd("),  # begins in the middle of a piece, and overlaps
        ("日本語",),
        ("😀", "\N{ZERO WIDTH SPACE}😀"),
        ("e", " the", "\n\n"),
        ('print(add(1, 2))  # 日本語 \N{ZERO WIDTH SPACE}😀😀\nif __name__ == "__main__":',),
    ],
    "byte-fallback": [
        ("\nclass", "\ndef"),
        ("\n\n",),
        (" class",),
        ("日本", "é\n"),
        ("ssb", "s c", "  "),
        ("😀😀😀😀",),
    ],
    "words": [("=5",), (" =", "->"), ("7 =1", "8 *7 =56"), (" ",), ("1",)],
}
CASES = [(kind, stop) for kind, stops in STOPS.items() for stop in stops]


def decoded(tokenizer: Any, ids: Any) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=True)


def cut(tokenizer: Any, rollout: Rollout, stop: tuple[str, ...], eos: tuple[int, ...] = (EOS,)) -> Rollout:
    """The rollout that stop strings would have made of one that was drawn without them."""
    for length, id in enumerate(rollout.token_ids, start=1):
        text = decoded(tokenizer, rollout.token_ids[:length])
        found = [text.index(one) for one in stop if one in text]
        if found and id not in eos:
            logp, entropy = (None if one is None else one[:length] for one in (rollout.logp, rollout.entropy))
            return Rollout(rollout.token_ids[:length], text[: min(found)], "stop", logp, entropy)
    return rollout


def sequences(tokenizer: Any, stop: tuple[str, ...], rng: np.random.Generator) -> list[list[int]]:
    """Random ids, ids of text, and both: with pieces of stop strings, special ids and ids that no token has."""
    usual = [id for piece, id in tokenizer.get_vocab().items() if id > 1 and "<0x" not in piece]
    texts = [*stop, *(one[: len(one) // 2] for one in stop), LINES[:90], "日本語 \N{ZERO WIDTH SPACE}😀", "8 *7 =56"]
    found = []
    for _ in range(40):
        ids: list[int] = []
        while len(ids) < 60:
            match rng.integers(5):
                case 0:
                    ids += rng.integers(0, len(tokenizer), 3).tolist()
                case 1:
                    ids += rng.choice(usual, 4).tolist()
                case 2:  # no text
                    ids += [[EOS, len(tokenizer) + 7][rng.integers(2)]] * int(rng.integers(1, 25))
                case 3 if "<0x0A>" in tokenizer.get_vocab():
                    text = texts[rng.integers(len(texts))]
                    ids += [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in text.encode()]
                case _:
                    ids += tokenizer.encode(texts[rng.integers(len(texts))], add_special_tokens=False)
        found.append(ids)
    return found


@pytest.mark.parametrize(("kind", "stop"), CASES)
def test_the_first_prefix_with_a_stop_string_is_found(kind, stop):
    tokenizer = TOKENIZERS[kind]
    num_met = 0
    for ids in sequences(tokenizer, stop, np.random.default_rng(1)):
        expected = cut(tokenizer, Rollout(tuple(ids), decoded(tokenizer, ids), "length"), stop, eos=())
        texts = ResponseTexts(tokenizer, stop)
        met = (length for length in range(1, len(ids) + 1) if texts.meets_stop(ids[:length]))
        length = next(met, len(ids))
        assert tuple(ids[:length]) == expected.token_ids
        assert texts.text(expected.token_ids) == expected.text
        num_met += expected.finish_reason == "stop"
    assert num_met >= 5


def test_only_the_end_of_a_response_is_decoded_at_every_token():
    class Counting:
        num_ids = 0

        def decode(self, ids: list[int], **options: Any) -> str:
            self.num_ids += len(ids)
            return decoded(TOKENIZERS["byte-level"], ids)

    counting = Counting()
    texts, ids = ResponseTexts(counting, ("\nclass",)), TOKENIZERS["byte-level"].encode("    return a + b" * 300)
    assert not any(texts.meets_stop(ids[:length]) for length in range(1, len(ids) + 1))
    assert len(ids) > 1000
    assert counting.num_ids < 12 * len(ids)


@pytest.mark.parametrize("stop", [("",), ("a", ""), ("a", "b", "a"), ("a\udcff",)])
def test_empty_stop_strings_duplicates_and_what_is_no_text_are_refused(stop):
    with pytest.raises(UsageError, match=r"not empty, each given once; found \['"):
        Sampling(stop=stop)


# ---- the engine


def make_model(vocabulary: int) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    )
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(2.0)
    return model.eval()


def make_prompts(num: int) -> list[Prompt]:
    return [Prompt("toy", f"p{i}", "", None, "", tuple(range(5 + i, 9 + 2 * i))) for i in range(num)]


# What random weights draw by chance: a letter, part of a character, two letters, a space.
DRAWN = {
    "byte-level": [("a",), ("e", "n\n"), ("日", "é", "ä", "(")],
    "byte-fallback": [("a",), ("=", "é"), (" ", "b")],
    "words": [("=5",), (" =", "->"), ("7 =1", "*7 =", "+")],
}


@pytest.mark.parametrize(("kind", "stop"), [(kind, stop) for kind, stops in DRAWN.items() for stop in stops])
def test_responses_are_those_drawn_without_a_stop_and_cut(kind, stop):
    tokenizer, prompts = TOKENIZERS[kind], make_prompts(3)
    engine = TransformersEngine(make_model(len(tokenizer) + 4), tokenizer, eos_ids=(EOS, 3))
    seeds = [[rollout_seed(0, 0, prompt.id, j) for j in range(24)] for prompt in prompts]
    sampling = Sampling(max_new_tokens=32)
    whole = engine.generate(prompts, seeds, sampling)
    expected = [cut(tokenizer, rollout, stop, (EOS, 3)) for group in whole for rollout in group]
    seen: list[tuple[int, int]] = []
    groups = engine.generate(prompts, seeds, replace(sampling, stop=stop), progress=lambda *now: seen.append(now))
    found = [rollout for group in groups for rollout in group]
    for one, other in zip(found, expected, strict=True):
        assert (one.token_ids, one.text, one.finish_reason) == (other.token_ids, other.text, other.finish_reason)
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-5, rtol=0)
        np.testing.assert_allclose(one.entropy, other.entropy, atol=1e-5, rtol=0)
    is_met = [rollout.finish_reason == "stop" and rollout.token_ids[-1] not in (EOS, 3) for rollout in found]
    assert 5 < sum(is_met) < len(found), "some responses meet a stop string, others an eos id or the limit"
    assert not any(one in rollout.text for rollout in found for one in stop)
    # Rows that met a stop have left the batch: no token of theirs was drawn behind it.
    assert seen[-1] == (len(found), sum(len(rollout.token_ids) for rollout in found))


def test_a_stop_at_the_limit_is_a_stop_and_an_eos_id_comes_first():
    """The model draws one token and then another, whatever the seed: the limit is where the stop string ends."""
    tokenizer, model = TOKENIZERS["byte-level"], make_model(320)
    (prompt,) = make_prompts(1)
    engine = TransformersEngine(model, tokenizer, eos_ids=(EOS,))
    greedy = Sampling(temperature=0.0, max_new_tokens=6)
    ((whole,),) = engine.generate([prompt], [[1]], greedy)
    length = next(n for n in range(2, 7) if "\ufffd" not in decoded(tokenizer, whole.token_ids[:n]))
    text = decoded(tokenizer, whole.token_ids[:length])
    assert decoded(tokenizer, whole.token_ids[: length - 1]) != text
    sampling = replace(greedy, max_new_tokens=length, stop=(text[1:],))
    ((stopped,),) = engine.generate([prompt], [[1]], sampling)
    assert (stopped.token_ids, stopped.text, stopped.finish_reason) == (whole.token_ids[:length], text[0], "stop")

    ending = TransformersEngine(model, tokenizer, eos_ids=(whole.token_ids[length - 1],))
    ((ended,),) = ending.generate([prompt], [[1]], sampling)
    before = whole.token_ids[:length].index(ending.eos_ids[0])
    assert ended.token_ids == whole.token_ids[: before + 1]
    assert ended.text == decoded(tokenizer, whole.token_ids[:before])


def test_nothing_behind_the_stop_enters_a_loss():
    tokenizer, prompts, stop = TOKENIZERS["words"], make_prompts(2), (" =",)
    engine = TransformersEngine(make_model(len(tokenizer)), tokenizer, eos_ids=(EOS,))
    seeds = [[rollout_seed(0, 0, prompt.id, j) for j in range(6)] for prompt in prompts]
    groups = engine.generate(prompts, seeds, Sampling(max_new_tokens=24, stop=stop))
    rollouts = [rollout for group in groups for rollout in group]
    rows = collate(prompts, groups, torch.zeros(12, dtype=torch.float64), max_new_tokens=24)
    assert rows.batch.mask_BT.sum(-1).tolist() == [len(rollout.token_ids) for rollout in rollouts]
    met = [row for row, rollout in enumerate(rollouts) if rollout.finish_reason == "stop"]
    assert met
    for row in met:
        start, length = int(rows.prompt_length_B[row]), len(rollouts[row].token_ids)
        learnt = rows.ids_BL[row, start : start + length].tolist()
        assert " =" in decoded(tokenizer, learnt)
        assert " =" not in decoded(tokenizer, learnt[:-1])
        assert rows.batch.old_logp_BT[row, length - 1].isfinite()
