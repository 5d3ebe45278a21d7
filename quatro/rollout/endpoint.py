"""Which server is asked, and how: `quatro sample --base-url` and the options that go with it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
