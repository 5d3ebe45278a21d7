"""Which special tokens stand before a prompt."""

import pytest

from evals.benchmarks.problems import Problem
from evals.errors import DataError
from quatro.config.blocks import DataConfig
from quatro.rollout.prompts import to_prompts, tokenize_problems


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
    if names is None:
        assert len(tokenize_problems(problems, config, tokenizer, vocabulary_size=size).prompts) == 2
        return
    with pytest.raises(DataError, match=rf"{names}.*vocab_size"):
        tokenize_problems(problems, config, tokenizer, vocabulary_size=size)
