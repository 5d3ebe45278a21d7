"""Similarities by a model: cosines of embeddings (`embed:MODEL`), and verdicts of a language model (`judge:URL`).

Results name the model with its revision, or with the version of what a judge is asked (judge.txt), so that numbers by
two never pass for those by one. What models answered is kept in the cache.
"""

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import permutations
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.files.whole import cache_root, keep, kept, key_of, strict_json_line, write_whole
from evals.servers import Asked, Server, api_key, checked_address, useless

# Gives name@revision and an `Embed` of a folder or Hub id. It needs torch, and so it lies above this package.
EMBEDDER = "quatro.integrations.embeddings:embedder"
BATCH_TEXTS = 32  # in one request for embeddings
MAX_CALLS, MAX_REPLY_TOKENS = 10_000, 1024
QUESTION = Path(__file__).with_name("judge.txt")
Embed = Callable[[Sequence[str]], Sequence[Any]]  # from N texts to floats of shape (N, H)
Pair = tuple[str, ...]


class Embedding(NamedTuple):
    """``name`` stands in results; ``embed`` gets the texts that the cache lacks, the shortest first."""

    name: str
    embed: Embed

    def matrix(self, texts: Sequence[str]) -> Floats:
        """The cosine of each pair, or 0 where it is negative; raises DataError if not all vectors have one length."""
        keys = {text: key_of(self.name, text) for text in texts}
        row_of = kept("embeddings", keys.values())
        missing = sorted((text for text in keys if keys[text] not in row_of), key=lambda text: (len(text), text))
        for text, row in zip(missing, self.embed(missing) if missing else (), strict=True):
            row_of[keys[text]] = np.asarray(row, dtype=np.float64).tolist()
            keep("embeddings", keys[text], row_of[keys[text]])
        if len({len(row_of[key]) for key in keys.values()}) > 1:
            raise DataError(f"{self.name} gave vectors of two lengths; delete {cache_root() / 'embeddings'}")
        vector_NH = np.array([row_of[keys[text]] for text in texts])
        unit_NH = vector_NH / np.maximum(np.linalg.norm(vector_NH, axis=1, keepdims=True), 1e-30)
        return np.maximum(unit_NH @ unit_NH.T, 0.0)


class Judge:
    """Two solutions are the same if a language model, which is shown nothing else, says so in both orders.

    At most ``max_calls`` are made. ``replies`` are by what was shown.
    """

    def __init__(self, server: Server, model: str) -> None:
        self._server, self._model, self._question = server, model, QUESTION.read_text(encoding="utf-8")
        self.name = f"judge:{model}@{key_of(self._question)[:8]}"
        self.max_calls, self.num_calls = MAX_CALLS, 0
        self.replies: dict[Pair, str] = {}

    def missing(self, groups: Iterable[Sequence[str]]) -> dict[str, Pair]:
        """Pairs of each group that are still to be asked about, by key; raises UsageError if they are too many."""
        pairs: dict[str, Pair] = {key_of(self.name, *pair): pair for one in groups for pair in permutations(one, 2)}
        self.replies |= {pairs[key]: reply for key, reply in kept("judge", pairs).items()}
        found = {key: pair for key, pair in pairs.items() if pair not in self.replies}
        if len(found) > (left := self.max_calls - self.num_calls):
            advice = f"--max-calls {self.max_calls} leaves {left:,}; raise it, or compare fewer samples (--n 8)"
            raise UsageError(f"{self.name}: {len(found):,} more calls are needed, and {advice} or benchmarks (-b)")
        return found

    def matrix(self, texts: Sequence[str]) -> Floats:
        """1 for each pair of the same approach, else 0; raises as `missing` and `Server.ask`."""

        def asked(key: str, pair: Pair) -> Asked[tuple[str, Pair, str]]:
            messages = [{"role": "system", "content": self._question}, {"role": "user", "content": json.dumps(pair)}]
            body = {"model": self._model, "messages": messages, "temperature": 0.0, "max_tokens": MAX_REPLY_TOKENS}
            return Asked(body, lambda document: (key, pair, _reply_in(document)), " for two solutions")

        def arrive(came: tuple[str, Pair, str]) -> None:
            self.num_calls += 1
            self.replies[came[1]] = came[2]
            keep("judge", came[0], came[2])  # at once, for it may have cost money

        if missing := self.missing([texts]):
            self._server.ask_now("chat/completions", map(asked, missing, missing.values()), arrive)
        is_same = [[one == other or self._verdict((one, other)) == "same" for other in texts] for one in texts]
        return np.minimum(is_same, np.transpose(is_same)).astype(np.float64)

    def _verdict(self, pair: Pair) -> str:
        """`same` or `different`, by the last line of the reply, else `unclear`."""
        word = self.replies[pair].rstrip().rpartition("\n")[2].strip(" \t*_`'\".").lower()
        return word if word in ("same", "different") else "unclear"

    def counts(self, out: Path | None = None) -> dict[str, Any]:
        """What a result says: calls, pairs, those called the same in one order alone, and replies without a verdict.

        Next to the file ``out`` a line is written for each reply: what was shown, the reply, and what that says.
        """
        verdicts = {pair: self._verdict(pair) for pair in sorted(self.replies)}
        rows = [{"shown": pair, "reply": self.replies[pair], "verdict": one} for pair, one in verdicts.items()]
        if out is not None:
            write_whole(out.with_suffix(".judge.jsonl"), map(strict_json_line, rows))
        differ = [verdicts[pair] != verdicts[pair[::-1]] for pair in verdicts if pair[0] < pair[1]]
        told = {"disagreements": sum(differ), "unclear": list(verdicts.values()).count("unclear")}
        return {"judge": self.name, "calls": self.num_calls, "pairs": len(differ), **told}


_opened: dict[str, Embedding | Judge] = {}  # by what was typed, and by the name in results


def opened(name: str) -> Any:
    """The `Embedding` or `Judge` of this name, in results or as typed; raises as the embedder or `Server.find_model`.

    Typed is `embed:` and a folder or Hub id, or `embed:` or `judge:` and a server's URL or URL#MODEL.
    """
    if name not in _opened:
        kind, _, model = name.partition(":")
        address, _, served = model.partition("#")
        if kind == "judge" or address.startswith(("http://", "https://")):
            server = Server(checked_address(address, f"{kind}:URL"), api_key(os.environ), option=f"{kind}:URL")
            served = served or server.find_model([], f"name one, as in {kind}:{address}#MODEL").id
            label, embed = f"{served}@served", partial(_embed_there, server, served)
        else:
            module, _, function = EMBEDDER.partition(":")
            label, embed = getattr(importlib.import_module(module), function)(model)
        found = Judge(server, served) if kind == "judge" else Embedding(f"embed:{label}", embed)
        _opened[name] = _opened[found.name] = found
    return _opened[name]


def _embed_there(server: Server, model: str, texts: Sequence[str]) -> list[Any]:
    found: dict[int, Any] = {}

    def asked(start: int) -> Asked[tuple[int, Any]]:
        batch = [text or " " for text in texts[start : start + BATCH_TEXTS]]  # an empty one would be refused
        body = {"model": model, "input": batch, "encoding_format": "float"}
        return Asked(body, lambda document: (start, _vectors_in(document, len(batch))))

    server.ask_now("embeddings", map(asked, range(0, len(texts), BATCH_TEXTS)), lambda came: found.update([came]))
    return [row for start in sorted(found) for row in found[start]]


def _vectors_in(document: Mapping[str, Any], num: int) -> Floats:
    with suppress(LookupError, TypeError, ValueError, OverflowError):
        rows = sorted(document["data"], key=itemgetter("index"))
        found = np.array([row["embedding"] for row in rows], dtype=np.float64)
        if found.ndim == 2 and len(found) == num and (np.abs(found) < 1e30).all():
            return found
    raise useless(f"without an embedding, in finite numbers, of each of {num} texts")


def _reply_in(document: Mapping[str, Any]) -> str:
    with suppress(LookupError, TypeError):
        return str.strip(document["choices"][0]["message"]["content"])
    raise useless("without a reply that is a text")
