"""Asks OpenAI-compatible servers, patiently. The only file that uses httpx. Imports no torch.

What fails for a while is asked again, a bounded number of times. An answer is a stranger's text: what cannot be read is
asked again too, and no message holds the key.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import html
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, quote_plus, urlsplit
from urllib.request import getproxies, proxy_bypass

from anyio.from_thread import start_blocking_portal

from evals.errors import DataError, MissingError, QuatroError, UsageError
from evals.files.strict_json import shown

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

KEYS = ("QUATRO_API_KEY", "OPENAI_API_KEY")  # the first that is set is sent
SECRET_LENGTH = 8  # a shorter key, such as EMPTY, keeps nothing from anybody
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
MOST_SHOWN = 400  # characters of a server's own words
MOST_NAME = 4096  # characters of a name that a server gives

T = TypeVar("T")


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


class Asked(NamedTuple, Generic[T]):
    """A request: what is posted (None: nothing), what ``read`` makes of the answer, and its name in errors."""

    body: Mapping[str, Any] | None
    read: Callable[[Mapping[str, Any]], T]
    about: str = ""


class Server:
    """Asks one server, ``concurrency`` things at once; of each `Unanswered.kind` it logs the first that is asked again.

    ``option`` is where its address was given, for messages.
    """

    def __init__(self, base_url: str, key: str | None, *, concurrency: int = 32, option: str = "--base-url") -> None:
        self.where = without_key(f"the server at {base_url}{_by_way_of(base_url)}", key)
        self._told: set[str] = set()
        self._option, self._advice = option, f"{option} mostly ends in /v1, as in http://localhost:8000/v1"
        self._base_url, self._key, self._concurrency = base_url, key, concurrency

    def client(self) -> httpx.AsyncClient:
        """A pool of connections, to be closed.

        Raises UsageError if the address is not an http address, or the environment names a proxy of an unknown kind, or
        certificates that cannot be read.
        """
        import httpx

        url = f"{self._base_url}/"
        key = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            assert httpx.URL(url).host  # only then is it looked at
            return httpx.AsyncClient(
                base_url=url,
                headers={"Accept-Encoding": "identity", "Content-Type": "application/json", **key},
                limits=httpx.Limits(max_connections=self._concurrency),
                timeout=httpx.Timeout(None, connect=CONNECT_LIMIT_S),
            )
        except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:  # ImportError: a SOCKS proxy
            raise UsageError(
                f"{self.where} cannot be asked: {error}; look at {self._option}, ALL_PROXY and SSL_CERT_FILE"
            ) from None

    def find_model(self, names: Sequence[str], advice: str = "name one of them with --served-model") -> Served:
        """What the server says of the model that is called one of ``names`` there, or was loaded from it.

        Without ``names`` it is the only one that is served.

        Raises:
            UsageError: it serves no such model; the message lists those that it serves, and ends with ``advice``.
            MissingError: it does not answer, or wants a key.
        """
        models: list[Served] = []
        self.ask_now("models", [Asked(None, read_models)], models.extend)
        found = [model for name in names for model in models if name in (model.id, model.root)]
        if found or (not names and len(models) == 1):
            return (found or models)[0]
        served = ", ".join([shown(model.id) for model in models[:5]] + ["..."] * (len(models) > 5)) or "no model"
        raise UsageError(f"{self.where} serves {served}{f', not {names[0]!r}' if names else ''}; {advice}")

    async def ask_all(self, path: str, asked: Iterable[Asked[T]], arrive: Callable[[T], None]) -> None:
        """Asks all of ``asked`` and gives each answer to ``arrive`` as it comes; raises as `ask`."""
        waiting = iter(asked)
        async with self.client() as client:

            async def work() -> None:
                for one in waiting:  # shared: each takes the next one
                    arrive(await self.ask(client, path, one))

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._concurrency):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

    def ask_now(self, path: str, asked: Iterable[Asked[T]], arrive: Callable[[T], None]) -> None:
        """`ask_all`, whose end is waited for."""
        with start_blocking_portal() as portal:  # a thread of its own: a notebook's has a loop already
            portal.call(self.ask_all, path, asked, arrive)

    async def ask(self, client: httpx.AsyncClient, path: str, asked: Asked[T]) -> T:
        """What ``asked.read`` makes of the answer; asked again where it raises Unanswered or the server fails.

        Raises:
            UsageError: the server refuses the request.
            MissingError: it still fails after all tries, or wants another key.
            DataError: what ``asked.read`` raises, or it has given no usable answer after all tries.
        """
        most_tries = FIRST_TRIES if asked.body is None else MOST_TRIES
        tries: Counter[str] = Counter()
        while True:
            try:
                return asked.read(read_document(await self._once(client, path, asked), self.kept))
            except Unanswered as failure:
                kind, said = failure.kind, self._shown(str(failure))
                tries[kind] += 1
                wait_s = wait_before(tries.total() + 1, random.random(), failure.retry_after_s)
                if tries[kind] >= MOST_TRIES_OF.get(kind, most_tries) or wait_s > LONGEST_RETRY_AFTER_S:
                    waits = f" and asks to wait for {wait_s:.0f} s" if wait_s > LONGEST_RETRY_AFTER_S else ""
                    advice = "Nothing that came is lost: the same command goes on once the server answers"
                    if kind == "answer" and asked.body is None:  # a page for people
                        advice = self._advice
                    raise (DataError if kind == "answer" else MissingError)(
                        f"{self.where} gave no response{asked.about} in {tries.total()} tries{waits}; at last: {said}. "
                        f"{advice}"
                    ) from None
            except DataError as error:
                raise DataError(f"{self.where}{asked.about}: {self._shown(str(error))}") from None
            if kind not in self._told:
                self._told.add(kind)
                logger.warning("%s: %s; it is asked again", self.where, said)
            await asyncio.sleep(wait_s)

    async def _once(self, client: httpx.AsyncClient, path: str, asked: Asked[Any]) -> bytearray:
        """The body of the answer if its status is 200."""
        import httpx

        method, content, limit_s = "GET", None, FIRST_LIMIT_S
        if asked.body is not None:
            # httpx would not write half a surrogate pair, which a problem may hold.
            method, content = "POST", json.dumps(asked.body).encode("ascii")
            limit_s = LIMIT_S + LIMIT_PER_TOKEN_S * asked.body.get("max_tokens", 0)
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
        raise self._refusal(status, self._shown(words(answer) + goes_to), asked.about)

    def _refusal(self, status: int, said: str, about: str) -> QuatroError:
        kind: type[QuatroError] = UsageError
        advice = "change the option that it does not take, or leave it out"
        if status in (401, 403):
            kind, advice = MissingError, f"set the right key in {KEYS[0]}"
        elif 300 <= status < 400 or status in (404, 405):
            advice = self._advice
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


def read_document(body: bytes | bytearray, kept: Callable[[str], str] = str) -> dict[str, Any]:
    """The JSON object of an answer with status 200, with what ``kept`` makes of each text in it.

    Raises Unanswered if it is no JSON object, or one that holds an error.
    """
    try:
        document = _changed(json.loads(body), kept)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("error"):
        what = "with an error" if isinstance(document, dict) else "without a JSON object"
        raise useless(f"{what}: {words(body)}")
    return document


def useless(what: str) -> Unanswered:
    """What is raised for an answer with status 200 that is of no use; ``what`` says why."""
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
    if not isinstance(cards, list) or not all(isinstance(card, dict) and text_of(card, "id") for card in cards):
        raise useless("without a list of models")
    return [
        Served(
            text_of(card, "id") or "", text_of(card, "owned_by"), text_of(card, "root"), count_of(card, "max_model_len")
        )
        for card in cards
    ]


def text_of(block: Any, name: str) -> str | None:
    """``block[name]`` if it is a text, for a file, in which half of a surrogate pair would have no place."""
    value = block.get(name) if isinstance(block, dict) else None
    return value[:MOST_NAME].encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def count_of(block: Any, name: str) -> int | None:
    """``block[name]`` if it is a number of something, which none is below 0."""
    value = block.get(name) if isinstance(block, dict) else None
    return value if type(value) is int and value >= 0 else None


def api_key(environment: Mapping[str, str]) -> str | None:
    """The key in ``environment``, if there is one; no message ever holds it.

    Raises UsageError if it holds characters that no HTTP header takes.
    """
    name = key_name(environment)
    if name is None:
        return None
    key = environment[name].strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{name} holds characters that no key has, such as a line break; set it again")
    return key


def key_name(environment: Mapping[str, str]) -> str | None:
    """The variable whose key is sent."""
    return next((name for name in KEYS if environment.get(name, "").strip()), None)


def without_key(said: str, key: str | None) -> str:
    """``said`` with ``***`` for the key: as it is, and as JSON, URLs, HTML and base64 spell it."""
    for spelling in _spellings(key) if key else ():
        said = said.replace(spelling, "***")
    return said


@functools.cache
def _spellings(key: str) -> list[str]:
    spellings = {json.dumps(key)[1:-1], quote(key, safe=""), quote_plus(key), html.escape(key)}
    for offset, start in enumerate((0, 2, 3)):  # the bytes before it, such as those of "Bearer ", shift it
        whole = base64.b64encode(bytes(offset) + key.encode())[start : (offset + len(key)) // 3 * 4].decode()
        spellings |= {whole, whole.replace("+", "-").replace("/", "_")}
    # A part of base64 that is as short as a word stands for nothing.
    return sorted({key, *(spelling for spelling in spellings if len(spelling) >= SECRET_LENGTH)}, key=len, reverse=True)


def checked_address(base_url: str, option: str = "--base-url") -> str:
    """``base_url`` without a slash at its end; raises UsageError if it is no address, or holds credentials."""
    if "@" in base_url or "?" in base_url or "#" in base_url:  # and so it is not shown
        raise UsageError(
            f"{option} holds a user, a password or a query; give the address alone, and a key in {KEYS[0]}"
        )
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").encode("idna")
        is_address = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # a host that no network has, a port that is no number
        is_address = False
    if not is_address:
        raise UsageError(f"{option} {base_url!a}: expected an address such as http://localhost:8000/v1")
    return base_url.rstrip("/")
