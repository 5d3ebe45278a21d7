"""What chat templates are told: thinking switch, default system prompt and tool branch, in training and in samples.

The templates are of our own writing; they have what those of Qwen3 and of Llama 3 have.
"""

import json

import pytest

from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import checked_kwargs, find_template
from evals.errors import UsageError
from quatro.config import load_config
from quatro.config.blocks import DataConfig
from quatro.policy.facts import render_chat
from quatro.policy.model_files import unread_kwargs
from quatro.rollout.prompts import Loaded, tokenize_problems
from quatro.sample.served import _text
from tests.kit import says

pytest.importorskip("transformers")
from transformers.utils.chat_template_utils import render_jinja_template

# A thinking switch, a tool branch, a system turn where there is one, thoughts that a later turn leaves out.
THINKER = """\
{# do_sample is a name in a comment #}
{%- if tools %}<sys>{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}
{%- for tool in tools %}tool {{ tool | tojson }}\n{% endfor %}</sys>
{%- elif messages[0].role == 'system' %}<sys>{{ messages[0].content }}</sys>{% endif %}
{%- for message in messages if message.role != 'system' %}<{{ message.role }}>{{ message.content }}</>{% endfor %}
{%- if add_generation_prompt %}<assistant>
{%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}
{%- endif %}"""
# A default system prompt with a date, tools of one's own by another name, and an answer in the user's turn.
DATED = """\
{%- if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}
{%- set tools_in_user_message = tools_in_user_message | default(true) %}
{%- set date = date_string | default('26 Jul 2024') %}
{%- if messages[0].role == 'system' %}{% set system, messages = messages[0].content, messages[1:] %}
{%- else %}{% set system = 'You are helpful.' %}{% endif -%}
<system>Today: {{ date }}
{%- if tools and not tools_in_user_message %} tools: {{ tools | map(attribute='name') | join(' ') }}{% endif %}
{{- '\n' ~ system }}</>
{%- for message in messages %}<{{ message['role'] }}>
{%- if loop.first and tools and tools_in_user_message %}tools: {{ tools | map(attribute='name') | join }} {% endif %}
{{- message['content'] }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
OFF = {"enable_thinking": False}
ADD = {"name": "add", "parameters": {"type": "object"}}


class Characters:
    """A tokenizer of characters with a chat template, which is rendered as transformers renders it."""

    bos_token, eos_token_id, name_or_path = "<s>", 0, "mine"

    def __init__(self, template: str) -> None:
        self.chat_template = template

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(map(ord, text)) for text in texts]}

    def convert_ids_to_tokens(self, id: int) -> str:
        return chr(id)

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt, tools=None, **kwargs) -> str:
        kwargs |= {"add_generation_prompt": add_generation_prompt, "tools": tools}
        (text,), _ = render_jinja_template([conversation], chat_template=self.chat_template, **kwargs)
        return text


@pytest.mark.parametrize(
    ("template", "system", "kwargs", "text"),
    [
        (THINKER, None, {}, "<user>1?</><assistant>"),
        (THINKER, None, {"enable_thinking": True}, "<user>1?</><assistant>"),
        (THINKER, None, OFF, "<user>1?</><assistant><think>\n\n</think>"),
        (THINKER, "Be brief.", OFF, "<sys>Be brief.</sys><user>1?</><assistant><think>\n\n</think>"),
        (
            THINKER,
            "Be brief.",
            {"tools": [ADD]},
            f"<sys>Be brief.\ntool {json.dumps(ADD)}\n</sys><user>1?</><assistant>",
        ),
        (DATED, None, {}, "<system>Today: 26 Jul 2024\nYou are helpful.</><user>1?</><assistant>"),
        (DATED, "", {}, "<system>Today: 26 Jul 2024\nYou are helpful.</><user>1?</><assistant>"),
        (DATED, "Be brief.", {"date_string": "1 May"}, "<system>Today: 1 May\nBe brief.</><user>1?</><assistant>"),
        (
            DATED,
            None,
            {"custom_tools": [ADD]},
            "<system>Today: 26 Jul 2024\nYou are helpful.</><user>tools: add 1?</><assistant>",
        ),
        (
            DATED,
            None,
            {"custom_tools": [ADD], "tools_in_user_message": False},
            "<system>Today: 26 Jul 2024 tools: add\nYou are helpful.</><user>1?</><assistant>",
        ),
    ],
)
def test_prompts_are_what_the_chat_template_makes_of_what_it_is_told(template, system, kwargs, text):
    config = DataConfig(prompts="x", template="chat", system=system, chat_template_kwargs=kwargs)
    sources = [Loaded(*config.sources, [Problem("b", "1", "1?", "1")])]
    (prompt,) = tokenize_problems(sources, config, Characters(template)).prompts
    assert prompt.text == text
    assert "".join(map(chr, prompt.token_ids)) == text


def test_a_server_gets_the_messages_as_before_and_what_its_template_is_told_beside_them():
    problem, turns = Problem("b", "1", "1?", "1"), [{"role": "user", "content": "1?"}]
    assert json.loads(_text(problem, find_template("chat"), "chat")) == turns
    sent = json.loads(_text(problem, find_template("chat", kwargs=OFF), "chat"))
    assert sent == {"messages": turns, "chat_template_kwargs": OFF}


@pytest.mark.parametrize(
    "place", ["chat_template.jinja", "additional_chat_templates/other.jinja", "tokenizer_config.json"]
)
def test_what_a_template_does_not_read_is_named(tmp_path, place):
    """Neither a comment, a text, nor an attribute of another name counts as reading."""
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"chat_template": THINKER}) if file.suffix == ".json" else THINKER, encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    kwargs = dict.fromkeys(("enable_thinking", "tools", "enable_thinkin", "do_sample", "content", "assistant"))
    unread = unread_kwargs(str(tmp_path), kwargs)
    assert len(unread) == 4
    for key, line in zip(("enable_thinkin", "do_sample", "content", "assistant"), unread, strict=True):
        says(line, key, tmp_path)
    assert "did you mean enable_thinking?" in unread[0]
    assert unread_kwargs(str(tmp_path), {}) == []


def test_the_template_of_a_model_of_the_hub_is_looked_at_in_its_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--owner--name"
    for file, text in (
        ("refs/main", "abc"),
        ("snapshots/abc/config.json", "{}"),
        ("snapshots/abc/tokenizer_config.json", json.dumps({"chat_template": THINKER})),
    ):
        (repository / file).parent.mkdir(parents=True, exist_ok=True)
        (repository / file).write_text(text, encoding="utf-8")
    (line,) = unread_kwargs("owner/name", {"lang": "de", **OFF})
    says(line, "lang", "owner/name")


@pytest.mark.parametrize("template", [None, "{{ 'broken", "no names at all"])
def test_nothing_is_said_of_a_template_that_is_not_here_or_says_nothing(tmp_path, template):
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
        (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert unread_kwargs(str(tmp_path), OFF) == []
    assert unread_kwargs("embedded:countdown", OFF) == []


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ("{add_generation_prompt: false}", "add_generation_prompt"),
        ("{chat_template: x}", "chat_template"),
        ("{continue_final_message: true}", "continue_final_message is quatro's own"),
        ("{return_assistant_tokens_mask: true}", "return_assistant_tokens_mask is quatro's own"),
        ("{not-a-name: 1}", "found {'not-a-name': 1}"),
        ("{a: .nan}", "expected"),
        ("7", "expected"),
    ],
)
def test_what_no_template_can_be_told_is_refused_by_name(kwargs, said):
    with pytest.raises(UsageError) as refused:
        load_config("math-1.5b", overrides=["model=m", f"data.chat_template_kwargs={kwargs}"])
    says(refused, said, key="data.chat_template_kwargs")


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(UsageError, match=r"found \{1: 2\}"):
        checked_kwargs({1: 2})


def test_templates_that_are_told_something_have_a_hash_and_differ():
    assert len({find_template("chat"), find_template("chat", kwargs=OFF), find_template("chat", kwargs=OFF)}) == 2


def test_a_prompt_that_is_no_chat_has_no_place_for_it():
    settings = ["model=m", "data.chat_template_kwargs.enable_thinking=false"]
    assert load_config("math-1.5b", overrides=settings).data.chat_template_kwargs == OFF
    with pytest.raises(UsageError) as refused:
        load_config("math-1.5b", overrides=[*settings, "data.template=plain"])
    says(refused, "plain", key="data.chat_template_kwargs")
    with pytest.raises(UsageError, match=r"plain.*enable_thinking"):
        find_template("plain", kwargs=OFF)


def test_long_values_are_no_endless_template():
    turns = [{"role": "user", "content": "?"}]
    said = render_chat(Characters("{{ notes }}"), turns, add_generation_prompt=True, notes="a" * 70_000)
    assert len(said) == 70_000
