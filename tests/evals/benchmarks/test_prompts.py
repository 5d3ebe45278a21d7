from collections.abc import Sequence

import pytest

from evals.benchmarks.prompts import TEMPLATES, find_template, messages, render, template_text
from evals.errors import DataError, MissingError, UsageError

PROBLEM = r"Find $\{x : x^2 = 4\}$ for {problem} in \boxed{}."


def tagged(turns: Sequence[dict[str, str]]) -> str:
    return "".join(f"<{turn['role']}>{turn['content']}" for turn in turns)


def test_the_default_template_is_word_for_word_simkos():
    assert messages("qwen-boxed", "What is 1+1?") == [
        {"role": "system", "content": "You are a helpful assistant."},
        {
            "role": "user",
            "content": "What is 1+1?\nPlease reason step by step, and put your final answer within \\boxed{}.",
        },
    ]


def test_qwen25_math_puts_the_instruction_in_the_system_turn():
    system, user = messages("qwen25-math-cot", "What is 1+1?")
    assert system["content"] == "Please reason step by step, and put your final answer within \\boxed{}."
    assert user["content"] == "What is 1+1?"


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_carries_the_problem_unchanged_once(name):
    text = render(name, PROBLEM, tagged)
    assert text.count(PROBLEM) == 1
    assert ("<user>" in text) == TEMPLATES[name].is_chat
    assert [turn["role"] for turn in messages(name, PROBLEM)][-1] == "user"


def test_plain_is_the_problem_itself_and_needs_no_chat_template():
    assert render("plain", PROBLEM, None) == PROBLEM


@pytest.mark.parametrize("name", [name for name in TEMPLATES if TEMPLATES[name].is_chat])
def test_a_chat_template_that_is_missing_names_the_way_out(name):
    with pytest.raises(MissingError, match=r"-s data\.template=plain") as caught:
        render(name, PROBLEM, None)
    assert name in str(caught.value)
    assert caught.value.exit_code == 3


def test_an_unknown_template_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="qwen-boxed, qwen25-math-cot"):
        render("qwen", PROBLEM, tagged)


def test_a_text_with_the_problems_place_is_a_template_of_ones_own():
    assert render("Q: {problem}\nA:", PROBLEM, None) == f"Q: {PROBLEM}\nA:"
    assert render("chat: {problem} Think.", PROBLEM, tagged) == f"<user>{PROBLEM} Think."
    with pytest.raises(MissingError, match="needs a tokenizer with a chat template"):
        render("chat: {problem}", PROBLEM, None)


def test_a_system_prompt_takes_the_place_of_the_templates_own():
    assert render(find_template("qwen-boxed", "Be brief."), "1?", tagged).startswith("<system>Be brief.<user>1?\n")
    assert render(find_template("qwen-boxed", ""), "1?", tagged).startswith("<user>1?\n")
    assert render(find_template("chat:{problem}", "S"), "1?", tagged) == "<system>S<user>1?"
    for name in ("plain", "Q: {problem}"):
        with pytest.raises(UsageError, match=r"no place for a system prompt.*`chat:`"):
            find_template(name, "S")


def test_a_template_may_lie_in_a_file(tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes("\ufeffπ? {problem}\r\nA:\r\n".encode())
    assert template_text(str(file)) == "π? {problem}\nA:"
    assert template_text(f"chat:{file}") == "chat:π? {problem}\nA:"
    assert template_text("plain") == "plain"
    file.write_text("Q: {question}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"prompt\.txt holds no \{problem\}"):
        template_text(str(file))
    with pytest.raises(UsageError, match=r"unknown prompt template 'prompt.txt'.*a text with \{problem\}"):
        template_text("prompt.txt")


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_says_what_the_model_reads(name):
    assert TEMPLATES[name].about.startswith("in a chat: " if TEMPLATES[name].is_chat else "no chat: ")
