"""Draws responses from an OpenAI-compatible server, which `evals.servers` asks. Imports no torch.

Each response is a request of its own with its own seed, and what fails for a while is asked again, a bounded number of
times. vLLM is also told what the model's generation_config.json would otherwise decide, and gives the sampled ids back.
"""

import functools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple, cast

from anyio.from_thread import start_blocking_portal

from evals.errors import DataError
from evals.files.strict_json import shown
from evals.servers import Asked, Served, Server, count_of, useless
from quatro.rollout.engine import Arrival, Seeds
from quatro.rollout.stops import REPLACEMENT, before_stop, response_limits
from quatro.types import FinishReason, Prompt, Rollout, Sampling

logger = logging.getLogger(__name__)

MOST_PER_TOKEN = 16  # letters and digits, on average over a prompt: no vocabulary comes near
OTHER_MODEL = "is the tokenizer of MODEL that of the model there? If not, name the right one, or send --chat or --text"
LONGEST_TOKEN = 256  # characters; vocabularies have runs of 128 spaces
SEED_BITS = 53  # the integers that every reader of JSON holds exactly

PromptForm = Literal["ids", "text", "chat"]
FORMS: dict[PromptForm, str] = {
    "ids": "token ids, made here",
    "text": "text",
    "chat": "messages, to which the server applies its own chat template",
}


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server. ``served_model`` is None where MODEL says what it is called there.

    ``form`` is that of the prompts in a request; at most ``concurrency`` requests are open at once.
    """

    base_url: str
    served_model: str | None = None
    form: PromptForm = "ids"
    concurrency: int = 32

    @property
    def path(self) -> str:
        """What a request is posted to, below ``base_url``."""
        return "chat/completions" if self.form == "chat" else "completions"


class _Wanted(NamedTuple):
    """Response ``row`` to prompt number ``number``."""

    number: int
    row: int
    prompt: Prompt
    seed: int
    max_tokens: int


@dataclass(eq=False)
class ServerSampler:
    """Draws from the model ``served`` of a server. ``tokenizer`` is that of MODEL, if prompts are sent as ids.

    ``stop_ids`` end a response besides the model's own. The model can draw ids below ``num_ids``.
    """

    server: Server
    endpoint: Endpoint
    served: Served
    _: KW_ONLY
    tokenizer: Any = None
    stop_ids: Sequence[int] = ()
    num_ids: int = 0
    _told: set[str] = field(default_factory=set, init=False)

    def stream(self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling) -> Iterator[list[Arrival]]:
        """``len(seeds[i])`` rollouts of ``prompts[i]``, a few at a time as they come: what ends the drawing loses none.

        Raises QuatroError if no further ones can be drawn.
        """
        limits = [sampling.max_new_tokens] * len(prompts)
        if self.tokenizer is not None:
            limits = response_limits(prompts, sampling.max_new_tokens, context=self.served.max_model_len)
        wanted = (
            _Wanted(number, row, prompts[number], seed, limits[number])
            for number, row_seeds in enumerate(seeds)
            for row, seed in enumerate(row_seeds)
        )
        texts: list[set[str]] = [set() for _ in prompts]
        arrivals: SimpleQueue[Arrival | None] = SimpleQueue()  # None: there is no more
        with start_blocking_portal() as portal:  # leaving it cancels what is under way
            asked = (self._asked(one, sampling) for one in wanted)
            drawing = portal.start_task_soon(self.server.ask_all, self.endpoint.path, asked, arrivals.put)
            drawing.add_done_callback(lambda _: arrivals.put(None))
            is_over = False
            while not is_over:
                batch = [arrivals.get()]
                while not arrivals.empty():
                    batch.append(arrivals.get())
                is_over = batch[-1] is None
                if came := [arrival for arrival in batch if arrival is not None]:
                    for arrival in came:
                        texts[arrival.number].add(arrival.rollout.text)
                    yield sorted(came, key=lambda arrival: (arrival.number, arrival.row))
            drawing.result()
        repeated = [len(found) for found, row_seeds in zip(texts, seeds, strict=True) if len(row_seeds) > 1]
        if 2 * (num_equal := repeated.count(1)) > len(repeated):
            self._tell(
                "equal",
                f"all samples of {num_equal} of {len(repeated)} problems are equal at temperature "
                f"{sampling.temperature:g}: does it take the temperature and the seed, or answer from a cache?",
            )

    def _tell(self, kind: str, said: str) -> None:
        """Logs what is odd about the server, of each kind the first."""
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("%s: %s", self.server.where, said)

    def _asked(self, one: _Wanted, sampling: Sampling) -> Asked[Arrival]:
        read = functools.partial(self._arrival, one, sampling)
        return Asked(self._body(one, sampling), read, f" for {one.prompt.id!a} of {one.prompt.benchmark}")

    def _body(self, wanted: _Wanted, sampling: Sampling) -> dict[str, Any]:
        """What is sent for one response."""
        form, prompt = self.endpoint.form, wanted.prompt
        body: dict[str, Any] = {
            "model": self.served.id,
            "max_tokens": wanted.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": wanted.seed >> (64 - SEED_BITS),
        }
        if form == "chat":
            sent = json.loads(prompt.text)
            body |= sent if isinstance(sent, dict) else {"messages": sent}
        else:
            body["prompt"] = list(prompt.token_ids) if form == "ids" else prompt.text
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self.served.is_vllm:
            body |= {"top_k": sampling.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
            if form == "ids":
                body |= {"return_token_ids": True, "stop_token_ids": list(self.stop_ids)}
        elif sampling.top_k:
            body["top_k"] = sampling.top_k
        return body

    def _arrival(self, wanted: _Wanted, sampling: Sampling, document: Mapping[str, Any]) -> Arrival:
        """The response in ``document``; raises as `read_answer` and `_text_of`."""
        form, prompt = self.endpoint.form, wanted.prompt
        answer = read_answer(
            document,
            model=self.served.id,
            max_tokens=wanted.max_tokens,
            context=self.served.max_model_len,
            is_chat=form == "chat",
            prompt_ids=prompt.token_ids if form == "ids" else None,
        )
        whole = answer.text
        if answer.token_ids is not None and self.tokenizer is not None:
            whole = self._text_of(list(answer.token_ids), answer.text, sampling.stop)
        if answer.num_tokens is None:
            self._tell("uncounted", "it does not say how many tokens a response has: it may cut one unnoticed")
        num_characters = sum(map(str.isalnum, prompt.problem))
        if answer.num_prompt is not None and answer.num_prompt * MOST_PER_TOKEN < num_characters:
            self._tell(
                "prompt",
                f"it read {answer.num_prompt} tokens of {prompt.id!a} of {prompt.benchmark}, which has "
                f"{num_characters} letters and digits: does it cut prompts?",
            )
        text = before_stop(whole, sampling.stop)
        rollout = Rollout(answer.token_ids or (), text, answer.finish_reason if text == whole else "stop")
        return Arrival(wanted.number, wanted.row, rollout, answer.num_tokens or 0)

    def _text_of(self, ids: list[int], text: str, stop: Sequence[str]) -> str:
        """What ``ids`` read here; raises DataError if the model has no such ids, or if it is not the ``text`` there."""
        if (largest := max(ids, default=0)) >= self.num_ids:
            raise DataError(f"the token id {largest} came back, and the model has {self.num_ids} ids; {OTHER_MODEL}")
        whole, without_last = (self.tokenizer.decode(some, skip_special_tokens=True) for some in (ids, ids[:-1]))
        # The last token may be the stop token, which a server does not show.
        readings = (before_stop(reading, stop) for reading in (whole, without_last))
        kept = self.server.kept(whole)
        if _letters(before_stop(text, stop)) not in map(_letters, readings):
            raise DataError(
                f"token ids came back that read {shown(kept)} here, beside the text {shown(text)}; {OTHER_MODEL}"
            )
        return kept


def _letters(text: str) -> str:
    """What two ways of decoding agree on: not on white space, nor on half of a character."""
    return "".join(text.split()).replace(REPLACEMENT, "")


@dataclass(frozen=True)
class Answer:
    """A response as the server gives it. Ids and numbers of tokens are None where it does not say.

    ``num_prompt`` counts the prompt that it read.
    """

    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None
    num_tokens: int | None
    num_prompt: int | None


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
    return Answer(text, cast(FinishReason, reason), token_ids, num_tokens, num_prompt)


def _content(message: Any) -> Any:
    """Null where a server refused or only reasoned, which makes an empty response; a list of parts is no text."""
    if not isinstance(message, dict):
        return None
    if (role := message.get("role")) not in (None, "assistant"):
        raise DataError(f"a message of the role {role!r} came back, expected 'assistant'")
    content = message.get("content")
    return "" if content is None else content
