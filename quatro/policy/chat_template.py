"""Prompts by a model's chat template, which is a program that came with the model.

transformers renders it in jinja2's sandbox. That keeps it from files and from Python's insides, not from never ending.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from evals.errors import DataError

MAX_STEPS = 1_000_000  # lines run and functions called, compiling the template included; honest ones take a few 10,000
_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")

Messages = Sequence[dict[str, str]]


def chat_renderer(tokenizer: Any) -> Callable[[Messages], str] | None:
    """What makes text of messages, generation prompt included; None where the tokenizer has no chat template.

    Steps of the first rendering are counted: loops of another one are over what stands in its messages.

    Raises (when called):
        DataError: the template does not parse, raises, or takes too many steps; names its file.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    is_counted = False

    def render(messages: Messages) -> str:
        nonlocal is_counted
        run = _plainly if is_counted else _counting
        is_counted = True
        try:
            return run(
                lambda: str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
            )
        except MemoryError:
            raise
        except _Endless:
            reason = f"it takes more than {MAX_STEPS:,} steps for one prompt"
        except Exception as error:  # a program of a stranger's: whatever it raises means that it makes no prompt
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise DataError(
            f"{_where(tokenizer)} makes no prompt: {reason}; mend it, or take the problem alone "
            "(`--template plain`, in training `-s data.template=plain`)"
        )

    return render


class _Endless(BaseException):
    """Not an Exception: jinja2 handles some of those."""


def _plainly(render: Callable[[], str]) -> str:
    return render()


def _counting(render: Callable[[], str]) -> str:
    num_steps = 0

    def count(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        if num_steps > MAX_STEPS:
            raise _Endless
        return count if frame.f_code.co_filename == "<template>" else None  # jinja2's name for what it compiled

    outer = sys.gettrace()
    sys.settrace(count)
    try:
        return render()
    finally:
        sys.settrace(outer)


def _where(tokenizer: Any) -> str:
    name = tokenizer.name_or_path
    found = next((file for file in (Path(name, file) for file in _FILES) if name and file.is_file()), None)
    return f"the chat template of {name}" if found is None else f"{found}: the chat template"
