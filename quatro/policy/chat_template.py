"""Texts by a model's chat template, which is a program that came with the model.

transformers renders it in jinja2's sandbox. That keeps it from files and from Python's insides, not from never ending.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from evals.errors import DataError

# What one text may take; honest ones take a thousandth of it.
LIMIT_CPU_S = 1.0
LIMIT_BYTES = 1 << 29
MOST_ADDED = 1 << 16  # characters beside those of the messages, each of which may be escaped
MOST_ESCAPED = 8
_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")

Messages = Sequence[dict[str, str]]


def chat_renderer(tokenizer: Any) -> Callable[[Messages], str] | None:
    """What makes text of messages, generation prompt included; None where the tokenizer has no chat template.

    Raises (when called):
        DataError: as `render_chat`.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    return lambda messages: render_chat(tokenizer, messages, add_generation_prompt=True)


def render_chat(tokenizer: Any, messages: Messages, *, add_generation_prompt: bool) -> str:
    """The text that the tokenizer's chat template makes of ``messages``.

    Raises:
        DataError: the template does not parse, raises, or takes too much time, memory or room; names its file.
    """
    most = MOST_ADDED + MOST_ESCAPED * sum(len(message["content"]) for message in messages)
    try:
        with _bounded():
            text = str(
                tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
                )
            )
        text.encode()  # half of a surrogate pair is nothing that a tokenizer reads
        if len(text) <= most:
            return text
        reason = f"it writes {len(text):,} characters, expected {most:,} at most"
    except _Endless:
        reason = f"it takes more than {LIMIT_CPU_S:g} s for one text"
    except MemoryError:
        reason = f"it takes more than {LIMIT_BYTES:,} bytes of memory for one text"
    except Exception as error:  # a program of a stranger's: whatever it raises means that it makes no prompt
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    raise DataError(
        f"{_where(tokenizer)} makes no prompt: {reason}; mend it, or take the problem alone "
        "(`--template plain`, in training `-s data.template=plain`)"
    )


class _Endless(BaseException):
    """Not an Exception: jinja2 handles some of those."""


@contextmanager
def _bounded() -> Iterator[None]:
    """Inside, the main thread may take some more time, and on Linux this process some more memory."""
    if not hasattr(signal, "setitimer"):  # Windows, where nothing is bounded
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        taken = int(sizes.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        limits = [limit for limit in (soft, hard, taken + LIMIT_BYTES) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        with _timed():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _timed() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where alone signals are handled
        yield
        return
    began_s = time.thread_time()

    def look(number: int, frame: FrameType | None) -> None:
        if time.thread_time() - began_s > LIMIT_CPU_S:  # the timer counts other threads too
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            raise _Endless

    outer = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_CPU_S / 8, LIMIT_CPU_S / 8)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, outer)


def _where(tokenizer: Any) -> str:
    name = tokenizer.name_or_path
    found = next((file for file in (Path(name, file) for file in _FILES) if name and file.is_file()), None)
    return f"the chat template of {name}" if found is None else f"{found}: the chat template"
