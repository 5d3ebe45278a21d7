"""What a server's answers mean, and what is wrong with those that mean nothing. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from evals.errors import DataError
from evals.results.document import first_error
from quatro.types import FinishReason


class Unanswered(Exception):
    """A request that another try may answer. ``kind`` is the status, or `connection`, `timeout` or `answer`.

    ``retry_after_s`` is how long the server asks to wait.
    """

    def __init__(self, kind: str, said: str, retry_after_s: float = 0.0) -> None:
        super().__init__(said)
        self.kind = kind
        self.retry_after_s = retry_after_s


def _without_halves(value: Any) -> Any:
    """Half of a surrogate pair, which JSON can hold and a file cannot, becomes a replacement character."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_without_halves)]
_Count = Annotated[int, Field(ge=0)]
_Id = Annotated[int, Field(ge=0, lt=1 << 31)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Served(_Part):
    """What a server says of a model in its list; ``max_model_len`` counts prompt and response."""

    id: _Text
    owned_by: _Text | None = None
    root: _Text | None = None
    max_model_len: _Count | None = None

    @property
    def is_vllm(self) -> bool:
        """Whether the server takes vLLM's own fields, as far as it says."""
        return self.owned_by == "vllm"


class _Models(_Part):
    data: list[Served]


class _Message(_Part):
    role: Literal["assistant"] | None = None
    content: _Text | None = None  # null where a server refused or only reasoned, which makes an empty response


class _Choice(_Part):
    finish_reason: FinishReason
    text: _Text | None = None
    message: _Message | None = None
    token_ids: list[_Id] | None = None
    prompt_token_ids: list[_Id] | None = None


class _Usage(_Part):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class _Reply(_Part):
    model: _Text | None = None
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage | None = None
    system_fingerprint: _Text | None = None


@dataclass(frozen=True)
class Answer:
    """A response as the server gives it. Ids and their number are None where it does not say.

    ``system_fingerprint`` is the server's own word for what it runs.
    """

    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None
    num_tokens: int | None
    system_fingerprint: str | None


_Document = TypeVar("_Document", _Models, _Reply)


def _read(body: bytes | bytearray, kind: type[_Document]) -> _Document:
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        wrong = first_error(error)
    except (ValueError, RecursionError):
        wrong = "no JSON"
    raise Unanswered("answer", f"status 200, but no usable answer ({wrong}): {words(body)}")


def words(body: bytes | bytearray) -> str:
    """What the server says of an error, on one line."""
    try:
        error = json.loads(body)["error"]
        said = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, RecursionError, TypeError, LookupError):
        said = body.decode("utf-8", "replace")
    return " ".join(said.split()) or "nothing"


def read_models(body: bytes | bytearray) -> list[Served]:
    """The models of a server's list; raises Unanswered if it is none."""
    return _read(body, _Models).data


def read_answer(
    body: bytes | bytearray,
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
        DataError: another model answered, or to another prompt, or the response is of another length than was asked
            for.
    """
    reply = _read(body, _Reply)
    (choice,), usage = reply.choices, reply.usage or _Usage()
    if reply.model not in (None, model):
        raise DataError(
            f"the request names the model {model!r}, and the answer names {reply.model!r}; if both are the same, add "
            f"--served-model {reply.model!r}"
        )
    text = choice.text
    if is_chat:
        text = None if choice.message is None else choice.message.content or ""
    if text is None:
        raise Unanswered("answer", f"status 200, but a response that has no text: {words(body)}")
    num_prompt = usage.prompt_tokens or None
    if prompt_ids is not None:
        _refuse_other_prompt(prompt_ids, num_prompt, choice.prompt_token_ids)
        num_prompt = len(prompt_ids)
    num_tokens = usage.completion_tokens if choice.token_ids is None else len(choice.token_ids)
    if num_tokens is not None:
        may_fill_context = context is not None and (num_prompt is None or num_prompt + num_tokens >= context)
        is_cut = choice.finish_reason == "length" and num_tokens < max_tokens and not may_fill_context
        if is_cut or num_tokens > max_tokens:
            raise DataError(
                f"at most {max_tokens} tokens were asked for, and a response ended with {choice.finish_reason!r} after "
                f"{num_tokens}; the server has a limit of its own: change it there, or sample with --max-tokens at or "
                "below it"
            )
    ids = None if prompt_ids is None or choice.token_ids is None else tuple(choice.token_ids)
    return Answer(text, choice.finish_reason, ids, num_tokens, reply.system_fingerprint)


def _refuse_other_prompt(sent: Sequence[int], num_read: int | None, read: list[int] | None) -> None:
    if num_read not in (None, len(sent)) or read not in (None, list(sent)):
        found = f"{num_read} tokens" if num_read not in (None, len(sent)) else "other tokens"
        raise DataError(
            f"the prompt was sent as {len(sent)} token ids, and the server read {found}: it cuts prompts, or adds "
            "tokens of its own; change that there, or let it make the tokens (--chat or --text)"
        )
