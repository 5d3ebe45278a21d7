"""Draws responses from an OpenAI-compatible server, which `evals.servers` asks. Imports no torch.

Each response is a request of its own with its own seed, and what fails for a while is asked again, a bounded number of
times. vLLM is also told what the model's generation_config.json would otherwise decide, and gives the sampled ids back.
"""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from anyio.from_thread import start_blocking_portal

from evals.errors import DataError
from evals.files.strict_json import shown
from evals.servers import MOST_SHOWN, Asked, Served, Server
from quatro.rollout.answers import read_answer
from quatro.rollout.endpoint import Endpoint
from quatro.rollout.engine import Arrival, Seeds
from quatro.rollout.stops import REPLACEMENT, before_stop, response_limits
from quatro.types import Prompt, Rollout, Sampling

logger = logging.getLogger(__name__)

MOST_FINGERPRINTS = 20  # some servers make up a new one for each connection
MOST_PER_TOKEN = 16  # letters and digits, on average over a prompt: no vocabulary comes near
OTHER_MODEL = "is the tokenizer of MODEL that of the model there? If not, name the right one, or send --chat or --text"
SEED_BITS = 53  # the integers that every reader of JSON holds exactly


class _Wanted(NamedTuple):
    """Response ``row`` to prompt number ``number``."""

    number: int
    row: int
    prompt: Prompt
    seed: int
    max_tokens: int


class ServerSampler:
    """Draws from the model ``served`` of a server. ``tokenizer`` is that of MODEL, if prompts are sent as ids.

    ``stop_ids`` end a response besides the model's own. The model can draw ids below ``num_ids``. ``answers`` counts
    what came back, under the names of sampling.json; ``fingerprints`` are the server's words for what it ran.
    """

    def __init__(
        self,
        server: Server,
        endpoint: Endpoint,
        served: Served,
        *,
        tokenizer: Any = None,
        stop_ids: Sequence[int] = (),
        num_ids: int = 0,
    ) -> None:
        self._server = server
        self._endpoint = endpoint
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
            asked = (self._asked(one, sampling) for one in wanted)
            drawing = portal.start_task_soon(self._server.ask_all, self._endpoint.path, asked, arrivals.put)
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

    def _asked(self, one: _Wanted, sampling: Sampling) -> Asked[Arrival]:
        read = functools.partial(self._arrival, one, sampling)
        return Asked(self._body(one, sampling), read, f" for {one.prompt.id!a} of {one.prompt.benchmark}")

    def _body(self, wanted: _Wanted, sampling: Sampling) -> dict[str, Any]:
        """What is sent for one response."""
        form, prompt = self._endpoint.form, wanted.prompt
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
        form, prompt = self._endpoint.form, wanted.prompt
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
