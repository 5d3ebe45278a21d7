"""Prompt templates, shared by training and sampling: what surrounds a problem before a model reads it.

Which one the paper used is not published; `qwen-boxed` is the default of the public code closest to it (SimKO).
`paper-example` carries the instruction of the paper's own examples. `qwen25-math-cot` is Qwen2.5-Math's own.

The templates for code: `code-body` continues the head of a function, as HumanEval's problems are; `code-program` lets
a whole program follow the problem, as MBPP's do; `code-chat` asks a chat model for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evals.errors import MissingError, UsageError

Message = dict[str, str]
ChatTemplate = Callable[[Sequence[Message]], str]

_BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
# What a base model writes once a program is over: it uses the program, tests it, or begins to explain.
_AFTER_PROGRAM = ("\nif __name__", "\nassert ", "\nprint(", "\n# Test", "\n```", '\n"""')


@dataclass(frozen=True)
class Template:
    """``user`` with ``{problem}`` replaced by the problem, after a ``system`` turn where there is one.

    Without ``is_chat`` the problem itself is the whole prompt. Samples end at the strings ``stop``.
    """

    name: str
    user: str = "{problem}"
    system: str | None = None
    is_chat: bool = True
    stop: tuple[str, ...] = ()


TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        Template("qwen-boxed", user="{problem}\n" + _BOXED, system="You are a helpful assistant."),
        Template("qwen25-math-cot", system=_BOXED),
        Template(
            "paper-example", user="{problem}\nPlease reason step by step and report the final answer in a boxed form."
        ),
        Template("chat"),
        Template("plain", is_chat=False),
        Template("code-body", is_chat=False, stop=("\ndef ", "\nclass ", "\n@", *_AFTER_PROGRAM)),
        Template("code-program", is_chat=False, stop=_AFTER_PROGRAM),
        Template("code-chat", user="{problem}\n\nAnswer with the whole Python program in one fenced code block."),
    )
}


def find_template(name: str) -> Template:
    """The template of that name.

    Raises:
        UsageError: there is none; the message lists the names.
    """
    if name not in TEMPLATES:
        raise UsageError(f"unknown prompt template {name!r}; the templates are {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


def messages(template: str, problem: str) -> list[Message]:
    """The chat turns {"role", "content"} of a template; for `plain` one user turn that is the problem."""
    found = find_template(template)
    # replace, not format: problems are full of braces.
    turns = [{"role": "user", "content": found.user.replace("{problem}", problem)}]
    if found.system is not None:
        turns.insert(0, {"role": "system", "content": found.system})
    return turns


def render(template: str, problem: str, apply_chat_template: ChatTemplate | None) -> str:
    """The text that the model reads. ``apply_chat_template`` turns messages into text, generation prompt included.

    Raises:
        UsageError: there is no template of that name.
        MissingError: the template needs a chat template and the tokenizer has none.
    """
    if not find_template(template).is_chat:
        return problem
    if apply_chat_template is None:
        raise MissingError(
            f"the prompt template {template!r} needs a tokenizer with a chat template, and this model's has none; "
            "use a model that has one, or the problem alone (`--template plain`, in training `-s data.template=plain`)"
        )
    return apply_chat_template(messages(template, problem))
