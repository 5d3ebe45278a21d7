"""Which special tokens stand before a prompt, and in which order prompts are dealt out."""

import numpy as np
import pytest

from evals.benchmarks.problems import Problem
from evals.errors import DataError
from quatro.config.blocks import DataConfig
from quatro.rollout.prompts import Loaded, PromptStream, to_prompts, tokenize_problems
from quatro.types import Prompt


class Characters:
    """A tokenizer of characters, which puts `<s>` first where it adds special tokens."""

    bos_token = "<s>"
    chat_template = None

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(map(ord, ("<s>" if add_special_tokens else "") + text)) for text in texts]}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "<s>1?"),
        ("code-body", "1?"),
        ("Q: {problem}", "<s>Q: 1?"),
        ("<s>Q: {problem}", "<s>Q: 1?"),
    ],
)
def test_a_prompt_without_a_chat_begins_with_one_special_token(template, text):
    (prompt,) = to_prompts([Problem("b", "1", "1?", "1")], template, Characters())
    assert "".join(map(chr, prompt.token_ids)) == text


@pytest.mark.parametrize(("size", "names"), [(232, None), (72, "'67'.*'p1'.* 72 "), (1, "end of a response")])
def test_fault_40_tokens_that_the_model_lacks_are_named(tiny_folder, size, names):
    from quatro.policy.loading import load_tokenizer

    tokenizer = load_tokenizer(str(tiny_folder))
    problems = [Problem("b", f"p{i}", text, "67") for i, text in enumerate(("1 2 -> 7", "1 2 -> 67"))]
    config = DataConfig(prompts="x", template="plain")
    sources = [Loaded(*config.sources, problems)]
    if names is None:
        assert len(tokenize_problems(sources, config, tokenizer, vocabulary_size=size).prompts) == 2
        return
    with pytest.raises(DataError, match=rf"{names}.*vocab_size"):
        tokenize_problems(sources, config, tokenizer, vocabulary_size=size)


def stream(sizes: dict[str, int], weights: dict[str, float], seed: int = 3) -> PromptStream:
    prompts = [
        Prompt("b", str(number), "", None, "", (1,), source=name)
        for name, size in sizes.items()
        for number in range(size)
    ]
    return PromptStream(prompts, seed, {name: weight / sum(weights.values()) for name, weight in weights.items()})


def test_a_single_source_is_one_permutation_an_epoch():
    orders = [np.random.default_rng([7, epoch]).permutation(5).tolist() for epoch in range(4)]
    alone = PromptStream(range(5), 7)
    batches = [alone.next(3) for _ in range(6)]
    assert [number for batch in batches for number in batch] == [number for order in orders for number in order][:18]
    assert alone.state() == ({}, {"position": 18})
    first, second = stream({"": 5}, {"": 1.0}, 7), stream({"only": 5}, {"only": 2.0}, 7)  # as a list of one
    assert (
        [int(one.id) for one in first.next(18)]
        == [int(one.id) for one in second.next(18)]
        == [*orders[0], *orders[1], *orders[2], *orders[3]][:18]
    )


@pytest.mark.parametrize(
    "weights", [{"a": 3.0, "b": 1.0}, {"a": 0.1, "b": 0.2, "c": 0.0, "d": 5.0}, {"a": 1.0, "b": 1.0, "c": 1.0}]
)
def test_each_batch_has_the_shares_of_the_sources_and_each_epoch_of_a_source_every_prompt_once(weights):
    size, whole = 6, sum(weights.values())
    order = stream(dict.fromkeys(weights, size), weights).next(504)
    for begin in range(0, 504, 8):
        for name, weight in weights.items():
            count = sum(one.source == name for one in order[begin : begin + 8])
            assert abs(count - 8 * weight / whole) < 2
    epochs = {}
    for name, weight in weights.items():
        own = [one.id for one in order if one.source == name]
        assert abs(len(own) - 504 * weight / whole) < 1
        found = [tuple(own[begin : begin + size]) for begin in range(0, len(own) - size + 1, size)]
        assert all(len(set(epoch)) == size for epoch in found)
        assert len(set(found)) >= len(found) / 2
        epochs[name] = found
    assert epochs["a"][:2] != epochs["b"][:2]  # of each source its own order
    other = stream(dict.fromkeys(weights, size), weights, seed=4).next(504)
    assert [one.source for one in other] == [one.source for one in order]
    assert [one.id for one in other] != [one.id for one in order]


def test_dealing_goes_on_from_any_position():
    make = {"a": 3.0, "b": 1.0, "c": 0.7}
    order = stream(dict.fromkeys(make, 5), make).next(60)
    for cut in range(60):
        begun, resumed = stream(dict.fromkeys(make, 5), make), stream(dict.fromkeys(make, 5), make)
        begun.next(cut)
        resumed.load_state(*begun.state())
        assert resumed.next(60 - cut) == order[cut:]
