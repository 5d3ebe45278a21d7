"""How long responses may become, and at which token one meets a stop string: the same in every engine that draws.

A response ends at the first token after which its decoded text holds a stop string. Its text ends before that string.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals.errors import DataError, UsageError
from quatro.types import Prompt

logger = logging.getLogger(__name__)

# Pieces of text looked at beyond the bytes of a stop string: some tokenizers leave out the space before the first one.
MORE_PIECES = 4
# Stands for bytes that make up no character, and so for the part of one.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

MAX_TEMPERATURE = 2.0  # vLLM refuses more
MIN_TEMPERATURE = 0.01  # vLLM raises smaller ones, except 0, to this


def response_limits(prompts: Sequence[Prompt], max_new_tokens: int, *, context: int | None) -> list[int]:
    """Tokens that a response to each prompt may have: ``max_new_tokens``, or what ``context`` leaves of them.

    Raises DataError if a prompt is empty or fills the context.
    """
    limits = []
    for prompt in prompts:
        length = len(prompt.token_ids)
        if length == 0:
            raise DataError(f"prompt {prompt.id!r} of {prompt.benchmark!r} has no tokens; expected at least one")
        if context is not None and length >= context:
            raise DataError(
                f"prompt {prompt.id!r} of {prompt.benchmark!r} has {length} tokens, which leaves no room for a "
                f"response in the model's context of {context}; shorten it or leave it out (a run does with "
                f"data.too_long=skip and data.max_prompt_tokens below {context})"
            )
        limits.append(max_new_tokens if context is None else min(max_new_tokens, context - length))
    num_cut = sum(limit < max_new_tokens for limit in limits)
    if num_cut:
        found = f"{num_cut} of {len(limits)} prompts leave fewer than max_new_tokens={max_new_tokens} tokens"
        logger.warning("%s in the model's context of %s; responses end where the context does", found, context)
    return limits


def check_temperature(name: str, value: float) -> None:
    """Raises UsageError for a temperature that vLLM refuses or changes."""
    if not (value == 0.0 or MIN_TEMPERATURE <= value <= MAX_TEMPERATURE):
        raise UsageError(
            f"vLLM samples at temperatures from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, found {name} {value:g}; "
            "choose one of them, or the engine transformers"
        )


def before_stop(text: str, stop: Sequence[str]) -> str:
    """The part of ``text`` before the first of the strings ``stop`` in it; all of it if it holds none."""
    ends = [text.find(one) for one in stop if one in text]
    return text[: min(ends)] if ends else text


class ResponseTexts:
    """The texts of responses that one call of an engine draws; responses with equal tokens are decoded once."""

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._num_pieces = max((len(text.encode()) for text in stop), default=0) + MORE_PIECES
        self._text_of: dict[tuple[int, ...], str] = {}
        self._has_text = functools.cache(lambda id: self._decode([id]) != "")

    def text(self, token_ids: tuple[int, ...]) -> str:
        """The text before any stop string in it."""
        text = self._text_of.get(token_ids)
        if text is None:
            text = self._text_of[token_ids] = before_stop(self._decode(token_ids), self._stop)
        return text

    def meets_stop(self, token_ids: Sequence[int] | NDArray[np.int64]) -> bool:
        """Whether the text holds a stop string, if that without the last token holds none.

        A stop string that the last token completes lies in the last few tokens, which are decoded first: each token
        with a text gives a byte of it or more. What is found there must also be in the text of the whole response.
        """
        start = len(token_ids)
        num_pieces = 0
        while start > 0 and num_pieces < self._num_pieces:
            start -= 1
            num_pieces += self._has_text(int(token_ids[start]))
        end = self._decode(token_ids[start:])
        # An end that begins inside a character may read otherwise than in the whole text, to its last byte.
        if not self._holds_stop(end) and REPLACEMENT not in end:
            return False
        return self._holds_stop(self._decode(token_ids) if start > 0 else end)

    def _holds_stop(self, text: str) -> bool:
        return any(stop in text for stop in self._stop)

    def _decode(self, token_ids: Sequence[int] | NDArray[np.int64]) -> str:
        text: str = self._tokenizer.decode(list(map(int, token_ids)), skip_special_tokens=True)
        return text
