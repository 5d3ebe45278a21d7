"""Which special tokens stand before a prompt."""

import pytest

from evals.benchmarks.problems import Problem
from quatro.rollout.prompts import to_prompts


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
