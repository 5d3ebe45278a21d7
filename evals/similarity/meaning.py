"""The similarity `embed:MODEL`: cosines of the embeddings of a model, which are kept in the cache.

Results name the model with its revision, so that numbers by two never pass for those by one.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from evals.errors import DataError
from evals.estimators import Floats
from evals.files.whole import cache_root, keep, kept, key_of
from evals.servers import Asked, Server, api_key, checked_address, useless

# Gives name@revision and an `Embed` of a folder or Hub id. It needs torch, and so it lies above this package.
EMBEDDER = "quatro.integrations.embeddings:embedder"
BATCH_TEXTS = 32  # in one request for embeddings
Embed = Callable[[Sequence[str]], Sequence[Any]]  # from N texts to floats of shape (N, H)


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


_opened: dict[str, Embedding] = {}  # by what was typed, and by the name in results


def opened(name: str) -> Embedding:
    """The `Embedding` of this name, in results or as typed; raises as the embedder or `Server.find_model`.

    Typed is `embed:` and a folder or Hub id, or `embed:` and a server's URL or URL#MODEL.
    """
    if name not in _opened:
        kind, _, model = name.partition(":")
        address, _, served = model.partition("#")
        if address.startswith(("http://", "https://")):
            server = Server(checked_address(address, f"{kind}:URL"), api_key(os.environ), option=f"{kind}:URL")
            served = served or server.find_model([], f"name one, as in {kind}:{address}#MODEL").id
            label, embed = f"{served}@served", partial(_embed_there, server, served)
        else:
            module, _, function = EMBEDDER.partition(":")
            label, embed = getattr(importlib.import_module(module), function)(model)
        found = Embedding(f"embed:{label}", embed)
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
