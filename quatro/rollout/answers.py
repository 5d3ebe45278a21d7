"""What a server's answers mean, and what is wrong with those that mean nothing. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from evals.errors import DataError
from quatro.types import FinishReason

LONGEST_TOKEN = 256  # characters; vocabularies have runs of 128 spaces
MOST_NAME = 4096  # characters of a name that a server gives


class Unanswered(Exception):
    """A request that another try may answer. ``kind`` is the status, or `connection`, `timeout` or `answer`.

    ``retry_after_s`` is how long the server asks to wait.
    """

    def __init__(self, kind: str, said: str, retry_after_s: float = 0.0) -> None:
        super().__init__(said)
        self.kind = kind
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Served:
    """What a server says of a model in its list; ``max_model_len`` counts prompt and response."""

    id: str
    owned_by: str | None = None
    root: str | None = None
    max_model_len: int | None = None

    @property
    def is_vllm(self) -> bool:
        """Whether the server takes vLLM's own fields, as far as it says."""
        return self.owned_by == "vllm"


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


def read_document(body: bytes | bytearray, kept: Callable[[str], str] = str) -> dict[str, Any]:
    """The JSON object of an answer with status 200, with what ``kept`` makes of each text in it.

    Raises:
        Unanswered: it is no JSON object, or one that holds an error.
    """
    try:
        document = _changed(json.loads(body), kept)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("error"):
        what = "with an error" if isinstance(document, dict) else "without a JSON object"
        raise _useless(f"{what}: {words(body)}")
    return document


def _useless(what: str) -> Unanswered:
    return Unanswered("answer", f"status 200 {what}")


def _changed(value: Any, kept: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return kept(value)
    if isinstance(value, list):
        return [_changed(one, kept) for one in value]
    return {name: _changed(one, kept) for name, one in value.items()} if isinstance(value, dict) else value


def words(body: bytes | bytearray) -> str:
    """What the server says of an error, on one line."""
    try:
        document = json.loads(body)
        error = document.get("error", document)
        said = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, RecursionError, AttributeError, LookupError):
        said = body.decode("utf-8", "replace")
    return " ".join(said.split()) or "nothing"


def read_models(document: Mapping[str, Any]) -> list[Served]:
    """The models of a server's list; raises Unanswered if it is none."""
    cards = document.get("data")
    if not isinstance(cards, list) or not all(isinstance(card, dict) and _text(card, "id") for card in cards):
        raise _useless("without a list of models")
    return [
        Served(_text(card, "id") or "", _text(card, "owned_by"), _text(card, "root"), _count(card, "max_model_len"))
        for card in cards
    ]


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
        raise _useless("without exactly one response")
    text, reason, ids = choice.get("text"), choice.get("finish_reason"), choice.get("token_ids")
    if is_chat:
        text = _content(choice.get("message"))
    if not isinstance(text, str):
        raise _useless("with a response that has no text")
    if reason not in ("stop", "length"):
        raise _useless(f"with a response that ended with {reason!r}, expected 'stop' or 'length'")
    if ids is not None and not (isinstance(ids, list) and all(type(id) is int and 0 <= id < 2**31 for id in ids)):
        raise _useless("with token ids that are not whole numbers")
    usage = document.get("usage")
    num_prompt, num_tokens = _count(usage, "prompt_tokens") or None, _count(usage, "completion_tokens")
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
            raise _useless(f"with {len(ids)} token ids in a response that is said to have {num_tokens}")
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
    fingerprint = _text(document, "system_fingerprint")
    return Answer(text, cast(FinishReason, reason), token_ids, num_tokens, num_prompt, fingerprint)


def _content(message: Any) -> Any:
    """Null where a server refused or only reasoned, which makes an empty response; a list of parts is no text."""
    if not isinstance(message, dict):
        return None
    if (role := message.get("role")) not in (None, "assistant"):
        raise DataError(f"a message of the role {role!r} came back, expected 'assistant'")
    content = message.get("content")
    return "" if content is None else content


def _text(block: Any, name: str) -> str | None:
    """A name that is recorded; half of a surrogate pair would have no place in a file."""
    value = block.get(name) if isinstance(block, dict) else None
    return value[:MOST_NAME].encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _count(block: Any, name: str) -> int | None:
    value = block.get(name) if isinstance(block, dict) else None
    return value if type(value) is int and value >= 0 else None
