"""What a server's answers mean, and what is wrong with those that mean nothing. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from evals.errors import DataError
from evals.servers import count_of, text_of, useless
from quatro.types import FinishReason

LONGEST_TOKEN = 256  # characters; vocabularies have runs of 128 spaces


@dataclass(frozen=True)
class Answer:
    """A response as the server gives it. Ids and numbers of tokens are None where it does not say.

    ``num_prompt`` counts the prompt that it read. ``system_fingerprint`` is the server's own word for what it runs.
    """

    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None
    num_tokens: int | None
    num_prompt: int | None
    system_fingerprint: str | None


def read_answer(
    document: Mapping[str, Any],
    *,
    model: str,
    max_tokens: int,
    context: int | None,
    is_chat: bool = False,
    prompt_ids: Sequence[int] | None = None,
) -> Answer:
    """The one response in an answer to a request for ``max_tokens`` of ``model``, whose context has ``context`` tokens.

    ``prompt_ids`` is what the request sent, if it sent token ids.

    Raises:
        Unanswered: there is no whole response in it.
        DataError: another model or role answered, or to another prompt, or the response is of another length than was
            asked for.
    """
    if (name := document.get("model")) not in (None, model):
        raise DataError(
            f"the request names the model {model!r}, and the answer names {name!r}; if both are the same, add "
            f"--served-model {name!r}"
        )
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(choice, dict) or choice.get("index") not in (None, 0):
        raise useless("without exactly one response")
    text, reason, ids = choice.get("text"), choice.get("finish_reason"), choice.get("token_ids")
    if is_chat:
        text = _content(choice.get("message"))
    if not isinstance(text, str):
        raise useless("with a response that has no text")
    if reason not in ("stop", "length"):
        raise useless(f"with a response that ended with {reason!r}, expected 'stop' or 'length'")
    if ids is not None and not (isinstance(ids, list) and all(type(id) is int and 0 <= id < 2**31 for id in ids)):
        raise useless("with token ids that are not whole numbers")
    usage = document.get("usage")
    num_prompt, num_tokens = count_of(usage, "prompt_tokens") or None, count_of(usage, "completion_tokens")
    if text and num_tokens == 0:  # it does not count
        num_tokens = None
    if prompt_ids is not None:
        num_sent = len(prompt_ids)
        if num_prompt not in (None, num_sent) or choice.get("prompt_token_ids") not in (None, list(prompt_ids)):
            found = "other tokens" if num_prompt in (None, num_sent) else f"{num_prompt} tokens"
            raise DataError(
                f"the prompt was sent as {num_sent} token ids, and the server read {found}: it cuts prompts, or adds "
                "tokens of its own; change that there, or let it make the tokens (--chat or --text)"
            )
        num_prompt = num_sent
    if ids is not None:
        if num_tokens not in (None, len(ids)):
            raise useless(f"with {len(ids)} token ids in a response that is said to have {num_tokens}")
        num_tokens = len(ids)
    # A server that does not count cannot have drawn more tokens than its text has bytes, if all of it is there.
    num_bytes = len(text.encode("utf-8", "replace"))
    most = num_bytes if num_tokens is None and not is_chat else num_tokens
    may_fill_context = context is not None and (num_prompt is None or num_prompt + (most or 0) >= context)
    is_short = reason == "length" and most is not None and most < max_tokens and not may_fill_context
    if is_short or (num_tokens or 0) > max_tokens or len(text) > LONGEST_TOKEN * (num_tokens or max_tokens):
        counted = f"{num_bytes} bytes" if num_tokens is None else f"{num_tokens} tokens and {num_bytes} bytes"
        raise DataError(
            f"at most {max_tokens} tokens were asked for, and a response ended with {reason!r} after {counted}; the "
            "server has a limit of its own: change it there, or sample with --max-tokens at or below it"
        )
    token_ids = None if ids is None else tuple(ids)
    fingerprint = text_of(document, "system_fingerprint")
    return Answer(text, cast(FinishReason, reason), token_ids, num_tokens, num_prompt, fingerprint)


def _content(message: Any) -> Any:
    """Null where a server refused or only reasoned, which makes an empty response; a list of parts is no text."""
    if not isinstance(message, dict):
        return None
    if (role := message.get("role")) not in (None, "assistant"):
        raise DataError(f"a message of the role {role!r} came back, expected 'assistant'")
    content = message.get("content")
    return "" if content is None else content
