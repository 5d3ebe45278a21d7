"""Draws responses from an OpenAI-compatible server. The only file that uses httpx. Imports no torch.

Each response is a request of its own with its own seed, and what fails for a while is asked again, a bounded number of
times. vLLM is also told what the model's generation_config.json would otherwise decide, and gives the sampled ids back.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from anyio.from_thread import start_blocking_portal

from evals.errors import DataError, MissingError, QuatroError, UsageError
from evals.files.strict_json import shown
from quatro.rollout.answers import Served, Unanswered, read_answer, read_document, read_models, words
from quatro.rollout.endpoint import KEYS, SECRET_LENGTH, Endpoint, without_key
from quatro.rollout.engine import Arrival, Seeds
from quatro.rollout.stops import REPLACEMENT, before_stop, response_limits
from quatro.types import Prompt, Rollout, Sampling

logger = logging.getLogger(__name__)

MOST_TRIES = 8
# A server that says it is busy is alive; one that stalls costs the whole time limit each time.
MOST_TRIES_OF = {"429": 32, "timeout": 2}
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0  # between two tries: twice as long each time
LONGEST_RETRY_AFTER_S = 600.0
CONNECT_LIMIT_S = 10.0
# From sending a request to the last byte of its answer, which waits its turn in the server and grows with its tokens.
LIMIT_S, LIMIT_PER_TOKEN_S = 120.0, 0.5
# The list of models, which comes first: nothing is lost yet if the address is wrong.
FIRST_LIMIT_S, FIRST_TRIES = 30.0, 3
MOST_BYTES = 16 << 20  # in one answer
ADDRESS_ADVICE = "--base-url mostly ends in /v1, as in http://localhost:8000/v1"
MOST_SHOWN = 400  # characters of a server's own words
MOST_FINGERPRINTS = 20  # some servers make up a new one for each connection
MOST_PER_TOKEN = 16  # letters and digits, on average over a prompt: no vocabulary comes near
OTHER_MODEL = "is the tokenizer of MODEL that of the model there? If not, name the right one, or send --chat or --text"
SEED_BITS = 53  # the integers that every reader of JSON holds exactly

T = TypeVar("T")


class _Wanted(NamedTuple):
    """Response ``row`` to prompt number ``number``."""

    number: int
    row: int
    prompt: Prompt
    seed: int
    max_tokens: int


class Server:
    """Asks one server, patiently. ``retries`` counts by `Unanswered.kind` what was asked again."""

    def __init__(self, endpoint: Endpoint, key: str | None) -> None:
        self.endpoint = endpoint
        self.where = without_key(f"the server at {endpoint.base_url}{_by_way_of(endpoint.base_url)}", key)
        self.retries: Counter[str] = Counter()
        self._key = key

    def client(self) -> httpx.AsyncClient:
        """A pool of connections, to be closed.

        Raises:
            UsageError: the address is not an http address, or the environment names a proxy of an unknown kind, or
                certificates that cannot be read.
        """
        url = f"{self.endpoint.base_url}/"
        key = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            assert httpx.URL(url).host  # only then is it looked at
            return httpx.AsyncClient(
                base_url=url,
                headers={"Accept-Encoding": "identity", "Content-Type": "application/json", **key},
                limits=httpx.Limits(max_connections=self.endpoint.concurrency),
                timeout=httpx.Timeout(None, connect=CONNECT_LIMIT_S),
            )
        except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:  # ImportError: a SOCKS proxy
            raise UsageError(
                f"{self.where} cannot be asked: {error}; look at --base-url, ALL_PROXY and SSL_CERT_FILE"
            ) from None

    def find_model(self, names: Sequence[str]) -> Served:
        """What the server says of the model that is called one of ``names`` there, or was loaded from it.

        Raises:
            UsageError: it serves no such model; the message lists those that it serves.
            MissingError: it does not answer, or wants a key.
        """

        async def ask() -> list[Served]:
            async with self.client() as client:
                return await self.ask(client, "models", read_models)

        with start_blocking_portal() as portal:  # a thread of its own: a notebook's has a loop already
            models = portal.call(ask)
        for name in names:
            for model in models:
                if name in (model.id, model.root):
                    return model
        served = ", ".join([shown(model.id) for model in models[:5]] + ["..."] * (len(models) > 5)) or "no model"
        raise UsageError(f"{self.where} serves {served}, not {names[0]!r}; name one of them with --served-model")

    async def ask(
        self,
        client: httpx.AsyncClient,
        path: str,
        read: Callable[[Mapping[str, Any]], T],
        body: Mapping[str, Any] | None = None,
        about: str = "",
    ) -> T:
        """What ``read`` makes of the answer; asked again where it raises Unanswered or the server fails.

        ``body`` is posted, and has `max_tokens`. ``about`` names the request in errors.

        Raises:
            UsageError: the server refuses the request.
            MissingError: it still fails after all tries, or wants another key.
            DataError: what ``read`` raises, or it has given no usable answer after all tries.
        """
        most_tries = FIRST_TRIES if body is None else MOST_TRIES
        tries: Counter[str] = Counter()
        while True:
            try:
                return read(read_document(await self._once(client, path, body, about), self.kept))
            except Unanswered as failure:
                kind, said = failure.kind, self._shown(str(failure))
                tries[kind] += 1
                wait_s = wait_before(tries.total() + 1, random.random(), failure.retry_after_s)
                if tries[kind] >= MOST_TRIES_OF.get(kind, most_tries) or wait_s > LONGEST_RETRY_AFTER_S:
                    waits = f" and asks to wait for {wait_s:.0f} s" if wait_s > LONGEST_RETRY_AFTER_S else ""
                    advice = "Nothing that was drawn is lost: the same command draws the rest once the server answers"
                    if kind == "answer" and body is None:  # a page for people
                        advice = ADDRESS_ADVICE
                    raise (DataError if kind == "answer" else MissingError)(
                        f"{self.where} gave no response{about} in {tries.total()} tries{waits}; at last: {said}. "
                        f"{advice}"
                    ) from None
            except DataError as error:
                raise DataError(f"{self.where}{about}: {self._shown(str(error))}") from None
            if not self.retries[kind]:
                logger.warning("%s: %s; it is asked again", self.where, said)
            self.retries[kind] += 1
            await asyncio.sleep(wait_s)

    async def _once(
        self, client: httpx.AsyncClient, path: str, body: Mapping[str, Any] | None, about: str
    ) -> bytearray:
        """The body of the answer if its status is 200."""
        method, content, limit_s = "GET", None, FIRST_LIMIT_S
        if body is not None:
            # httpx would not write half a surrogate pair, which a problem may hold.
            method, content = "POST", json.dumps(body).encode("ascii")
            limit_s = LIMIT_S + LIMIT_PER_TOKEN_S * body["max_tokens"]
        answer = bytearray()
        try:
            async with asyncio.timeout(limit_s), client.stream(method, path, content=content) as response:
                encoding = response.headers.get("Content-Encoding", "identity")
                if encoding.strip().lower() not in ("", "identity"):  # a few kB of it may unfold to all memory
                    raise Unanswered("answer", f"an answer in the encoding {encoding!r}, expected 'identity'")
                async for piece in response.aiter_raw(1 << 16):
                    answer += piece
                    if len(answer) > MOST_BYTES:
                        raise Unanswered("answer", f"an answer of more than {MOST_BYTES:,} bytes")
        except TimeoutError:
            raise Unanswered("timeout", f"no answer within {limit_s:g} s") from None
        except httpx.RequestError as error:
            raise Unanswered("connection", f"{type(error).__name__}: {error}".rstrip(": ")) from None
        status = response.status_code
        if status == 200:
            return answer
        if status in (408, 429) or status >= 500:
            raise Unanswered(str(status), f"status {status}: {words(answer)}", retry_after(response.headers))
        goes_to = f" (it redirects to {response.headers['Location']})" if "Location" in response.headers else ""
        raise self._refusal(status, self._shown(words(answer) + goes_to), about)

    def _refusal(self, status: int, said: str, about: str) -> QuatroError:
        kind: type[QuatroError] = UsageError
        advice = "change the option that it does not take, or leave it out"
        if status in (401, 403):
            kind, advice = MissingError, f"set the right key in {KEYS[0]}"
        elif 300 <= status < 400 or status in (404, 405):
            advice = ADDRESS_ADVICE
        return kind(f"{self.where} refuses the request{about} with status {status} and says: {said}; {advice}")

    def _shown(self, said: str) -> str:
        """What a server says may be long and may repeat the key, which must not be cut in two before it is found."""
        return without_key(said, self._key)[:MOST_SHOWN]

    def kept(self, text: str) -> str:
        """``text`` for a file: without a key that is one, which the server may have put into it."""
        return without_key(text, self._key) if len(self._key or "") >= SECRET_LENGTH else text


def _by_way_of(base_url: str) -> str:
    """The proxy that the environment puts before the server: half of all riddles; its address may hold a password."""
    parts = urlsplit(base_url)
    names = [name for name in (parts.scheme, "all") if getproxies().get(name)]
    if not names or proxy_bypass(parts.hostname or ""):
        return ""
    return f" (through the proxy in {names[0].upper()}_PROXY; NO_PROXY={parts.hostname} goes without)"


def wait_before(number: int, jitter: float, retry_after_s: float) -> float:
    """Seconds to wait before try ``number`` (2 or more); ``jitter`` in [0, 1) takes off up to half of our own wait."""
    own_s = min(FIRST_WAIT_S * 2.0 ** (number - 2), LONGEST_WAIT_S)
    return max(own_s * (1 - jitter / 2), retry_after_s)


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds that a server asks to wait; 0 where it names none, or a date."""
    value = headers.get("Retry-After", "").strip()
    return float(value[:9]) if value.isascii() and value.isdecimal() else 0.0


class ServerSampler:
    """Draws from the model ``served`` of a server. ``tokenizer`` is that of MODEL, if prompts are sent as ids.

    ``stop_ids`` end a response besides the model's own. The model can draw ids below ``num_ids``. ``answers`` counts
    what came back, under the names of sampling.json; ``fingerprints`` are the server's words for what it ran.
    """

    def __init__(
        self, server: Server, served: Served, *, tokenizer: Any = None, stop_ids: Sequence[int] = (), num_ids: int = 0
    ) -> None:
        self._server = server
        self._served = served
        self._tokenizer = tokenizer
        self._stop_ids = list(stop_ids)
        self._num_ids = num_ids
        self._told: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.fingerprints: set[str] = set()

    def stream(self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling) -> Iterator[list[Arrival]]:
        """``len(seeds[i])`` rollouts of ``prompts[i]``, a few at a time as they come: what ends the drawing loses none.

        Raises:
            QuatroError: no further ones can be drawn.
        """
        limits = [sampling.max_new_tokens] * len(prompts)
        if self._tokenizer is not None:
            limits = response_limits(prompts, sampling.max_new_tokens, context=self._served.max_model_len)
        wanted = (
            _Wanted(number, row, prompts[number], seed, limits[number])
            for number, row_seeds in enumerate(seeds)
            for row, seed in enumerate(row_seeds)
        )
        texts: list[set[str]] = [set() for _ in prompts]
        arrivals: SimpleQueue[Arrival | None] = SimpleQueue()  # None: there is no more
        with start_blocking_portal() as portal:  # leaving it cancels what is under way
            drawing = portal.start_task_soon(self._draw, wanted, sampling, arrivals.put)
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
            logger.warning("%s: %s", self._server.where, said)

    async def _draw(self, wanted: Iterator[_Wanted], sampling: Sampling, arrive: Callable[[Arrival], None]) -> None:
        async with self._server.client() as client:

            async def work() -> None:
                for one in wanted:  # shared: each takes the next one
                    read, body = functools.partial(self._arrival, one, sampling), self._body(one, sampling)
                    about = f" for {one.prompt.id!a} of {one.prompt.benchmark}"
                    arrive(await self._server.ask(client, self._server.endpoint.path, read, body, about))

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._server.endpoint.concurrency):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

    def _body(self, wanted: _Wanted, sampling: Sampling) -> dict[str, Any]:
        """What is sent for one response."""
        form, prompt = self._server.endpoint.form, wanted.prompt
        body: dict[str, Any] = {
            "model": self._served.id,
            "max_tokens": wanted.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": wanted.seed >> (64 - SEED_BITS),
        }
        if form == "chat":
            body["messages"] = json.loads(prompt.text)
        else:
            body["prompt"] = list(prompt.token_ids) if form == "ids" else prompt.text
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._served.is_vllm:
            body |= {"top_k": sampling.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
            if form == "ids":
                body |= {"return_token_ids": True, "stop_token_ids": self._stop_ids}
        elif sampling.top_k:
            body["top_k"] = sampling.top_k
        return body

    def _arrival(self, wanted: _Wanted, sampling: Sampling, document: Mapping[str, Any]) -> Arrival:
        """The response in ``document``; raises as `read_answer` and `_text_of`."""
        form, prompt = self._server.endpoint.form, wanted.prompt
        answer = read_answer(
            document,
            model=self._served.id,
            max_tokens=wanted.max_tokens,
            context=self._served.max_model_len,
            is_chat=form == "chat",
            prompt_ids=prompt.token_ids if form == "ids" else None,
        )
        whole = answer.text
        if answer.token_ids is not None and self._tokenizer is not None:
            whole = self._text_of(list(answer.token_ids), answer.text, sampling.stop)
            self.answers["answers_with_token_ids"] += 1
        else:
            self.answers["answers_as_text"] += 1
        if answer.system_fingerprint is not None and len(self.fingerprints) < MOST_FINGERPRINTS:
            self.fingerprints.add(answer.system_fingerprint[:MOST_SHOWN])
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
        if (largest := max(ids, default=0)) >= self._num_ids:
            raise DataError(f"the token id {largest} came back, and the model has {self._num_ids} ids; {OTHER_MODEL}")
        whole, without_last = (self._tokenizer.decode(some, skip_special_tokens=True) for some in (ids, ids[:-1]))
        # The last token may be the stop token, which a server does not show.
        readings = (before_stop(reading, stop) for reading in (whole, without_last))
        kept = self._server.kept(whole)
        if _letters(before_stop(text, stop)) not in map(_letters, readings):
            raise DataError(
                f"token ids came back that read {shown(kept)} here, beside the text {shown(text)}; {OTHER_MODEL}"
            )
        return kept


def _letters(text: str) -> str:
    """What two ways of decoding agree on: not on white space, nor on half of a character."""
    return "".join(text.split()).replace(REPLACEMENT, "")
