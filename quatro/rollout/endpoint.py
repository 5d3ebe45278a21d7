"""Which server is asked, and how: `quatro sample --base-url` and the options that go with it. Imports no torch."""

from __future__ import annotations

import base64
import functools
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, quote_plus, urlsplit

from evals.errors import UsageError

KEYS = ("QUATRO_API_KEY", "OPENAI_API_KEY")  # the first that is set is sent
SECRET_LENGTH = 8  # a shorter key, such as EMPTY, keeps nothing from anybody

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


def api_key(environment: Mapping[str, str]) -> str | None:
    """The key in ``environment``, if there is one; no message ever holds it.

    Raises:
        UsageError: it holds characters that no HTTP header takes.
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


def checked_address(base_url: str) -> str:
    """``base_url`` without a slash at its end; raises UsageError if it is no address, or holds credentials."""
    if "@" in base_url or "?" in base_url or "#" in base_url:  # and so it is not shown
        raise UsageError(
            f"--base-url holds a user, a password or a query; give the address alone, and a key in {KEYS[0]}"
        )
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").encode("idna")
        is_address = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # a host that no network has, a port that is no number
        is_address = False
    if not is_address:
        raise UsageError(f"--base-url {base_url!a}: expected an address such as http://localhost:8000/v1")
    return base_url.rstrip("/")
