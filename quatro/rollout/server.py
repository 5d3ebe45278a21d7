"""Draws responses from an OpenAI-compatible server. The only file that uses httpx. Imports no torch.

Each response is a request of its own with its own seed, and what fails for a while is asked again, a bounded number of
times. vLLM is also told what the model's generation_config.json would otherwise decide, and gives the sampled ids back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from anyio.from_thread import start_blocking_portal

from evals.errors import DataError, MissingError, QuatroError, UsageError
from evals.files.strict_json import shown
from quatro.rollout.answers import Answer, Served, Unanswered, read_answer, read_models, words
from quatro.rollout.endpoint import KEYS, Endpoint
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
SECRET_LENGTH = 8  # a shorter key, such as EMPTY, keeps nothing from anybody
SEED_BITS = 53  # the integers that every reader of JSON holds exactly

T = TypeVar("T")


class _Wanted(NamedTuple):
    """Response ``row`` to prompt number ``number``."""

    number: int
    row: int
    prompt: Prompt
    seed: int
    max_tokens: int


class Request(NamedTuple):
    """What a server is asked, and how patiently; ``about`` names it in errors."""

    method: str
    path: str
    limit_s: float
    most_tries: int = MOST_TRIES
    body: Mapping[str, Any] | None = None
    about: str = ""


class Server:
    """Asks one server, patiently. ``retries`` counts by `Unanswered.kind` what was asked again."""

    def __init__(self, endpoint: Endpoint, key: str | None) -> None:
        self.endpoint = endpoint
        self.where = f"the server at {endpoint.base_url}{_by_way_of(endpoint.base_url)}"
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
                headers={"Accept-Encoding": "identity", **key},
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
                return await self.ask(client, Request("GET", "models", FIRST_LIMIT_S, FIRST_TRIES), read_models)

        with start_blocking_portal() as portal:  # a thread of its own: a notebook's has a loop already
            models = portal.call(ask)
        for name in names:
            for model in models:
                if name in (model.id, model.root):
                    return model
        served = shown([model.id for model in models])
        raise UsageError(f"{self.where} serves {served}, not {names[0]!r}; name one of them with --served-model")

    async def ask(self, client: httpx.AsyncClient, request: Request, read: Callable[[bytearray], T]) -> T:
        """What ``read`` makes of the answer; asked again where it raises Unanswered or the server fails.

        Raises:
            UsageError: the server refuses the request.
            MissingError: it still fails after all tries, or wants another key.
            DataError: what ``read`` raises, or it has given no usable answer after all tries.
        """
        tries: Counter[str] = Counter()
        while True:
            try:
                return read(await self._once(client, request))
            except Unanswered as failure:
                kind, said, asked_s = failure.kind, str(failure)[:MOST_SHOWN], failure.retry_after_s
            except DataError as error:
                raise DataError(f"{self.where}{request.about}: {str(error)[:MOST_SHOWN]}") from None
            tries[kind] += 1
            if tries[kind] >= MOST_TRIES_OF.get(kind, request.most_tries) or asked_s > LONGEST_RETRY_AFTER_S:
                waits = f" and asks to wait for {asked_s:.0f} s" if asked_s > LONGEST_RETRY_AFTER_S else ""
                advice = "Nothing that was drawn is lost: the same command draws the rest once the server answers"
                if kind == "answer" and not request.about:  # a page for people
                    advice = ADDRESS_ADVICE
                raise (DataError if kind == "answer" else MissingError)(
                    f"{self.where} gave no response{request.about} in {tries.total()} tries{waits}; at last: "
                    f"{said}. {advice}"
                )
            if not self.retries[kind]:
                logger.warning("%s: %s; it is asked again", self.where, said)
            self.retries[kind] += 1
            await asyncio.sleep(wait_before(tries.total() + 1, random.random(), asked_s))

    async def _once(self, client: httpx.AsyncClient, request: Request) -> bytearray:
        """The body of the answer if its status is 200; compressed ones, which were not asked for, stay as they are."""
        content, headers = None, {}
        if request.body is not None:
            # httpx would not write half a surrogate pair, which a problem may hold.
            content, headers = json.dumps(request.body).encode("ascii"), {"Content-Type": "application/json"}
        answer = bytearray()
        try:
            async with (
                asyncio.timeout(request.limit_s),
                client.stream(request.method, request.path, content=content, headers=headers) as response,
            ):
                async for piece in response.aiter_raw(1 << 16):
                    answer += piece
                    if len(answer) > MOST_BYTES:
                        raise Unanswered("answer", f"an answer of more than {MOST_BYTES:,} bytes")
        except TimeoutError:
            raise Unanswered("timeout", f"no answer within {request.limit_s:g} s") from None
        except httpx.RequestError as error:
            raise Unanswered("connection", f"{type(error).__name__}: {error}".rstrip(": ")) from None
        if len(self._key or "") >= SECRET_LENGTH:  # a server may repeat it
            answer = answer.replace(str(self._key).encode(), b"***")
        status = response.status_code
        if status == 200:
            return answer
        said = words(answer)[:MOST_SHOWN]
        if status in (408, 429) or status >= 500:
            raise Unanswered(str(status), f"status {status}: {said}", retry_after(response.headers))
        kind: type[QuatroError] = UsageError
        advice = "change the option that it does not take, or leave it out"
        if status in (401, 403):
            kind, advice = MissingError, f"set the right key in {KEYS[0]}"
        elif 300 <= status < 400 or status in (404, 405):
            advice = ADDRESS_ADVICE
        raise kind(f"{self.where} refuses the request{request.about} with status {status} and says: {said}; {advice}")


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

    ``stop_ids`` end a response besides the model's own. Counts of what came back are in ``num_with_ids`` and
    ``num_as_text``; ``fingerprints`` are the server's words for what it ran.
    """

    def __init__(self, server: Server, served: Served, *, tokenizer: Any = None, stop_ids: Sequence[int] = ()) -> None:
        self._server = server
        self._served = served
        self._tokenizer = tokenizer
        self._stop_ids = list(stop_ids)
        self._are_equal_told = False
        self.num_with_ids = self.num_as_text = 0
        self.fingerprints: set[str] = set()

    def stream(self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling) -> Iterator[list[Arrival]]:
        """See `engine.StreamingSampler.stream`."""
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
                batch = [arrivals.get() for _ in range(max(1, arrivals.qsize()))]
                came = [arrival for arrival in batch if arrival is not None]
                is_over = len(came) < len(batch)
                for arrival in came:
                    texts[arrival.number].add(arrival.rollout.text)
                if came:
                    yield came
            drawing.result()
        repeated = [len(found) for found, row_seeds in zip(texts, seeds, strict=True) if len(row_seeds) > 1]
        if 2 * (num_equal := repeated.count(1)) > len(repeated) and not self._are_equal_told:
            self._are_equal_told = True
            logger.warning(
                "%s: all samples of %d of %d problems are equal at temperature %g: does it take the temperature and "
                "the seed, or answer from a cache?",
                self._server.where,
                num_equal,
                len(repeated),
                sampling.temperature,
            )

    async def _draw(self, wanted: Iterator[_Wanted], sampling: Sampling, arrive: Callable[[Arrival], None]) -> None:
        async with self._server.client() as client:

            async def work() -> None:
                for one in wanted:  # shared: each takes the next one
                    arrive(await self._arrival(client, one, sampling))

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._server.endpoint.concurrency):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _arrival(self, client: httpx.AsyncClient, wanted: _Wanted, sampling: Sampling) -> Arrival:
        form, prompt = self._server.endpoint.form, wanted.prompt

        def read(body: bytearray) -> Answer:
            answer = read_answer(
                body,
                model=self._served.id,
                max_tokens=wanted.max_tokens,
                context=self._served.max_model_len,
                is_chat=form == "chat",
                prompt_ids=prompt.token_ids if form == "ids" else None,
            )
            return answer if answer.token_ids is None else replace(answer, text=self._decoded(answer, sampling.stop))

        request = Request(
            "POST",
            self._server.endpoint.path,
            LIMIT_S + LIMIT_PER_TOKEN_S * wanted.max_tokens,
            body=self._body(wanted, sampling),
            about=f" for {prompt.id!a} of {prompt.benchmark}",
        )
        answer = await self._server.ask(client, request, read)
        if answer.system_fingerprint is not None and len(self.fingerprints) < MOST_FINGERPRINTS:
            self.fingerprints.add(answer.system_fingerprint[:MOST_SHOWN])
        if answer.token_ids is None:
            self.num_as_text += 1
        else:
            self.num_with_ids += 1
        text = before_stop(answer.text, sampling.stop)
        rollout = Rollout(answer.token_ids or (), text, answer.finish_reason if text == answer.text else "stop")
        return Arrival(wanted.number, wanted.row, rollout, answer.num_tokens or 0)

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

    def _decoded(self, answer: Answer, stop: Sequence[str]) -> str:
        """The text of the ids; raises DataError where that is another than the text beside them."""
        ids = list(answer.token_ids or ())
        # The last token may be the stop token, which a server does not show.
        text, without_last = (self._tokenizer.decode(some, skip_special_tokens=True) for some in (ids, ids[:-1]))
        here = [_letters(before_stop(one, stop)) for one in (text, without_last)]
        if _letters(before_stop(answer.text, stop)) not in here:
            raise DataError(
                f"token ids came back that read {shown(text)} here, beside the text {shown(answer.text)}; is the "
                "tokenizer of MODEL that of the model there? If not, name the right one, or send --chat or --text"
            )
        return str(text)


def _letters(text: str) -> str:
    """What two ways of decoding agree on: not on white space, nor on half of a character."""
    return "".join(text.split()).replace(REPLACEMENT, "")
