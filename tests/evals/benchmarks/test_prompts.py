from collections.abc import Sequence

import pytest

from evals.benchmarks.prompts import TEMPLATES, messages, render
from evals.errors import MissingError, UsageError

PROBLEM = r"Find $\{x : x^2 = 4\}$ for {problem} in \boxed{}."


def tagged(turns: Sequence[dict[str, str]]) -> str:
    return "".join(f"<{turn['role']}>{turn['content']}" for turn in turns)


def test_the_default_template_is_word_for_word_simkos() -> None:
    assert messages("qwen-boxed", "What is 1+1?") == [
        {"role": "system", "content": "You are a helpful assistant."},
        {
            "role": "user",
            "content": "What is 1+1?\nPlease reason step by step, and put your final answer within \\boxed{}.",
        },
    ]


def test_qwen25_math_puts_the_instruction_in_the_system_turn() -> None:
    system, user = messages("qwen25-math-cot", "What is 1+1?")
    assert system["content"] == "Please reason step by step, and put your final answer within \\boxed{}."
    assert user["content"] == "What is 1+1?"


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_carries_the_problem_unchanged_once(name: str) -> None:
    text = render(name, PROBLEM, tagged)
    assert text.count(PROBLEM) == 1
    assert ("<user>" in text) == TEMPLATES[name].is_chat
    assert [turn["role"] for turn in messages(name, PROBLEM)][-1] == "user"


def test_plain_is_the_problem_itself_and_needs_no_chat_template() -> None:
    assert render("plain", PROBLEM, None) == PROBLEM


@pytest.mark.parametrize("name", [name for name in TEMPLATES if TEMPLATES[name].is_chat])
def test_a_chat_template_that_is_missing_names_the_way_out(name: str) -> None:
    with pytest.raises(MissingError, match=r"-s data\.template=plain") as caught:
        render(name, PROBLEM, None)
    assert name in str(caught.value)
    assert caught.value.exit_code == 3


def test_an_unknown_template_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="qwen-boxed, qwen25-math-cot"):
        render("qwen", PROBLEM, tagged)
