"""Chat templates are programs of strangers: what they may write is bounded."""

import threading
from types import SimpleNamespace

import pytest

from evals.errors import DataError
from quatro.policy.facts import chat_renderer, render_chat

pytest.importorskip("transformers")
from transformers.utils.chat_template_utils import render_jinja_template

TURN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
MESSAGES = [{"role": "user", "content": "1 + 1"}]


def tokenizer(template):
    def apply_chat_template(conversation, *, tokenize, add_generation_prompt):
        rendered, _ = render_jinja_template(
            [conversation], chat_template=template, add_generation_prompt=add_generation_prompt
        )
        return rendered[0]

    return SimpleNamespace(name_or_path="mine", chat_template=template, apply_chat_template=apply_chat_template)


REFUSED = {
    "a recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "much text": "a" * (1 << 17),
    "a repeated text": "{{ 'a' * 10 ** 8 }}",
    "another prompt than the first": f"{{% if '2' in messages[0].content %}}{{{{ 'a' * 10 ** 8 }}}}{{% endif %}}{TURN}",
    "half of a surrogate pair": "{{ '\\ud800' }}",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_template_that_makes_no_prompt_is_refused_by_name(kind):
    render = chat_renderer(tokenizer(REFUSED[kind]))
    if kind == "another prompt than the first":
        assert render(MESSAGES) == "user: 1 + 1\n>"
    with pytest.raises(DataError, match=r"the chat template of mine makes no prompt.*--template plain"):
        render([{"role": "user", "content": "1 + 2"}])


def test_an_honest_template_is_rendered_whole_in_any_thread():
    found = []
    long = [{"role": "user", "content": '"' * 300_000}]
    escaped = tokenizer("{{ messages[0].content | tojson }}")

    def render():
        found.append(render_chat(tokenizer(TURN), MESSAGES, add_generation_prompt=False))
        found.append(render_chat(escaped, long, add_generation_prompt=True))

    render()
    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    assert found == ["user: 1 + 1\n", '"' + '\\"' * 300_000 + '"'] * 2
    assert chat_renderer(SimpleNamespace(chat_template=None)) is None
