"""Prompt templates, shared by training and sampling: what surrounds a problem before a model reads it.

Which one the paper used is not published; `qwen-boxed` is the default of the public code closest to it (SimKO).
`paper-example` carries the instruction of the paper's own examples. `qwen25-math-cot` is Qwen2.5-Math's own.

A template of one's own is a text with `{problem}` in it: the whole prompt, or after `chat:` the user's turn.

Models that think answer with a thought, its end marker and then what is judged: only what follows the marker.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evals.errors import DataError, MissingError, UsageError
from evals.files.strict_json import shown
from evals.text import table_beside

Message = dict[str, str]
ChatTemplate = Callable[..., str]  # of messages, and what else the chat template reads by name

# The column of a samples file that holds the thought; the completion beside it is the rest.
THOUGHT = "thought"
PLACE = "{problem}"
CHAT = "chat:"
# What quatro itself says to what renders a chat template.
_OURS: tuple[str, ...] = ("tokenizer", "messages", "conversation", "chat_template", "tokenize", "add_generation_prompt")
_OURS += ("continue_final_message", "return_assistant_tokens_mask")


@dataclass(frozen=True)
class Template:
    """``user`` with ``{problem}`` replaced by the problem, after a ``system`` turn where there is one.

    Without ``is_chat`` that is the whole prompt, before which the tokenizer's special tokens stand if
    ``adds_special_tokens``. Samples end at the strings ``stop``. ``about`` says in a line what the model reads.
    ``kwargs`` are what the model's chat template is told besides.
    """

    name: str
    about: str = ""
    user: str = PLACE
    system: str | None = None
    is_chat: bool = True
    stop: tuple[str, ...] = ()
    adds_special_tokens: bool = False
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)


TEMPLATES = {
    name: Template(name, **{**table, "stop": tuple(table.get("stop", ()))})
    for name, table in table_beside(__file__, "templates.toml").items()
}
# What of those a user may write in place of a name.
OWN_TEMPLATES = (
    f"a text with {PLACE} in it, or a file with one, is the whole prompt; "
    f"after `{CHAT}` it is the user's turn of a chat"
)


def template_text(given: str) -> str:
    """``given``, a name or a text with ``{problem}``, or the text of the file that it names.

    The file's last line break does not belong to the text. `chat:` may stand before a file's name as before a text.

    Raises:
        UsageError: it is neither a name, nor a text, nor a file.
        DataError: the file cannot be read, or holds no ``{problem}``.
    """
    if given in TEMPLATES or PLACE in given:
        return given
    kind, path = (CHAT, given.removeprefix(CHAT).strip()) if given.startswith(CHAT) else ("", given)
    if not os.path.isfile(path):
        raise _unknown(given)
    try:
        text = Path(path).read_text(encoding="utf-8-sig").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the prompt template {path} cannot be read as UTF-8 text ({error})") from error
    if PLACE not in text:
        raise DataError(f"the prompt template {path} holds no {PLACE}, where the problem is to stand")
    return kind + text


def find_template(
    template: str | Template, system: str | None = None, kwargs: Mapping[str, Any] | None = None
) -> Template:
    """The template of that name, or that a text with ``{problem}`` is; with ``system`` as its system prompt.

    An empty ``system`` leaves out the template's own; None keeps it. ``kwargs`` are for the model's chat template.

    Raises UsageError if there is no such template, or it makes no chat and there is a ``system`` or ``kwargs``.
    """
    found = _named(template) if isinstance(template, str) else template
    if kwargs:
        found = replace(found, kwargs=kwargs)
    if not found.is_chat and (system is not None or kwargs):
        what = "a system prompt" if system is not None else f"chat_template_kwargs ({', '.join(kwargs or ())})"
        raise UsageError(
            f"the prompt template {shown(found.name)} makes no chat, so it has no place for {what}; leave "
            f"that out, or begin a template of your own with `{CHAT}`"
        )
    return found if system is None else replace(found, system=system or None)


def checked_kwargs(kwargs: object) -> Mapping[str, Any]:
    """``kwargs``, if they are values of JSON by names that a chat template may read; else raises UsageError."""
    names = kwargs if isinstance(kwargs, Mapping) else {}
    with suppress(TypeError, ValueError):  # no values of JSON, or no text as a name
        json.dumps(kwargs, allow_nan=False)
        if names == kwargs and all(str.isidentifier(name) and name not in _OURS for name in names):
            return names
    ours = "".join(f"; {name} is quatro's own to say" for name in _OURS if name in names)
    such = "expected chat_template_kwargs such as {enable_thinking: false}, with values of JSON"
    raise UsageError(f"{such}, found {shown(kwargs)}{ours}")


def _named(name: str) -> Template:
    if name in TEMPLATES:
        return TEMPLATES[name]
    if PLACE not in name:
        raise _unknown(name)
    if name.startswith(CHAT):
        return Template(name, user=name.removeprefix(CHAT).lstrip(" "))
    return Template(name, user=name, is_chat=False, adds_special_tokens=True)


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"unknown prompt template {shown(name)}; expected one of {', '.join(TEMPLATES)}, a text with {PLACE} in it, or "
        "the name of a file that holds one"
    )


def messages(template: str | Template, problem: str) -> list[Message]:
    """The chat turns {"role", "content"} of a template; without a chat one user turn that is the whole prompt."""
    found = find_template(template)
    # replace, not format: problems are full of braces.
    turns = [{"role": "user", "content": found.user.replace(PLACE, problem)}]
    if found.system is not None:
        turns.insert(0, {"role": "system", "content": found.system})
    return turns


def render(
    template: str | Template, problem: str, apply_chat_template: ChatTemplate | None, *, model: str = "this model"
) -> str:
    """The text that ``model`` reads. ``apply_chat_template`` turns messages into text, generation prompt included.

    Raises:
        UsageError: there is no such template.
        MissingError: the template needs a chat template and the tokenizer has none.
    """
    found = find_template(template)
    turns = messages(found, problem)
    if not found.is_chat:
        return turns[0]["content"]
    if apply_chat_template is None:
        raise MissingError(
            f"the prompt template {shown(found.name)} needs a tokenizer with a chat template, and that of "
            f"{model} has none; use a model that has one, or the problem alone (`--template plain`, in training "
            "`-s data.template=plain`)"
        )
    return apply_chat_template(turns, **found.kwargs)


def check_markers(markers: str) -> str:
    """``markers``, an end marker or a start and an end marker with white space between; else raises UsageError."""
    found = markers.split()
    if len(found) not in (1, 2) or len(set(found)) < len(found):
        raise UsageError(
            f"thinking markers {markers!a:.80}: expected the end marker, such as `</think>`, or both, such as `<think> "
            "</think>`"
        )
    return markers


def split_thought(text: str, markers: str, prompt: str | None = None) -> tuple[str, str]:
    """(thought with its markers, answer), which together are ``text``; an unfinished thought has an empty answer.

    The answer follows the last end marker. Without one the text is an unfinished thought; but where ``markers`` names a
    start marker too, it is an answer unless a thought began, in the text or at the end of the ``prompt``.
    """
    *start, end = markers.split()
    before, found, after = text.rpartition(end)
    if found:
        is_thinking_again = any(marker in after for marker in start)
        return (text, "") if is_thinking_again else (before + found, after)
    has_begun = all(marker in text or (prompt or "").rstrip().endswith(marker) for marker in start)
    return (text, "") if has_begun else ("", text)
