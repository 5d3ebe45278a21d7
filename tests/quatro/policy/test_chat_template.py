"""Chat templates are programs of strangers: what one text may take is bounded, and nothing stays bounded after it."""

import resource
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from evals.errors import DataError
from quatro.policy import facts
from quatro.policy.facts import chat_renderer, render_chat

pytest.importorskip("transformers")
from transformers.utils.chat_template_utils import render_jinja_template

TURN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
MESSAGES = [{"role": "user", "content": "1 + 1"}]
FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def tokenizer(template):
    def apply_chat_template(conversation, *, tokenize, add_generation_prompt):
        rendered, _ = render_jinja_template(
            [conversation], chat_template=template, add_generation_prompt=add_generation_prompt
        )
        return rendered[0]

    return SimpleNamespace(name_or_path="mine", chat_template=template, apply_chat_template=apply_chat_template)


def limits():
    return resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGVTALRM), signal.getitimer(1)


ENDLESS = {
    "a silent loop": FOREVER,
    "a loop that writes": "{% for a in range(99999) %}{% for b in range(99999) %}aaaa{% endfor %}{% endfor %}",
    "a loop over a list": "{% set r = range(99999) | list %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
    "a loop in a filter": "{% for a in range(99999) %}{{ range(99999) | select | list | length }}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "another prompt than the first": f"{{% if '2' in messages[0].content %}}{FOREVER}{{% endif %}}{TURN}",
    "much text": "a" * (1 << 17),
    "half of a surrogate pair": "{{ '\\ud800' }}",
}
LARGE = {
    "a repeated text": "{{ 'a' * 10 ** 10 }}",
    "a repeated text that is not written": f"{{% set x = 'a' * 10 ** 10 %}}{TURN}",
    "a repeated list": f"{{% set x = [1] * 10 ** 10 %}}{TURN}",
    "a width": "{{ 'a'.ljust(10 ** 10) }}",
    "a width in a filter": "{{ 'a' | center(10 ** 10) }}",
    "a format": "{{ '%2000000000d' % 1 }}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_template_without_end_is_refused_by_name(kind, monkeypatch):
    monkeypatch.setattr(facts, "LIMIT_CPU_S", 0.05)
    render, before = chat_renderer(tokenizer(ENDLESS[kind])), limits()
    if kind == "another prompt than the first":
        assert render(MESSAGES) == "user: 1 + 1\n>"
    with pytest.raises(DataError, match=r"the chat template of mine makes no prompt.*--template plain"):
        render([{"role": "user", "content": "1 + 2"}])
    assert limits() == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the memory of a process")
@pytest.mark.parametrize("kind", LARGE)
def test_a_template_that_fills_memory_is_refused_by_name(kind, monkeypatch):
    monkeypatch.setattr(facts, "LIMIT_BYTES", 1 << 27)
    peak, before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, limits()
    with pytest.raises(DataError, match=r"the chat template of mine makes no prompt.*--template plain"):
        render_chat(tokenizer(LARGE[kind]), MESSAGES, add_generation_prompt=True)
    assert limits() == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < (1 << 28) / 1024


def test_an_honest_template_is_rendered_whole_in_any_thread():
    found = []
    long = [{"role": "user", "content": '"' * 300_000}]
    escaped = tokenizer("{{ messages[0].content | tojson }}")

    def render():
        found.append(render_chat(tokenizer(TURN), MESSAGES, add_generation_prompt=False))
        found.append(render_chat(escaped, long, add_generation_prompt=True))

    before = limits()
    render()
    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    assert found == ["user: 1 + 1\n", '"' + '\\"' * 300_000 + '"'] * 2
    assert limits() == before
    assert chat_renderer(SimpleNamespace(chat_template=None)) is None
